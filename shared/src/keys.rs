//! Fleet and pod keys: edges hold the fleet key, a pod only its own, made from it.
//!
//! A key file holds one key a line, `<key id>:<base64url of 32 bytes>`; the first signs, all of them verify, so that
//! keys rotate by adding a line above, waiting, and taking the old one away.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::PodId;

/// 256 bits, the output length of the hash (RFC 2104 section 3 advises at least that).
const KEY_LEN: usize = 32;

/// A key id is short and goes into a header.
const KEY_ID_LEN_MAX: usize = 16;

/// Why a key file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No line with a key.
    #[error(
        "the key file holds no key; it wants lines of the form <key id>:<base64url of 32 bytes>"
    )]
    Empty,
    /// A line that is not a key. The text is not repeated: it may be half a secret.
    #[error("line {0} of the key file is not <key id>:<base64url of 32 bytes>")]
    Line(usize),
    /// Two keys of one id.
    #[error("the key file holds two keys with id {0:?}")]
    Twice(String),
}

/// One secret with its id. `Debug` shows the id alone.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    id: Box<str>,
    secret: [u8; KEY_LEN],
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

impl Key {
    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        #[expect(
            clippy::expect_used,
            reason = "HMAC takes a key of any length (RFC 2104)"
        )]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("any length");
        for part in parts {
            // Each part with its length: no two lists of parts give the same bytes.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }

    fn derive(&self, info: &[&[u8]]) -> Self {
        let mut secret = [0; KEY_LEN];
        #[expect(
            clippy::expect_used,
            reason = "32 bytes are within 255 hash lengths (RFC 5869 section 2.3)"
        )]
        Hkdf::<Sha256>::new(None, &self.secret)
            .expand_multi_info(info, &mut secret)
            .expect("short");
        Self {
            id: self.id.clone(),
            secret,
        }
    }

    fn line(&self) -> String {
        format!("{}:{}\n", self.id, BASE64.encode(self.secret))
    }
}

fn parse(text: &str) -> Result<Vec<Key>, KeyError> {
    let mut keys: Vec<Key> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let bad = || KeyError::Line(index + 1);
        let (id, secret) = line.split_once(':').ok_or_else(bad)?;
        let id_ok = (1..=KEY_ID_LEN_MAX).contains(&id.len())
            && id
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let secret = BASE64.decode(secret).ok().and_then(|s| s.try_into().ok());
        let (true, Some(secret)) = (id_ok, secret) else {
            return Err(bad());
        };
        if keys.iter().any(|k| &*k.id == id) {
            return Err(KeyError::Twice(id.to_owned()));
        }
        keys.push(Key {
            id: id.into(),
            secret,
        });
    }
    if keys.is_empty() {
        Err(KeyError::Empty)
    } else {
        Ok(keys)
    }
}

/// The keys of the fleet, newest first. Edges and the control server hold them; a pod never does.
#[derive(Debug, Clone)]
pub struct FleetKeys(Vec<Key>);

impl FleetKeys {
    /// Reads the text of a key file.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        parse(text).map(Self)
    }

    /// A new file with one random key.
    pub fn generate(id: &str) -> Result<Self, KeyError> {
        let secret: [u8; KEY_LEN] = rand::random();
        Self::parse(&format!("{id}:{}", BASE64.encode(secret)))
    }

    /// The text of the key file.
    pub fn to_text(&self) -> String {
        self.0.iter().map(Key::line).collect()
    }

    /// The keys of one pod: HKDF-SHA256 of each fleet key and the pod id, under the same key id.
    pub fn pod(&self, pod: PodId) -> PodKeys {
        let id = pod.get().to_be_bytes();
        PodKeys(
            self.0
                .iter()
                .map(|k| k.derive(&[b"podhost pod v1", &id]))
                .collect(),
        )
    }

    /// Signs what the edge itself gives to clients and reads back (the shop cookie): `<key id>.<mac>`.
    pub fn seal(&self, purpose: &str, parts: &[&[u8]]) -> String {
        seal(&self.0, purpose, parts)
    }

    /// Whether [`Self::seal`] made this for these parts, under any key that is still in the file.
    pub fn opens(&self, purpose: &str, parts: &[&[u8]], sealed: &str) -> bool {
        opens(&self.0, purpose, parts, sealed)
    }
}

