//! Records with their length before them, summed up on the way.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Bad;
use crate::routes::wire;

/// As for a line of text: a length beyond it is a damaged file, and must not become an allocation.
const RECORD_LEN_MAX: usize = wire::LINE_LEN_MAX;
/// Enough that a system call is seldom.
const BUFFER: usize = 256 * 1024;

/// Writes and sums up what it writes.
pub(super) struct Sink {
    out: BufWriter<File>,
    sum: Sha256,
    scratch: Vec<u8>,
}

impl Sink {
    pub(super) fn new(file: File) -> Self {
        Self {
            out: BufWriter::with_capacity(BUFFER, file),
            sum: Sha256::new(),
            scratch: Vec::new(),
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }

    pub(super) fn record<T: Serialize>(&mut self, record: &T) -> io::Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(&[0; 4]);
        let mut scratch = postcard::to_extend(record, scratch).map_err(io::Error::other)?;
        let len = scratch.len() - 4;
        let len = u32::try_from(len).map_err(io::Error::other)?;
        scratch[..4].copy_from_slice(&len.to_le_bytes());
        self.bytes(&scratch)?;
        self.scratch = scratch;
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<File> {
        self.out.write_all(&self.sum.finalize())?;
        self.out
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
    }
}

/// Reads and sums up what it reads.
pub(super) struct Source {
    from: BufReader<File>,
    sum: Sha256,
    scratch: Vec<u8>,
}

impl Source {
    pub(super) fn new(file: File) -> Self {
        Self {
            from: BufReader::with_capacity(BUFFER, file),
            sum: Sha256::new(),
            scratch: Vec::new(),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        self.sum.update(bytes);
        Ok(bytes)
    }

    /// The next record; `None` at the empty one, which is the last.
    pub(super) fn record(&mut self) -> Result<Option<&[u8]>, Bad> {
        let len = u32::from_le_bytes(self.array().map_err(Bad::Io)?) as usize;
        if len == 0 {
            return Ok(None);
        }
        if len > RECORD_LEN_MAX {
            return Err(Bad::Damaged("a record is longer than any route"));
        }
        self.scratch.resize(len, 0);
        self.from.read_exact(&mut self.scratch).map_err(Bad::Io)?;
        self.sum.update(&self.scratch);
        Ok(Some(&self.scratch))
    }

    /// Whether the sum comes next, and nothing after it.
    pub(super) fn checksum_fits(&mut self) -> io::Result<bool> {
        let mut said = [0; 32];
        self.from.read_exact(&mut said)?;
        let seen: [u8; 32] = std::mem::take(&mut self.sum).finalize().into();
        Ok(said == seen && self.from.read(&mut [0])? == 0)
    }
}
