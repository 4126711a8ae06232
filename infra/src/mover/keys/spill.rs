//! Keys in files that have no names any more: each is gone with its last reader, also after `kill -9`.
//!
//! Keys are added at the end of the last file until that is large, and read from the beginning of the first one. However many
//! keys there are, and however they came, the files are few ([`FILE_BYTES`]), and one of them has a buffer.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::TableKey;
use crate::mover::error::MoveError;
use crate::mover::table::Key;

/// Read and written at once.
const BUFFER_BYTES: u64 = 128 * 1024;
/// A file that is that large gets no more keys. What was read of a file is on the disk until all of it was.
const FILE_BYTES: u64 = 256 << 20;
/// Keys of others are copied up to here: whoever takes keys waits for that, and a thread that others want. What is more is
/// taken over as the file that it is, so all that a set may hold is in some five hundred files at most.
const COPIED_MAX: u64 = 32 << 20;

/// Keys that are read once, about in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Spills {
    files: VecDeque<Spill>,
    /// A part of the first one, from where it is read on.
    buffer: Buffer,
}

#[derive(Debug, Default)]
struct Buffer {
    /// Where in the file it begins.
    from: u64,
    bytes: Vec<u8>,
}

/// One file.
#[derive(Debug)]
struct Spill {
    file: File,
    /// Where the first key is that was not read yet.
    from: u64,
    upto: u64,
    /// How many keys there are from there on.
    left: u64,
}

impl Spills {
    /// How many keys were not read yet.
    pub(super) fn left(&self) -> u64 {
        self.files.iter().map(|file| file.left).sum()
    }

    /// How many bytes they take.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.upto - file.from).sum()
    }

    /// How many files are open.
    #[cfg(test)]
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    /// Adds keys, in a file in this folder.
    pub(super) fn write(
        &mut self,
        folder: &Path,
        keys: impl Iterator<Item = TableKey>,
    ) -> Result<(), MoveError> {
        let open = self.files.back().is_some_and(|it| it.upto < FILE_BYTES);
        let written = (|| {
            if !open {
                self.files.push_back(Spill::create(folder)?);
            }
            self.files.back_mut().map_or(Ok(()), |it| it.write(keys))
        })();
        written.map_err(|source| MoveError::File {
            doing: format!("write changed keys to a file in {}", folder.display()),
            source,
        })
    }

    /// Takes all keys of others.
    pub(super) fn append(&mut self, others: &mut Self) -> Result<(), MoveError> {
        others.buffer = Buffer::default();
        while let Some(mut other) = others.files.pop_front() {
            let bytes = other.upto - other.from;
            match self.files.back_mut() {
                Some(last) if bytes <= COPIED_MAX && last.upto + bytes <= FILE_BYTES => {
                    last.take_over(&mut other)
                        .map_err(|source| MoveError::File {
                            doing: "bring files of changed keys together".into(),
                            source,
                        })?;
                }
                Some(_) | None => self.files.push_back(other),
            }
        }
        Ok(())
    }

    /// Forgets all keys.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Reads up to so many keys. None are read only if there are none.
    pub(super) fn read(&mut self, max: usize, into: &mut Vec<TableKey>) -> Result<(), MoveError> {
        let read = self.read_some(max, into);
        read.map_err(|source| MoveError::File {
            doing: "read changed keys from a file".into(),
            source,
        })
    }

    fn read_some(&mut self, max: usize, into: &mut Vec<TableKey>) -> io::Result<()> {
        let Some(first) = self.files.front_mut() else {
            return Ok(());
        };
        for _ in 0..max.min(usize::try_from(first.left).unwrap_or(usize::MAX)) {
            let head = self.buffer.read(first, HEAD_BYTES)?;
            let &[a, b, c, d, ref length @ ..] = head else {
                return Err(no_key());
            };
            let table = u32::from_le_bytes([a, b, c, d]) as usize;
            let length: [u8; 4] = length.try_into().map_err(|_| no_key())?;
            let bytes = self
                .buffer
                .read(first, u64::from(u32::from_le_bytes(length)))?;
            into.push((table, Key::from_bytes(bytes).map_err(|_| no_key())?));
            first.left -= 1;
        }
        if first.left == 0 {
            self.files.pop_front();
            self.buffer = Buffer::default();
        }
        Ok(())
    }
}

/// The table and the key's length.
const HEAD_BYTES: u64 = 8;

fn no_key() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no key")
}

impl Buffer {
    /// The next bytes of a file.
    fn read(&mut self, spill: &mut Spill, length: u64) -> io::Result<&[u8]> {
        let there = self.from + self.bytes.len() as u64;
        if spill.from < self.from || spill.from + length > there {
            let wanted = length.max(BUFFER_BYTES).min(spill.upto - spill.from);
            self.bytes
                .resize(usize::try_from(wanted).map_err(io::Error::other)?, 0);
            self.from = spill.from;
            spill.file.read_exact_at(&mut self.bytes, spill.from)?;
        }
        let start = usize::try_from(spill.from - self.from).map_err(io::Error::other)?;
        let length_here = usize::try_from(length).map_err(io::Error::other)?;
        spill.from += length;
        self.bytes
            .get(start..start + length_here)
            .ok_or_else(no_key)
    }
}

impl Spill {
    fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!("keys-{}", uuid::Uuid::new_v4()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            // Keys may be a merchant's e-mail addresses: for their owner alone.
            .mode(0o600)
            .open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self {
            file,
            from: 0,
            upto: 0,
            left: 0,
        })
    }

    fn write(&mut self, keys: impl Iterator<Item = TableKey>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (table, key) in keys {
            let key = key.to_bytes();
            let table = u32::try_from(table).map_err(io::Error::other)?;
            let length = u32::try_from(key.len()).map_err(io::Error::other)?;
            bytes.extend(table.to_le_bytes());
            bytes.extend(length.to_le_bytes());
            bytes.extend(key);
            self.left += 1;
            if bytes.len() as u64 >= BUFFER_BYTES {
                self.add(&bytes)?;
                bytes.clear();
            }
        }
        self.add(&bytes)
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.upto)?;
        self.upto += bytes.len() as u64;
        Ok(())
    }

    /// Takes all keys that another has left.
    fn take_over(&mut self, other: &mut Self) -> io::Result<()> {
        let mut bytes = Vec::new();
        while other.from < other.upto {
            let wanted = BUFFER_BYTES.min(other.upto - other.from);
            bytes.resize(usize::try_from(wanted).map_err(io::Error::other)?, 0);
            other.file.read_exact_at(&mut bytes, other.from)?;
            self.add(&bytes)?;
            other.from += wanted;
        }
        self.left += std::mem::take(&mut other.left);
        Ok(())
    }
}
