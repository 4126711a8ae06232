//! Events put together to transactions: which rows of the shop each changed, and where it ends.
//!
//! A place to resume from is only where a transaction ends: at its XID or COMMIT, or at a statement that is one by itself.
//! What cannot be followed exactly is an error that names the transaction; nothing is skipped.

use std::collections::HashSet;
use std::sync::Arc;

use shared::gtid::Gtid;
use shared::{PodId, ShopId};

use super::bytes::{Bytes, Unreadable};
use super::event::{self, Event, kind};
use super::query::{Look, Meaning, Query, meaning};
use super::rows::RowsEvent;
use crate::mover::error::MoveError;
use crate::mover::table::Table;
use crate::pod_store::DATABASE;
use described::{Described, Mapped};

// Tables, as the present transaction numbers them.
mod described;

/// The number that stands for no table: such an event only ends a statement.
const NO_TABLE: u64 = 0xff_ffff;
/// Transactions in two steps of others that are waited for: each is a name. No server of a shop has so many.
const PREPARED_MAX: usize = 10_000;

/// What is looked for in a binlog.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    /// Whose binlog it is.
    pub(crate) pod: PodId,
    /// Whose rows.
    pub(crate) shop: ShopId,
    /// In which tables.
    pub(crate) tables: Arc<[Table]>,
    /// The move whose marks are told.
    pub(crate) mark: String,
    /// Rows of a transaction are of no interest once its mark was seen: a copy of gigabytes is gone past quickly.
    pub(crate) past_marked: bool,
    /// Goes on after what cannot be followed exactly, and tells of it as [`Seen::Odd`].
    pub(crate) goes_on: bool,
}

/// What was seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A row of the shop changed: the table's index, and the row's key.
    Row(usize, crate::mover::table::Key),
    /// The transaction bears the move's mark.
    Mark,
    /// Something that cannot be followed exactly.
    Odd(String),
    /// All that was seen since the last end was this transaction, committed at that time in ms since 1970.
    End(Gtid, u64),
}

/// A transaction that has not ended.
#[derive(Debug)]
struct Open {
    gtid: Gtid,
    at_ms: u64,
    /// Its beginning was there: statements do not end it.
    begun: bool,
    /// Its name, where it has two steps.
    name: Option<String>,
    /// It changed rows of the shop.
    ours: bool,
    /// It bears the mark.
    marked: bool,
}

/// Puts events together.
#[derive(Debug)]
pub(super) struct Transactions {
    watch: Watch,
    described: Described,
    open: Option<Open>,
    /// Transactions of others in two steps that are between them.
    prepared: HashSet<String>,
}

/// Why a transaction cannot be followed.
enum Fault {
    Schema(String),
    Binlog(String),
}

impl From<Unreadable> for Fault {
    fn from(why: Unreadable) -> Self {
        Self::Binlog(why.to_string())
    }
}

impl Transactions {
    pub(super) fn new(watch: Watch) -> Self {
        Self {
            described: Described::new(Arc::clone(&watch.tables)),
            watch,
            open: None,
            prepared: HashSet::new(),
        }
    }

    /// Others' transactions in two steps, whose first step was read before.
    pub(super) fn remember(&mut self, before: Self) {
        self.prepared = before.prepared;
    }

    /// Takes the next event; appends what there is to tell.
    pub(super) fn take(&mut self, event: &Event<'_>, out: &mut Vec<Seen>) -> Result<(), MoveError> {
        let before = out.len();
        match self.event(event, out) {
            Ok(()) => Ok(()),
            Err(fault) if self.watch.goes_on => {
                let (Fault::Schema(text) | Fault::Binlog(text)) = fault;
                out.truncate(before);
                out.push(Seen::Odd(self.told(&text)));
                self.go_on(event, out);
                Ok(())
            }
            Err(fault) => Err(self.error(fault)),
        }
    }

