//! Which table a number means: the binlog describes each table before its rows, and again in each statement.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::bytes::Read;
use super::super::event::Event;
use super::super::rows::Layout;
use super::super::table_map::{Columns, Named};
use crate::mover::table::Table;
use crate::pod_store::DATABASE;

/// The table that a mover writes its marks to; its key begins with the move.
const MARKS: &str = "move_mark";

/// What a number of a table means in the present transaction.
#[derive(Debug)]
pub(super) enum Mapped {
    /// Nothing to a mover.
    Other,
    /// A table of shops, by its index.
    Tenant(usize, Arc<Layout>),
    /// The table of marks.
    Marks(Arc<Layout>),
    /// A table of shops that is not what it was.
    Changed(String),
}

/// A description of a table, and what it means.
type Known = (Vec<u8>, Result<Arc<Layout>, String>);

/// All tables that are looked at.
#[derive(Debug)]
pub(super) struct Described {
    tables: Arc<[Table]>,
    names: HashMap<String, usize>,
    mapped: HashMap<u64, Mapped>,
    /// Descriptions rarely change from one event to the next. The last is that of the marks.
    known: Vec<Option<Known>>,
}

impl Described {
    pub(super) fn new(tables: Arc<[Table]>) -> Self {
        let indexed = tables.iter().enumerate();
        Self {
            names: indexed
                .map(|(at, table)| (table.name.clone(), at))
                .collect(),
            known: tables.iter().map(|_| None).chain([None]).collect(),
            tables,
            mapped: HashMap::new(),
        }
    }

    /// Whether a name in a statement, in small letters, may be that of a table of shops.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name) || self.names.keys().any(|n| n.eq_ignore_ascii_case(name))
    }

    /// What a number means.
    pub(super) fn get(&self, id: u64) -> Option<&Mapped> {
        self.mapped.get(&id)
    }

    /// The transaction is over: numbers may mean other tables.
    pub(super) fn clear(&mut self) {
        self.mapped.clear();
    }

    /// Takes a description.
    pub(super) fn take(&mut self, event: &Event<'_>) -> Read<&Mapped> {
        let named = Named::parse(event.body)?;
        let ours = named.database == DATABASE.as_bytes();
        let name = std::str::from_utf8(named.table).ok().filter(|_| ours);
        let marks = self.tables.len();
        let index = name.and_then(|name| match name {
            MARKS => Some(marks),
            name => self.names.get(name).copied(),
        });
        let mapped = match index {
            None => Mapped::Other,
            Some(index) => match self.layout(index, named.description()) {
                Ok(layout) if index == marks => Mapped::Marks(layout),
                Ok(layout) => Mapped::Tenant(index, layout),
                Err(text) => Mapped::Changed(format!("table {}: {text}", name.unwrap_or_default())),
            },
        };
        let entry = self.mapped.entry(named.id);
        Ok(entry.insert_entry(mapped).into_mut())
    }

    fn layout(&mut self, index: usize, description: &[u8]) -> Result<Arc<Layout>, String> {
        let known = self.known.get_mut(index).ok_or("no such table")?;
        if let Some((same, layout)) = known
            && same == description
        {
            return layout.clone();
        }
        let read = || {
            let columns = Columns::parse(description).map_err(|why| why.to_string())?;
            let key = match self.tables.get(index) {
                Some(table) => {
                    columns.compare(table)?;
                    table.key.clone()
                }
                None => vec![0],
            };
            let layout = Layout::new(columns, key).map_err(|why| why.to_string())?;
            Ok(Arc::new(layout))
        };
        let layout = read();
        *known = Some((description.to_vec(), layout.clone()));
        layout
    }
}
