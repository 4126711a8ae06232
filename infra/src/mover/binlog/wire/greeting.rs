//! Logging in: the server's greeting, and the proof that the password is known.

use mysql_async::Error;
use mysql_common::crypto;
use mysql_common::scramble::{scramble_native, scramble_sha256};

use super::super::bytes::{Bytes, Read, Unreadable};
use super::{Wire, odd};

/// The only version of the protocol there is.
const VERSION: u8 = 10;
/// Long passwords and flags, the protocol of 4.1, transactions, logins by a plugin.
const WANTED: u32 = 0x1 | 0x4 | 0x200 | 0x2000 | 0x8000 | 0x8_0000;
/// The same, and encryption.
const ENCRYPTED: u32 = WANTED | CAN_ENCRYPT;
const CAN_ENCRYPT: u32 = 0x800;
/// `utf8mb4_general_ci`: what is read here is ASCII.
const CHARSET: u8 = 45;

const SHA2: &[u8] = b"caching_sha2_password";
const NATIVE: &[u8] = b"mysql_native_password";

/// What the server sends first: what it wants the password mixed with, and how.
pub(super) struct Greeting {
    nonce: Vec<u8>,
    plugin: Vec<u8>,
    /// Whether the server takes an encrypted connection.
    pub(super) can_encrypt: bool,
}

impl Greeting {
    fn parse(packet: &[u8]) -> Read<Self> {
        let mut bytes = Bytes(packet);
        if bytes.u8()? != VERSION {
            return Err("a protocol that is not known".into());
        }
        let _server = bytes.until_zero()?;
        let _session = bytes.u32()?;
        let mut nonce = bytes.take(8)?.to_vec();
        let _filler = bytes.u8()?;
        let can_encrypt = u32::from(bytes.u16()?) & CAN_ENCRYPT != 0;
        // The charset, the status, more abilities, the nonce's length, reserved bytes.
        bytes.take(1 + 2 + 2 + 1 + 10)?;
        nonce.extend_from_slice(bytes.take(12)?);
        let _zero = bytes.u8()?;
        let plugin = bytes.until_zero()?.to_vec();
        Ok(Self {
            nonce,
            plugin,
            can_encrypt,
        })
    }

    /// Another way in than the one that was tried.
    fn switch(&mut self, packet: Bytes<'_>) -> Read<()> {
        let mut bytes = packet;
        self.plugin = bytes.until_zero()?.to_vec();
        self.nonce = bytes.take(20)?.to_vec();
        Ok(())
    }

    fn proof(&self, password: &str) -> Read<Vec<u8>> {
        let password = password.as_bytes();
        if password.is_empty() {
            return Ok(Vec::new());
        }
        let proof = match self.plugin.as_slice() {
            SHA2 => scramble_sha256(&self.nonce, password).map(|p| p.to_vec()),
            NATIVE => scramble_native(&self.nonce, password).map(|p| p.to_vec()),
            _ => None,
        };
        proof.ok_or_else(|| {
            let plugin = String::from_utf8_lossy(&self.plugin);
            format!("the account logs in by {plugin}, which a mover does not know").into()
        })
    }

    /// The password under the server's key, for a server that has not seen it since it started.
    fn sealed(&self, password: &str, key: &[u8]) -> Vec<u8> {
        let mixed: Vec<u8> = password
            .bytes()
            .chain([0])
            .zip(self.nonce.iter().cycle())
            .map(|(letter, nonce)| letter ^ nonce)
            .collect();
        crypto::encrypt(&mixed, key)
    }
}

impl Wire {
    /// Reads what the server sends first.
    pub(super) async fn greeting(&mut self) -> Result<Greeting, Error> {
        let mut packet = Vec::new();
        self.packet(&mut packet).await?;
        Ok(Greeting::parse(&packet)?)
    }

    /// Says that what follows is encrypted.
    pub(super) async fn ask_for_encryption(&mut self) -> Result<(), Error> {
        self.send(&wishes(ENCRYPTED)).await
    }

    /// Says who it is, and proves it.
    pub(super) async fn log_in(
        &mut self,
        mut greeting: Greeting,
        user: &str,
        password: &str,
    ) -> Result<(), Error> {
        let mut packet = Vec::new();
        let encrypted = self.stream.get_ref().is_encrypted();
        let proof = greeting.proof(password)?;
        let mut answer = wishes(if encrypted { ENCRYPTED } else { WANTED });
        answer.extend_from_slice(user.as_bytes());
        answer.push(0);
        answer.push(u8::try_from(proof.len()).map_err(|_| Unreadable::SHORT)?);
        answer.extend_from_slice(&proof);
        answer.extend_from_slice(&greeting.plugin);
        answer.push(0);
        self.send(&answer).await?;
        loop {
            self.packet(&mut packet).await?;
            match packet.split_first() {
                Some((0x00, _)) => return Ok(()),
                Some((0xfe, rest)) => {
                    greeting.switch(Bytes(rest))?;
                    let proof = greeting.proof(password)?;
                    self.send(&proof).await?;
                }
                // The server knows the password already, and says so before it lets in.
                Some((0x01, [3])) => {}
                Some((0x01, [4])) if encrypted => {
                    let plain: Vec<u8> = password.bytes().chain([0]).collect();
                    self.send(&plain).await?;
                }
                Some((0x01, [4])) => {
                    self.send(&[2]).await?;
                    self.packet(&mut packet).await?;
                    let key = packet.get(1..).unwrap_or_default();
                    let sealed = greeting.sealed(password, key);
                    self.send(&sealed).await?;
                }
                Some(_) | None => return Err(odd("an answer to the login that is not known")),
            }
        }
    }
}

/// The beginning of an answer: what is wished for, packets of any size, the charset.
fn wishes(abilities: u32) -> Vec<u8> {
    let mut wishes = Vec::new();
    wishes.extend_from_slice(&abilities.to_le_bytes());
    wishes.extend_from_slice(&u32::MAX.to_le_bytes());
    wishes.push(CHARSET);
    wishes.extend_from_slice(&[0; 23]);
    wishes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(plugin: &[u8]) -> Vec<u8> {
        let mut packet = vec![VERSION];
        packet.extend_from_slice(b"9.7.4\0");
        packet.extend_from_slice(&7_u32.to_le_bytes());
        packet.extend_from_slice(b"abcdefgh\0");
        packet.extend_from_slice(&[0, 8]);
        packet.extend_from_slice(&[0; 16]);
        packet.extend_from_slice(b"ijklmnopqrst\0");
        packet.extend_from_slice(plugin);
        packet.push(0);
        packet
    }

    #[test]
    fn a_greeting_is_taken_apart() {
        let greeting = Greeting::parse(&greeting(SHA2)).unwrap();
        assert_eq!(greeting.nonce, b"abcdefghijklmnopqrst");
        assert_eq!(greeting.plugin, SHA2);
        assert!(greeting.can_encrypt);
        assert_eq!(greeting.proof("").unwrap(), b"");
        assert_eq!(greeting.proof("secret").unwrap().len(), 32);
    }

    #[test]
    fn other_ways_in_are_named() {
        let parsed = Greeting::parse(&greeting(b"auth_socket")).unwrap();
        let fault = parsed.proof("secret").unwrap_err().to_string();
        assert!(fault.contains("auth_socket"), "{fault}");
        assert!(Greeting::parse(b"\x0a9.7.4").is_err());
        let mut switched = parsed;
        let other = Bytes(b"mysql_native_password\0abcdefghijklmnopqrst\0");
        switched.switch(other).unwrap();
        assert_eq!(switched.proof("secret").unwrap().len(), 20);
    }
}
