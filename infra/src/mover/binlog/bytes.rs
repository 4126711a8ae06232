//! Bytes read in order, never past their end.

use std::borrow::Cow;

/// Why something in a binlog cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unreadable(pub(super) Cow<'static, str>);

/// What was read, or why it was not.
pub(super) type Read<T> = Result<T, Unreadable>;

impl Unreadable {
    /// The end came too early.
    pub(super) const SHORT: Self = Self(Cow::Borrowed("it ends too early"));
}

impl From<&'static str> for Unreadable {
    fn from(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Unreadable {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

/// What is left to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `n` bytes.
    pub(super) fn take(&mut self, n: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Unreadable::SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next bytes of a known number.
    pub(super) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Unreadable::SHORT)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Read<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Read<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Read<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Read<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of up to eight bytes, the least significant first.
    pub(super) fn little(&mut self, bytes: usize) -> Read<u64> {
        Ok(little(self.take(bytes)?))
    }

    /// A number whose first byte says how long it is.
    pub(super) fn packed(&mut self) -> Read<u64> {
        match self.u8()? {
            small @ ..0xfb => Ok(small.into()),
            0xfc => self.little(2),
            0xfd => self.little(3),
            0xfe => self.u64(),
            0xfb | 0xff => Err("a packed number is none".into()),
        }
    }

    /// The same, as a length of something that is still to come.
    pub(super) fn packed_length(&mut self) -> Read<usize> {
        let length = usize::try_from(self.packed()?).map_err(|_| Unreadable::SHORT)?;
        if length > self.0.len() {
            return Err(Unreadable::SHORT);
        }
        Ok(length)
    }

    /// A number of the servers' own serialization: the ones at the end of the first byte say how many bytes follow.
    pub(super) fn varlen(&mut self) -> Read<u64> {
        let first = *self.0.first().ok_or(Unreadable::SHORT)?;
        let ones = first.trailing_ones();
        if ones == 8 {
            self.u8()?;
            return self.u64();
        }
        let bytes = self.take(ones as usize + 1)?;
        Ok(little(bytes) >> (ones + 1))
    }

    /// Text up to a zero byte, which is read too.
    pub(super) fn until_zero(&mut self) -> Read<&'a [u8]> {
        let end = self.0.iter().position(|b| *b == 0);
        let text = self.take(end.ok_or(Unreadable::SHORT)?)?;
        self.u8()?;
        Ok(text)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

/// The least significant byte first; at most eight.
pub(super) fn little(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |n, b| (n << 8) | u64::from(*b))
}

/// The most significant byte first; at most eight.
pub(super) fn big(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, b| (n << 8) | u64::from(*b))
}

/// Whether a bit of a bitmap is set; bits are counted from the lowest of the first byte.
pub(super) fn bit(bitmap: &[u8], at: usize) -> bool {
    bitmap
        .get(at / 8)
        .is_some_and(|byte| byte & (1 << (at % 8)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_server_writes_them() {
        let mut bytes = Bytes(&[
            5, 0xfc, 0x34, 0x12, 0xfd, 1, 2, 3, 0xfe, 1, 0, 0, 0, 0, 0, 0, 0,
        ]);
        assert_eq!(bytes.packed(), Ok(5));
        assert_eq!(bytes.packed(), Ok(0x1234));
        assert_eq!(bytes.packed(), Ok(0x03_0201));
        assert_eq!(bytes.packed(), Ok(1));
        assert_eq!(bytes.packed(), Err(Unreadable::SHORT));
        assert!(Bytes(&[0xfb]).packed().is_err());
        assert_eq!(Bytes(&[3, 0]).packed_length(), Err(Unreadable::SHORT));

        // The examples of the servers' own documentation: 65535 takes three bytes.
        assert_eq!(Bytes(&[0b10]).varlen(), Ok(1));
        assert_eq!(Bytes(&[0xfb, 0xff, 0x07]).varlen(), Ok(65535));
        assert_eq!(Bytes(&[0xff; 9]).varlen(), Ok(u64::MAX));
        assert_eq!(Bytes(&[0xfb, 0xff]).varlen(), Err(Unreadable::SHORT));
        assert_eq!(little(&[1, 2]), 0x0201);
        assert_eq!(big(&[1, 2]), 0x0102);
    }

    #[test]
    fn text_ends_at_a_zero_byte() {
        let mut bytes = Bytes(b"ab\0c");
        assert_eq!(bytes.until_zero(), Ok(&b"ab"[..]));
        assert_eq!(bytes.until_zero(), Err(Unreadable::SHORT));
        assert!(bit(&[0, 0b10], 9) && !bit(&[0, 0b10], 8) && !bit(&[0], 8));
    }
}
