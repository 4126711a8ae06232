//! Rows in the binlog: every value is gone past by its length, and only those of the key are read.

use super::bytes::{Bytes, Read, Unreadable, bit};
use super::event::kind;
use super::table_map::{Columns, Kind};
use super::value;
use crate::mover::table::{Key, Table};

/// A table whose rows are looked at: how they are laid out in the binlog, and what the key is made of.
#[derive(Debug)]
pub(super) struct Layout {
    columns: Columns,
    /// Which columns make the key; the first says whose row it is.
    key: Vec<usize>,
}

impl Layout {
    /// `key` are the key's columns.
    pub(super) fn new(columns: Columns, key: Vec<usize>) -> Read<Self> {
        if key.is_empty() || key.iter().any(|at| *at >= columns.columns.len()) {
            return Err("the table has no such key".into());
        }
        Ok(Self { columns, key })
    }

    /// Whether all columns that a row of this table has in the binlog are among those of an event.
    fn is_full(&self, present: &Present<'_>, table: &Table) -> bool {
        let columns = self.columns.columns.len();
        (0..columns).all(|at| {
            present.has(at) || table.columns.get(at).is_some_and(|column| column.generated)
        })
    }
}

/// Which columns an event's images have.
#[derive(Debug, Clone, Copy)]
struct Present<'a> {
    bitmap: &'a [u8],
}

impl Present<'_> {
    fn has(&self, at: usize) -> bool {
        bit(self.bitmap, at)
    }
}

/// An event with rows: the part before them.
pub(super) struct RowsEvent<'a> {
    /// The number by which the description before it is found.
    pub(super) table: u64,
    columns: usize,
    before: Option<Present<'a>>,
    after: Option<Present<'a>>,
    /// After-images say of JSON only what changed.
    partial: bool,
    rows: Bytes<'a>,
}

impl<'a> RowsEvent<'a> {
    /// Takes an event apart up to its rows.
    pub(super) fn parse(event_kind: u8, body: &'a [u8]) -> Read<Self> {
        let mut bytes = Bytes(body);
        let table = bytes.little(6)?;
        let _flags = bytes.u16()?;
        let old = [
            kind::WRITE_ROWS_V1,
            kind::UPDATE_ROWS_V1,
            kind::DELETE_ROWS_V1,
        ];
        if !old.contains(&event_kind) {
            // The length of more about the event counts itself.
            let more = usize::from(bytes.u16()?).checked_sub(2);
            bytes.take(more.ok_or(Unreadable::SHORT)?)?;
        }
        let columns = usize::try_from(bytes.packed()?).map_err(|_| Unreadable::SHORT)?;
        let bitmap = Present {
            bitmap: bytes.take(columns.div_ceil(8))?,
        };
        let (before, after) = match event_kind {
            kind::WRITE_ROWS | kind::WRITE_ROWS_V1 => (None, Some(bitmap)),
            kind::DELETE_ROWS | kind::DELETE_ROWS_V1 => (Some(bitmap), None),
            _ => {
                let after = bytes.take(columns.div_ceil(8))?;
                (Some(bitmap), Some(Present { bitmap: after }))
            }
        };
        Ok(Self {
            table,
            columns,
            before,
            after,
            partial: event_kind == kind::PARTIAL_UPDATE_ROWS,
            rows: bytes,
        })
    }

    /// Gives each key of a shop's rows, before and after the change. A row that comes to the shop or leaves it counts by
    /// the image that is the shop's.
    pub(super) fn keys(
        &self,
        layout: &Layout,
        table: &Table,
        shop: u64,
        found: &mut impl FnMut(Key),
    ) -> Read<()> {
        if self.columns != layout.columns.columns.len() {
            return Err("its rows have another number of columns than their table".into());
        }
        let mut bytes = self.rows;
        let mut values: Vec<Option<&[u8]>> = Vec::new();
        while !bytes.is_empty() {
            let mut ours = false;
            // What an after-image leaves out is as it was.
            values.clear();
            values.resize(layout.key.len(), None);
            for (present, after) in [(self.before, false), (self.after, true)] {
                let Some(present) = present else { continue };
                let partial = after && self.partial;
                self.image(layout, present, partial, &mut bytes, &mut values)?;
                if let Some(key) = key_of(layout, table, shop, &values)? {
                    ours = true;
                    found(key);
                }
            }
            if ours {
                self.complete(layout, table)?;
            }
        }
        Ok(())
    }

