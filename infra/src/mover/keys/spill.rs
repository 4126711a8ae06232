//! Keys in a file that has no name any more: it is gone with its last reader, also after `kill -9`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::TableKey;
use crate::mover::error::MoveError;
use crate::mover::table::Key;

/// Read and written at once.
const BUFFER_BYTES: usize = 128 * 1024;

/// A file of keys that are read once, from the first to the last.
#[derive(Debug)]
pub(super) struct Spill {
    file: BufReader<File>,
    left: u64,
    bytes: u64,
}

impl Spill {
    /// Writes keys to a new file in a folder.
    pub(super) fn write(
        folder: &Path,
        keys: impl Iterator<Item = TableKey>,
    ) -> Result<Self, MoveError> {
        written(folder, keys).map_err(|source| MoveError::File {
            doing: format!("write changed keys to a file in {}", folder.display()),
            source,
        })
    }

    /// How many keys were not read yet.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// How large the file is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads up to so many keys.
    pub(super) fn read(&mut self, max: usize, into: &mut Vec<TableKey>) -> Result<(), MoveError> {
        for _ in 0..max {
            if self.left == 0 {
                break;
            }
            into.push(self.one().map_err(|source| MoveError::File {
                doing: "read changed keys from a file".into(),
                source,
            })?);
            self.left -= 1;
        }
        Ok(())
    }

    fn one(&mut self) -> io::Result<TableKey> {
        let mut head = [0; 8];
        self.file.read_exact(&mut head)?;
        let [a, b, c, d, length @ ..] = head;
        let table = u32::from_le_bytes([a, b, c, d]) as usize;
        let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
        self.file.read_exact(&mut bytes)?;
        let key = Key::from_bytes(&bytes);
        let key = key.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no key"))?;
        Ok((table, key))
    }
}

fn written(folder: &Path, keys: impl Iterator<Item = TableKey>) -> io::Result<Spill> {
    let name = format!("keys-{}", uuid::Uuid::new_v4());
    let path = folder.join(name);
    let mut options = OpenOptions::new();
    // Keys may be a merchant's e-mail addresses: for their owner alone.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
    let (mut left, mut bytes) = (0, 0);
    for (table, key) in keys {
        let key = key.to_bytes();
        let table = u32::try_from(table).map_err(io::Error::other)?;
        let length = u32::try_from(key.len()).map_err(io::Error::other)?;
        file.write_all(&table.to_le_bytes())?;
        file.write_all(&length.to_le_bytes())?;
        file.write_all(&key)?;
        left += 1;
        bytes += 8 + u64::from(length);
    }
    let mut file = file.into_inner()?;
    file.seek(SeekFrom::Start(0))?;
    Ok(Spill {
        file: BufReader::with_capacity(BUFFER_BYTES, file),
        left,
        bytes,
    })
}