/// The keys of one pod, newest first.
#[derive(Debug, Clone)]
pub struct PodKeys(Vec<Key>);

impl PodKeys {
    /// Reads the text of a key file.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        parse(text).map(Self)
    }

    /// The text of the key file.
    pub fn to_text(&self) -> String {
        self.0.iter().map(Key::line).collect()
    }

    /// Signs what pods give to clients and read back (order access, cursors): `<key id>.<mac>`.
    pub fn seal(&self, purpose: &str, parts: &[&[u8]]) -> String {
        seal(&self.0, purpose, parts)
    }

    /// Whether [`Self::seal`] made this for these parts.
    pub fn opens(&self, purpose: &str, parts: &[&[u8]], sealed: &str) -> bool {
        opens(&self.0, purpose, parts, sealed)
    }

    pub(crate) fn sign(&self, parts: &[&[u8]]) -> (&str, String) {
        // `parse` and `pod` leave no empty list.
        let key = &self.0[0];
        (
            &key.id,
            BASE64.encode(key.mac(parts).finalize().into_bytes()),
        )
    }

    pub(crate) fn verify(&self, id: &str, parts: &[&[u8]], mac: &str) -> bool {
        let key = self.0.iter().find(|k| &*k.id == id);
        let mac = BASE64.decode(mac);
        matches!((key, mac), (Some(key), Ok(mac)) if key.mac(parts).verify_slice(&mac).is_ok())
    }
}

fn seal(keys: &[Key], purpose: &str, parts: &[&[u8]]) -> String {
    let key = keys[0].derive(&[b"podhost seal v1 ", purpose.as_bytes()]);
    format!(
        "{}.{}",
        key.id,
        BASE64.encode(key.mac(parts).finalize().into_bytes())
    )
}

fn opens(keys: &[Key], purpose: &str, parts: &[&[u8]], sealed: &str) -> bool {
    let Some((id, mac)) = sealed.split_once('.') else {
        return false;
    };
    let Some(key) = keys.iter().find(|k| &*k.id == id) else {
        return false;
    };
    let key = key.derive(&[b"podhost seal v1 ", purpose.as_bytes()]);
    BASE64
        .decode(mac)
        .is_ok_and(|mac| key.mac(parts).verify_slice(&mac).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_back_and_faults_named() {
        let keys = FleetKeys::generate("k1").unwrap();
        assert_eq!(
            FleetKeys::parse(&keys.to_text()).unwrap().to_text(),
            keys.to_text()
        );
        assert_eq!(
            FleetKeys::parse("# nothing\n").unwrap_err(),
            KeyError::Empty
        );
        assert_eq!(FleetKeys::parse("k1:short").unwrap_err(), KeyError::Line(1));
        let twice = keys.to_text() + &keys.to_text();
        assert_eq!(
            FleetKeys::parse(&twice).unwrap_err(),
            KeyError::Twice("k1".into())
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let keys = FleetKeys::generate("k1").unwrap();
        let secret = keys.to_text();
        let secret = secret.trim().strip_prefix("k1:").unwrap();
        assert!(!format!("{keys:?}").contains(secret));
    }

    #[test]
    fn a_rotated_key_still_opens_and_a_removed_one_does_not() {
        let old = FleetKeys::generate("k1").unwrap();
        let new = FleetKeys::generate("k2").unwrap();
        let both = FleetKeys::parse(&(new.to_text() + &old.to_text())).unwrap();
        let sealed = old.seal("test", &[b"a", b"b"]);
        assert!(both.opens("test", &[b"a", b"b"], &sealed));
        assert!(
            !both.opens("test", &[b"ab", b""], &sealed),
            "parts are told apart"
        );
        assert!(
            !both.opens("other", &[b"a", b"b"], &sealed),
            "purposes are told apart"
        );
        assert!(!new.opens("test", &[b"a", b"b"], &sealed));
        assert!(both.seal("test", &[b"a"]).starts_with("k2."));
    }
}