    /// A mover can follow keys through less than whole rows, but whoever else reads the binlog cannot, and what a session
    /// that asks for that does besides is not known.
    fn complete(&self, layout: &Layout, table: &Table) -> Read<()> {
        if self.partial {
            return Err(
                "a session wrote parts of JSON documents (binlog_row_value_options)".into(),
            );
        }
        let images = [self.before, self.after];
        if images.iter().flatten().all(|p| layout.is_full(p, table)) {
            return Ok(());
        }
        Err("a session wrote less than whole rows (binlog_row_image)".into())
    }

    /// Goes past one image of a row, and keeps the values of the key.
    fn image(
        &self,
        layout: &Layout,
        present: Present<'a>,
        partial: bool,
        bytes: &mut Bytes<'a>,
        values: &mut [Option<&'a [u8]>],
    ) -> Read<()> {
        const PARTIAL_JSON: u64 = 1;

        let columns = &layout.columns.columns;
        if partial && bytes.packed()? & PARTIAL_JSON != 0 {
            let documents = columns.iter().enumerate();
            let documents = documents.filter(|(at, column)| column.json && present.has(*at));
            bytes.take(documents.count().div_ceil(8))?;
        }
        let shown = (0..columns.len()).filter(|at| present.has(*at)).count();
        let nulls = bytes.take(shown.div_ceil(8))?;
        let mut index = 0;
        for (at, column) in columns.iter().enumerate() {
            if !present.has(at) {
                continue;
            }
            let null = bit(nulls, index);
            index += 1;
            // A changed part of a document has a length of the same size before it.
            let value = if null {
                None
            } else {
                Some(value::take(column.kind, bytes)?)
            };
            for (slot, key) in values.iter_mut().zip(&layout.key) {
                if *key == at {
                    *slot = value;
                }
            }
        }
        Ok(())
    }

    /// Gives the first column of each image's key, for a table of ours whose key begins with text.
    pub(super) fn first_parts(
        &self,
        layout: &Layout,
        found: &mut impl FnMut(&'a [u8]),
    ) -> Read<()> {
        if self.columns != layout.columns.columns.len() {
            return Err("its rows have another number of columns than their table".into());
        }
        let mut bytes = self.rows;
        let mut values = vec![None; layout.key.len()];
        while !bytes.is_empty() {
            for (present, after) in [(self.before, false), (self.after, true)] {
                let Some(present) = present else { continue };
                let partial = after && self.partial;
                self.image(layout, present, partial, &mut bytes, &mut values)?;
                if let Some(Some(value)) = values.first() {
                    found(value);
                }
            }
        }
        Ok(())
    }
}

/// The key in an image, if the row is the shop's.
fn key_of(
    layout: &Layout,
    table: &Table,
    shop: u64,
    values: &[Option<&[u8]>],
) -> Read<Option<Key>> {
    let mut parts = Vec::new();
    for (index, (at, value)) in layout.key.iter().zip(values).enumerate() {
        let value = value.ok_or("its rows lack a column of their key (binlog_row_image)")?;
        let (Some(stored), Some(column)) =
            (layout.columns.columns.get(*at), table.columns.get(*at))
        else {
            return Err("the table has no such key".into());
        };
        if index == 0 {
            if !is_shop(stored.kind, value, shop)? {
                return Ok(None);
            }
            continue;
        }
        parts.push(value::decode(stored.kind, column, value)?);
    }
    Ok(Some(Key(parts.into())))
}

fn is_shop(kind: Kind, value: &[u8], shop: u64) -> Read<bool> {
    if let Kind::Integer(_) = kind {
        // Ids are positive, so a number with a sign is the same number.
        return Ok(super::bytes::little(value) == shop);
    }
    Err("a shop's id that is no whole number".into())
}
