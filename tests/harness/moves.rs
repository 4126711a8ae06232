//! Moves of shops, ordered through `podctl` as an operator does and watched at the control server.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::moves::{MoveId, MoveState};
use shared::{Epoch, ShopId};

use crate::{Answer, Call, Edge, Fleet, Shop, status, wait_until};

// Whether the rows that a move left at its source are those it brought to its target.
mod copies;
pub use copies::{Copies, differences, rows_left, rows_of, rows_rest};
// A writer who goes by the shop's home.
mod writers;
pub use writers::{Written, write_until_fenced};

/// A small shop is moved in a second or two; this is for a machine that builds meanwhile and for a fence that is tried again.
pub const MOVED_MAX: Duration = Duration::from_secs(60);

/// A move as the control server tells it: what tests look at.
#[derive(Debug, Clone, Deserialize)]
pub struct Moving {
    /// Its id.
    pub id: MoveId,
    /// Where it stands.
    pub state: MoveState,
    /// The epoch reserved for the target.
    pub epoch: Epoch,
    /// The shop.
    pub shop: Named,
    /// Where the shop was.
    pub source: Named,
    /// Where it goes.
    pub target: Named,
    /// How often a mover took it up.
    pub owner: u64,
    /// The move that it takes back.
    pub back_of: Option<MoveId>,
    /// What it waits for.
    pub waits: Option<String>,
    /// Why its last try failed.
    pub error: Option<String>,
    /// What it took.
    pub record: Value,
    /// Changes at the source after its fence.
    pub strays: Vec<Value>,
}

/// A shop or a pod by id; the name is for people.
#[derive(Debug, Clone, Deserialize)]
pub struct Named {
    /// The id.
    pub id: u64,
}

impl Moving {
    /// A number of its record.
    pub fn took(&self, what: &str) -> Option<u64> {
        self.record.get(what).and_then(Value::as_u64)
    }

    /// In a few words.
    pub fn words(&self) -> String {
        let Self {
            id,
            state,
            owner,
            source,
            target,
            waits,
            error,
            ..
        } = self;
        format!(
            "move {id} from {} to {} is {} under owner {owner}; waits {waits:?}, error {error:?}",
            source.id,
            target.id,
            state.as_str()
        )
    }
}

/// The operator's door to the control server. It outlives restarts of the server.
#[derive(Debug, Clone)]
pub struct ControlDoor {
    http: Edge,
    token: String,
}

impl ControlDoor {
    /// Of a fleet.
    pub async fn of(fleet: &Fleet) -> Result<Self> {
        let status = fleet.status().await?;
        let control = status.controls.first().context("a control server")?;
        let token_file = Path::new(&control.operator_token_file);
        Self::at(status::address(&control.http)?, token_file)
    }

    /// Of a control server that listens there.
    pub fn at(address: SocketAddr, token_file: &Path) -> Result<Self> {
        Ok(Self {
            http: Edge::new(address)?,
            token: crate::mysql::secret(token_file)?,
        })
    }

    /// A call as the operator.
    pub async fn send(&self, call: Call) -> Result<Answer> {
        self.http.send("control", &call.token(&self.token)).await
    }

    /// A move now.
    pub async fn show(&self, id: MoveId) -> Result<Moving> {
        let answer = self.send(Call::get(format!("/v1/moves/{id}"))).await?;
        answer.wants(200)?.json()
    }

    /// The moves of a shop, open ones first, then the newest.
    pub async fn of_shop(&self, shop: ShopId) -> Result<Vec<Moving>> {
        self.list(&format!("?shop={shop}")).await
    }

    /// The same of all shops, as many as one page has.
    async fn list(&self, which: &str) -> Result<Vec<Moving>> {
        #[derive(Deserialize)]
        struct List {
            moves: Vec<Moving>,
        }
        let answer = self.send(Call::get(format!("/v1/moves{which}"))).await?;
        Ok(answer.wants(200)?.json::<List>()?.moves)
    }

