//! Work of several steps, kept so that it is finished or undone after a crash; and the audit of single steps.

use shared::{PodId, ShopId};
use sqlx::SqliteConnection;
use uuid::Uuid;

use super::{Catalog, CatalogError, Change, instant, signed, word};
use crate::api::{Operation, OperationChange, OperationNew, OperationState};

/// The kinds that the control server runs itself: nobody else may write their records.
pub(crate) const OWN_KINDS: [&str; 2] = [super::create::KIND, super::states::KIND];

/// A change of a pod's schema: it and the moves from and to that pod exclude each other. Its subject is the pod.
pub(crate) const MIGRATE_KIND: &str = "migrate";

#[derive(Debug, sqlx::FromRow)]
pub(super) struct OperationRow {
    pub(super) id: String,
    pub(super) kind: String,
    subject: String,
    state: String,
    pub(super) step: Option<String>,
    pub(super) detail: String,
    pub(super) error: Option<String>,
    pub(super) actor: String,
    pub(super) created_ms: i64,
    changed_ms: i64,
    pub(super) shop: Option<i64>,
    pub(super) pod: Option<i64>,
}

macro_rules! select_operation {
    ($tail:literal) => {
        concat!(
            "select id, kind, subject, state, step, detail, error, actor, created_ms, changed_ms, shop, pod \
             from operation ",
            $tail
        )
    };
}

impl OperationRow {
    pub(super) fn state(&self) -> Result<OperationState, CatalogError> {
        word(OperationState::parse(&self.state), &self.state)
    }

    fn into_api(self) -> Result<Operation, CatalogError> {
        let Self {
            id,
            kind,
            subject,
            state,
            step,
            detail,
            error,
            actor,
            created_ms,
            changed_ms,
            shop: _,
            pod: _,
        } = self;
        Ok(Operation {
            id,
            kind,
            subject,
            state: word(OperationState::parse(&state), &state)?,
            step,
            detail: serde_json::from_str(&detail)
                .map_err(|_| CatalogError::Corrupt("the detail of an operation".into()))?,
            error,
            actor,
            created_at: instant(created_ms)?,
            changed_at: instant(changed_ms)?,
        })
    }
}

/// What an operation is when it begins.
pub(super) struct Begin<'a> {
    pub(super) id: &'a str,
    pub(super) kind: &'a str,
    pub(super) subject: &'a str,
    pub(super) state: OperationState,
    pub(super) step: Option<&'a str>,
    pub(super) detail: &'a str,
    pub(super) shop: Option<ShopId>,
    pub(super) pod: Option<PodId>,
}

impl Change<'_> {
    /// Audits a change that is whole with this transaction.
    pub(super) async fn note(
        &mut self,
        kind: &str,
        subject: &str,
        pod: Option<PodId>,
        text: &str,
    ) -> Result<(), CatalogError> {
        let id = Uuid::now_v7().to_string();
        let detail = serde_json::Value::from(text).to_string();
        let state = OperationState::Done;
        self.begin_operation(Begin {
            id: &id,
            kind,
            subject,
            state,
            step: None,
            detail: &detail,
            shop: None,
            pod,
        })
        .await
    }

    pub(super) async fn begin_operation(&mut self, begin: Begin<'_>) -> Result<(), CatalogError> {
        let Begin {
            id,
            kind,
            subject,
            state,
            step,
            detail,
            shop,
            pod,
        } = begin;
        sqlx::query(
            "insert into operation (id, kind, subject, state, step, detail, error, actor, shop, pod, created_ms, \
             changed_ms) values ($1, $2, $3, $4, $5, $6, null, $7, $8, $9, $10, $10)",
        )
        .bind(id)
        .bind(kind)
        .bind(subject)
        .bind(state.as_str())
        .bind(step)
        .bind(detail)
        .bind(self.actor.clone())
        .bind(shop.map(|s| signed(s.get())))
        .bind(pod.map(|p| i64::from(p.get())))
        .bind(self.at_ms)
        .execute(self.conn())
        .await?;
        Ok(())
    }

    /// Moves an operation that is running; anything else is stale.
    pub(super) async fn advance(
        &mut self,
        id: &str,
        state: OperationState,
        step: &str,
        error: Option<&str>,
    ) -> Result<(), CatalogError> {
        let at_ms = self.at_ms;
        let moved = sqlx::query(
            "update operation set state = $1, step = $2, error = $3, changed_ms = $4 \
             where id = $5 and state = 'running'",
        )
        .bind(state.as_str())
        .bind(step)
        .bind(error)
        .bind(at_ms)
        .bind(id)
        .execute(self.conn())
        .await?
        .rows_affected();
        if moved == 1 {
            Ok(())
        } else {
            Err(CatalogError::Stale(format!("operation {id}")))
        }
    }
}