    /// After a fault: what ends a transaction ends it all the same.
    fn go_on(&mut self, event: &Event<'_>, out: &mut Vec<Seen>) {
        match event.kind {
            kind::QUERY if self.open.as_ref().is_some_and(|open| !open.begun) => self.end(out),
            kind::XA_PREPARE => self.end(out),
            kind::GTID | kind::GTID_TAGGED => {
                self.end(out);
                // One that has no name has no end to tell of either.
                let _ = self.begin(event);
            }
            _ => {}
        }
    }

    fn told(&self, text: &str) -> String {
        match &self.open {
            Some(open) => format!("{text} (transaction {})", open.gtid),
            None => text.to_owned(),
        }
    }

    fn error(&self, fault: Fault) -> MoveError {
        let pod = self.watch.pod;
        match fault {
            Fault::Schema(text) => MoveError::SchemaChanged {
                pod,
                text: self.told(&text),
            },
            Fault::Binlog(text) => MoveError::Binlog {
                pod,
                text: self.told(&text),
            },
        }
    }

    fn event(&mut self, event: &Event<'_>, out: &mut Vec<Seen>) -> Result<(), Fault> {
        match event.kind {
            kind::GTID | kind::GTID_TAGGED => self.begin(event),
            kind::ANONYMOUS_GTID => Err("a transaction without GTID".to_owned().into()),
            kind::QUERY => self.statement(&Query::parse(event.body)?, out),
            kind::EXECUTE_LOAD_QUERY => self.statement(&Query::parse_load(event.body)?, out),
            kind::XID => {
                self.end(out);
                Ok(())
            }
            kind::XA_PREPARE => self.prepare(event, out),
            kind::TABLE_MAP => self.map(event),
            kind::WRITE_ROWS
            | kind::UPDATE_ROWS
            | kind::DELETE_ROWS
            | kind::PARTIAL_UPDATE_ROWS
            | kind::WRITE_ROWS_V1
            | kind::UPDATE_ROWS_V1
            | kind::DELETE_ROWS_V1 => self.rows(event, out),
            kind::INCIDENT => Err("the server lost events (an incident)".to_owned().into()),
            // Between transactions.
            kind::ROTATE | kind::STOP | kind::FORMAT_DESCRIPTION | kind::PREVIOUS_GTIDS => {
                match &self.open {
                    Some(_) => Err("the file ends inside of a transaction".to_owned().into()),
                    None => Ok(()),
                }
            }
            // Nothing, or part of a statement that comes as text.
            kind::HEARTBEAT
            | kind::HEARTBEAT_V2
            | kind::ROWS_QUERY
            | kind::IGNORABLE
            | kind::INTVAR
            | kind::RAND
            | kind::USER_VAR
            | kind::BEGIN_LOAD_QUERY
            | kind::APPEND_BLOCK
            | kind::DELETE_FILE
            | kind::TRANSACTION_CONTEXT
            | kind::VIEW_CHANGE => Ok(()),
            _ if event.is_ignorable() => Ok(()),
            other => Err(format!("an event of the unknown kind {other}").into()),
        }
    }

    fn begin(&mut self, event: &Event<'_>) -> Result<(), Fault> {
        if self.open.is_some() {
            return Err("it has no end".to_owned().into());
        }
        let (gtid, micros) = event::gtid(event)?;
        let at_ms = match micros / 1000 {
            0 => u64::from(event.timestamp) * 1000,
            ms => ms,
        };
        self.open = Some(Open {
            gtid,
            at_ms,
            begun: false,
            name: None,
            ours: false,
            marked: false,
        });
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<Seen>) {
        self.described.clear();
        if let Some(open) = self.open.take() {
            out.push(Seen::End(open.gtid, open.at_ms));
        }
    }

