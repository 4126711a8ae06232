//! Moves and pins. A move is named by its id, the beginning of it, or its shop.

use std::time::Duration;

use reqwest::Method;

use super::{Control, Error, Path};
use crate::api::{
    Move, MoveCheck, MoveEvents, MoveFinish, MoveList, MoveNew, MoveQuery, Pin, PinPut, ShopClear,
};

impl Control {
    /// Moves, open ones first.
    pub async fn moves(&self, query: &MoveQuery) -> Result<Vec<Move>, Error> {
        let MoveQuery {
            shop,
            pod,
            open,
            limit,
        } = query;
        let path = Path::of(&["moves"])
            .query("shop", shop.clone())
            .query("pod", pod.clone())
            .query("open", open.map(|it| it.to_string()))
            .query("limit", limit.map(|it| it.to_string()));
        let list: MoveList = self.get(&path).await?;
        Ok(list.moves)
    }

    /// One move.
    pub async fn move_show(&self, reference: &str) -> Result<Move, Error> {
        self.get(&Path::of(&["moves", reference])).await
    }

    /// Orders a move.
    pub async fn move_begin(&self, new: &MoveNew) -> Result<Move, Error> {
        self.send(Method::POST, &Path::of(&["moves"]), new).await
    }

    /// Orders that a shop's rows at a pod that does not own it are dumped and deleted.
    pub async fn shop_clear(&self, reference: &str, wish: &ShopClear) -> Result<Move, Error> {
        self.send(
            Method::POST,
            &Path::of(&["shops", reference, "clear"]),
            wish,
        )
        .await
    }

    /// What a move would do.
    pub async fn move_check(&self, new: &MoveNew) -> Result<MoveCheck, Error> {
        self.send(Method::POST, &Path::of(&["moves", "check"]), new)
            .await
    }

    /// `pause`, `resume` or `abort`.
    pub async fn move_order(&self, reference: &str, order: &str) -> Result<Move, Error> {
        let path = Path::of(&["moves", reference, order]);
        self.send(Method::POST, &path, &serde_json::json!({})).await
    }

    /// Ends the time of observation.
    pub async fn move_finish(&self, reference: &str, wish: &MoveFinish) -> Result<Move, Error> {
        self.send(
            Method::POST,
            &Path::of(&["moves", reference, "finish"]),
            wish,
        )
        .await
    }

    /// What happened after a sequence, and the move as it stands; waits so long for something to happen.
    pub async fn move_events(
        &self,
        reference: &str,
        after: u64,
        wait: Duration,
    ) -> Result<MoveEvents, Error> {
        let path = Path::of(&["moves", reference, "events"])
            .query("after", Some(after.to_string()))
            .query("wait_ms", Some(wait.as_millis().to_string()));
        self.get(&path).await
    }

    /// The last so many events, and how many came before.
    pub async fn last_move_events(&self, reference: &str, last: u32) -> Result<MoveEvents, Error> {
        let path = Path::of(&["moves", reference, "events"]).query("last", Some(last.to_string()));
        self.get(&path).await
    }

    /// Pins a shop to a pod.
    pub async fn shop_pin(&self, reference: &str, pin: &PinPut) -> Result<Pin, Error> {
        self.send(Method::PUT, &Path::of(&["shops", reference, "pin"]), pin)
            .await
    }

    /// Takes the pin away.
    pub async fn shop_unpin(&self, reference: &str) -> Result<(), Error> {
        self.order(Method::DELETE, &Path::of(&["shops", reference, "pin"]))
            .await
    }
}