impl Catalog {
    /// Unfinished operations first, then the newest.
    pub async fn operations(&self, limit: u32) -> Result<Vec<Operation>, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let rows: Vec<OperationRow> = sqlx::query_as(select_operation!(
            "order by case state when 'running' then 0 else 1 end, created_ms desc, id desc limit $1"
        ))
        .bind(i64::from(limit))
        .fetch_all(&mut *conn)
        .await?;
        rows.into_iter().map(OperationRow::into_api).collect()
    }

    /// One operation.
    pub async fn operation(&self, id: &str) -> Result<Operation, CatalogError> {
        let mut conn = self.read.acquire().await?;
        find(&mut conn, id).await?.into_api()
    }

    /// How many are running.
    pub async fn open_operations(&self) -> Result<u64, CatalogError> {
        let mut conn = self.read.acquire().await?;
        let count: i64 =
            sqlx::query_scalar("select count(*) from operation where state = 'running'")
                .fetch_one(&mut *conn)
                .await?;
        super::unsigned(count)
    }

    /// Records an operation that somebody else runs (apply). The same id again is the same operation.
    pub async fn put_operation(
        &self,
        actor: &str,
        new: &OperationNew,
    ) -> Result<Operation, CatalogError> {
        let OperationNew {
            id,
            kind,
            subject,
            detail,
        } = new;
        let mut change = self.change(actor).await?;
        match find(change.conn(), id).await {
            Ok(row) if row.kind == *kind && row.subject == *subject => return row.into_api(),
            Ok(_) => {
                return Err(CatalogError::Conflict(format!(
                    "operation {id} is another one"
                )));
            }
            Err(CatalogError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        if kind == MIGRATE_KIND {
            super::moves::refuse_migration_beside(&mut change, subject).await?;
        }
        let detail = detail.to_string();
        let state = OperationState::Running;
        let begin = Begin {
            id,
            kind,
            subject,
            state,
            step: None,
            detail: &detail,
            shop: None,
            pod: None,
        };
        change.begin_operation(begin).await?;
        let row = find(change.conn(), id).await?;
        change.commit().await?;
        row.into_api()
    }

    /// Says how far such an operation is. One that is done stays done; one that failed may be taken up again.
    pub async fn change_operation(
        &self,
        actor: &str,
        id: &str,
        to: &OperationChange,
    ) -> Result<Operation, CatalogError> {
        let mut change = self.change(actor).await?;
        let row = find(change.conn(), id).await?;
        if OWN_KINDS.contains(&row.kind.as_str()) {
            return Err(CatalogError::Conflict(format!(
                "operation {id} ({}) is run by the control server itself",
                row.kind
            )));
        }
        let old = row.into_api()?;
        let OperationChange {
            state,
            step,
            detail,
            error,
        } = to;
        if old.state == OperationState::Done && state.is_some_and(|s| s != OperationState::Done) {
            return Err(CatalogError::Conflict(format!("operation {id} is done")));
        }
        let at_ms = change.at_ms;
        sqlx::query(
            "update operation set state = $1, step = $2, detail = $3, error = $4, changed_ms = $5 where id = $6",
        )
        .bind(state.unwrap_or(old.state).as_str())
        .bind(step.as_ref().or(old.step.as_ref()))
        .bind(detail.as_ref().unwrap_or(&old.detail).to_string())
        .bind(error.as_ref().or(old.error.as_ref()))
        .bind(at_ms)
        .bind(id)
        .execute(change.conn())
        .await?;
        let row = find(change.conn(), id).await?;
        change.commit().await?;
        row.into_api()
    }
}

pub(super) async fn find(
    conn: &mut SqliteConnection,
    id: &str,
) -> Result<OperationRow, CatalogError> {
    sqlx::query_as(select_operation!("where id = $1"))
        .bind(id)
        .fetch_optional(conn)
        .await?
        .ok_or_else(|| CatalogError::not_found("operation", &id))
}

/// The running operations of one of our own kinds, oldest first.
pub(super) async fn running(
    conn: &mut SqliteConnection,
    kind: &str,
) -> Result<Vec<OperationRow>, CatalogError> {
    let rows = sqlx::query_as(select_operation!(
        "where state = 'running' and kind = $1 order by created_ms, id"
    ))
    .bind(kind)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}
