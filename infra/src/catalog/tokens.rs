//! Who may ask the control server for what. Only the SHA-256 of a token is kept.

use shared::PodId;

use super::{Catalog, CatalogError, pod_id, word};

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Routes.
    Edge,
    /// The topology of its own pod.
    Pod,
    /// Everything.
    Operator,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Edge, Self::Pod, Self::Operator];

    /// The word in SQL and in `control.toml`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Pod => "pod",
            Self::Operator => "operator",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == word)
    }
}

/// A token without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiToken {
    /// Who holds it: the actor in the audit.
    pub name: String,
    /// What it is good for.
    pub role: Role,
    /// The one pod that a token of the role `pod` is good for.
    pub pod: Option<PodId>,
    /// SHA-256 of the text.
    pub hash: [u8; 32],
}

impl Catalog {
    /// Makes the tokens be these and no others.
    pub async fn replace_tokens(&self, tokens: &[ApiToken]) -> Result<(), CatalogError> {
        let mut change = self.change("control").await?;
        sqlx::query("delete from api_token")
            .execute(change.conn())
            .await?;
        let at_ms = change.at_ms;
        for ApiToken {
            name,
            role,
            pod,
            hash,
        } in tokens
        {
            sqlx::query(
                "insert into api_token (name, role, pod, hash, created_ms) values ($1, $2, $3, $4, $5)",
            )
            .bind(name)
            .bind(role.as_str())
            .bind(pod.map(|p| i64::from(p.get())))
            .bind(to_hex(hash))
            .bind(at_ms)
            .execute(change.conn())
            .await?;
        }
        change.commit().await
    }

    /// The tokens that are good.
    pub async fn tokens(&self) -> Result<Vec<ApiToken>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows: Vec<(String, String, Option<i64>, String)> =
            sqlx::query_as("select name, role, pod, hash from api_token order by name")
                .fetch_all(&mut *conn)
                .await?;
        rows.into_iter()
            .map(|(name, role, pod, hash)| {
                Ok(ApiToken {
                    name,
                    role: word(Role::parse(&role), &role)?,
                    pod: pod.map(pod_id).transpose()?,
                    hash: from_hex(&hash)
                        .ok_or_else(|| CatalogError::Corrupt("the hash of a token".into()))?,
                })
            })
            .collect()
    }
}

fn to_hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}