    fn statement(&mut self, query: &Query<'_>, out: &mut Vec<Seen>) -> Result<(), Fault> {
        let look = Look {
            database: DATABASE,
            is_tenant: &|name| self.described.has(name),
        };
        let meaning = meaning(query, &look);
        let Some(open) = &mut self.open else {
            return Err("a statement outside of a transaction".to_owned().into());
        };
        match meaning {
            Meaning::Begin => open.begun = true,
            Meaning::XaBegin(name) => {
                open.begun = true;
                open.name = Some(name);
            }
            Meaning::Commit | Meaning::Rollback => self.end(out),
            Meaning::XaCommit(name) => {
                if !self.prepared.remove(&name) {
                    let text =
                        "the second step of a transaction (XA COMMIT) whose first was not seen";
                    return Err(text.to_owned().into());
                }
                self.end(out);
            }
            Meaning::XaRollback(name) => {
                self.prepared.remove(&name);
                self.end(out);
            }
            Meaning::Harmless => {
                if !open.begun {
                    self.end(out);
                }
            }
            Meaning::Schema(text) => return Err(Fault::Schema(format!("`{text}`"))),
            Meaning::Rows(text) => {
                let text =
                    format!("a session changed rows by a statement (binlog_format): `{text}`");
                return Err(text.into());
            }
            Meaning::Unknown(text) => {
                return Err(format!("a statement that is not known: `{text}`").into());
            }
        }
        Ok(())
    }

    /// The first step of a transaction that has two: its rows are seen by others only after the second, at another place
    /// of the binlog.
    fn prepare(&mut self, event: &Event<'_>, out: &mut Vec<Seen>) -> Result<(), Fault> {
        let one_phase = Bytes(event.body).u8()? != 0;
        let Some(open) = &mut self.open else {
            return Err("a prepared transaction without name".to_owned().into());
        };
        if !one_phase {
            if open.ours {
                let text = "a transaction in two steps (XA PREPARE) changed rows of the shop";
                return Err(text.to_owned().into());
            }
            if self.prepared.len() >= PREPARED_MAX {
                return Err("too many prepared transactions".to_owned().into());
            }
            self.prepared.extend(open.name.take());
        }
        self.end(out);
        Ok(())
    }

    fn map(&mut self, event: &Event<'_>) -> Result<(), Fault> {
        match self.described.take(event)? {
            Mapped::Changed(text) if !self.watch.goes_on => Err(Fault::Schema(text.clone())),
            Mapped::Changed(_) | Mapped::Other | Mapped::Tenant(..) | Mapped::Marks(_) => Ok(()),
        }
    }

    fn rows(&mut self, event: &Event<'_>, out: &mut Vec<Seen>) -> Result<(), Fault> {
        let rows = RowsEvent::parse(event.kind, event.body)?;
        let Some(open) = self.open.as_mut().filter(|open| open.begun) else {
            return Err("rows outside of a transaction".to_owned().into());
        };
        if rows.table == NO_TABLE {
            return Ok(());
        }
        match self.described.get(rows.table) {
            None => Err("rows of a table that was not described".to_owned().into()),
            Some(Mapped::Other) => Ok(()),
            Some(Mapped::Changed(text)) => Err(Fault::Schema(text.clone())),
            Some(Mapped::Marks(layout)) => {
                let mut marked = false;
                let mark = self.watch.mark.as_bytes();
                rows.first_parts(layout, &mut |part| marked |= part == mark)?;
                if marked {
                    open.marked = true;
                    out.push(Seen::Mark);
                }
                Ok(())
            }
            Some(Mapped::Tenant(..)) if open.marked && self.watch.past_marked => Ok(()),
            Some(Mapped::Tenant(index, layout)) => {
                let table = self.watch.tables.get(*index).ok_or(Unreadable::SHORT)?;
                let shop = self.watch.shop.get();
                let before = out.len();
                let read = rows.keys(layout, table, shop, &mut |key| {
                    out.push(Seen::Row(*index, key));
                });
                open.ours |= out.len() > before;
                read.map_err(|why| Fault::Binlog(format!("table {}: {why}", table.name)))
            }
        }
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Binlog(text)
    }
}

#[cfg(test)]
mod tests;