    /// Orders a move; what the answer is.
    pub async fn order(&self, shop: ShopId, to: u32) -> Result<Answer> {
        let body = json!({"shop": shop.to_string(), "to": to.to_string(), "reason": "a test"});
        self.send(Call::post("/v1/moves").json(&body)).await
    }

    /// `pause`, `resume`, `abort` or `finish`; what the answer is.
    pub async fn tell(&self, id: MoveId, order: &str) -> Result<Answer> {
        let call = Call::new(Method::POST, format!("/v1/moves/{id}/{order}"));
        self.send(call.json(&json!({}))).await
    }

    /// Waits until a move is in one of these states. One that ended otherwise is an error at once.
    pub async fn reaches(
        &self,
        id: MoveId,
        states: &[MoveState],
        deadline: Duration,
    ) -> Result<Moving> {
        let what = format!("move {id} is {states:?}");
        let seen = wait_until(&what, deadline, async || {
            let moving = self.show(id).await?;
            let stuck = !moving.state.is_open() || moving.state == MoveState::Failed;
            if states.contains(&moving.state) || stuck {
                return Ok(moving);
            }
            bail!("{}", moving.words())
        });
        let moving = seen.await?;
        ensure!(states.contains(&moving.state), "{}", moving.words());
        Ok(moving)
    }
}

impl Fleet {
    /// `podctl shop move`: the id of the move that was begun.
    pub async fn order_move(&self, shop: &Shop, to: u32) -> Result<MoveId> {
        #[derive(Deserialize)]
        struct Begun {
            id: MoveId,
        }
        let to = to.to_string();
        let args = ["shop", "move", &shop.handle, "--to", &to, "--observe", "1h"];
        Ok(self.podctl.json::<Begun>(&args).await?.id)
    }

    /// Moves a shop and waits until its new pod serves it. The source's copy stays.
    pub async fn move_shop(&self, shop: &Shop, to: u32) -> Result<Moving> {
        let control = ControlDoor::of(self).await?;
        let id = self.order_move(shop, to).await?;
        control
            .reaches(id, &[MoveState::Observing], MOVED_MAX)
            .await
    }

    /// Ends the time of observation, and waits until the source's copy is gone.
    pub async fn finish_move(&self, id: MoveId) -> Result<Moving> {
        let control = ControlDoor::of(self).await?;
        self.podctl.ok(&["move", "finish", &id.to_string()]).await?;
        control.reaches(id, &[MoveState::Done], MOVED_MAX).await
    }

    /// Ends what a test's moves left to be observed. A later test's tables would be strays of theirs.
    pub(crate) async fn finish_moves(&self) -> Result<()> {
        let control = ControlDoor::of(self).await?;
        let observed = control.list("").await?;
        for moving in observed {
            let seen = moving.state == MoveState::Observing;
            // One with strays waits for a word that nobody here can give.
            if seen && control.tell(moving.id, "finish").await?.status == 200 {
                let ends = [MoveState::Done];
                control.reaches(moving.id, &ends, MOVED_MAX).await?;
            }
        }
        Ok(())
    }

    /// Runs statements at the primaries of pods 1 and 2: tests make tables of their own by it.
    pub async fn on_both(&self, sql: &str) -> Result<()> {
        for pod in [1, 2] {
            self.primary(pod).await?.run(sql).await?;
        }
        Ok(())
    }

    /// A shop of pod 1 with rows, which are made by statements in which it is called `{shop}`.
    pub async fn shop_with_rows(&self, rows: &str) -> Result<Shop> {
        let shop = self.shop(1).await?;
        let rows = rows.replace("{shop}", &shop.id.to_string());
        self.primary(1).await?.run(&rows).await?;
        Ok(shop)
    }

    /// The pod that owns a shop now, and under which epoch.
    pub async fn owner(&self, shop: &Shop) -> Result<(u32, u64)> {
        let place: Value = self.podctl.json(&["shop", "where", &shop.handle]).await?;
        let pod = place["pod"]["id"].as_u64().context("a pod")?;
        let epoch = place["epoch"].as_u64().context("an epoch")?;
        Ok((u32::try_from(pod)?, epoch))
    }
}
