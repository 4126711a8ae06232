//! Merchant tokens: rows of the shop at its pod, so that they move with it. Only the SHA-256 is stored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use sha2::{Digest, Sha256};
use shared::{Epoch, ShopId};
use time::OffsetDateTime;
use tokio::time::timeout_at;
use uuid::Uuid;

use super::{PodStoreError, Session};
use crate::api::{Token, TokenMade};

/// How a merchant token begins, so that one that leaked into a text can be recognised.
const PREFIX: &str = "pht_";
/// Tokens of one shop, the revoked ones too: a list of them fits one answer.
const TOKENS_MAX: u32 = 200;

impl Session {
    /// Makes a token. Its text is in the answer and nowhere else.
    pub async fn create_token(
        &mut self,
        shop: ShopId,
        epoch: Epoch,
        label: &str,
    ) -> Result<TokenMade, PodStoreError> {
        let secret: [u8; 32] = rand::random();
        let token = format!("{PREFIX}{}", BASE64.encode(secret));
        let id = Uuid::now_v7().to_string();
        self.begin().await?;
        self.share_home(shop, epoch).await?;
        let count = sqlx::query_scalar("select count(*) from merchant_token where shop_id = ?")
            .bind(shop.get());
        let answer = timeout_at(self.deadline, count.fetch_one(&mut self.conn)).await;
        let count: i64 = self.settle(answer)?;
        if count >= i64::from(TOKENS_MAX) {
            return Err(PodStoreError::Home(format!(
                "shop {shop} has {TOKENS_MAX} tokens, the most a shop may have"
            )));
        }
        let insert = sqlx::query(
            "insert into merchant_token (shop_id, token_id, token_hash, label) values (?, ?, ?, ?)",
        )
        .bind(shop.get())
        .bind(&id)
        .bind(Sha256::digest(token.as_bytes()).to_vec())
        .bind(label);
        self.run(insert).await?;
        self.commit().await?;
        Ok(TokenMade { id, token })
    }

    /// The tokens of a shop, newest first.
    pub async fn tokens(&mut self, shop: ShopId) -> Result<Vec<Token>, PodStoreError> {
        let query = sqlx::query_as(
            "select token_id, label, created_at, revoked_at from merchant_token where shop_id = ? \
             order by created_at desc, token_id desc limit ?",
        )
        .bind(shop.get())
        .bind(TOKENS_MAX);
        let answer = timeout_at(self.deadline, query.fetch_all(&mut self.conn)).await;
        let rows: Vec<(String, String, OffsetDateTime, Option<OffsetDateTime>)> =
            self.settle(answer)?;
        Ok(rows
            .into_iter()
            .map(|(id, label, created_at, revoked_at)| Token {
                id,
                label,
                created_at,
                revoked_at,
            })
            .collect())
    }

    /// Makes a token worthless; says whether there was one. One that is revoked stays as it is.
    pub async fn revoke_token(
        &mut self,
        shop: ShopId,
        epoch: Epoch,
        id: &str,
    ) -> Result<bool, PodStoreError> {
        self.begin().await?;
        self.share_home(shop, epoch).await?;
        let update = sqlx::query(
            "update merchant_token set revoked_at = coalesce(revoked_at, current_timestamp(3)) \
             where shop_id = ? and token_id = ?",
        )
        .bind(shop.get())
        .bind(id);
        let found = self.run(update).await?;
        self.commit().await?;
        Ok(found > 0)
    }
}
