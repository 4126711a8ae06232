//! The monitor: asks each server how it is, by the account that may.

use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{ConnectOptions as _, Executor as _, Row as _};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::{PrimaryAnswer, ReplicaServer, Servers, Standing};
use crate::db::GtidSet;
use crate::db::options;

impl Servers {
    /// Asks all servers, each in its own rhythm, until the token is cancelled.
    pub(crate) async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let replicas = self.replicas.iter().map(|r| self.watch_replica(r));
        let all = futures::future::join(self.watch_primary(), futures::future::join_all(replicas));
        stop.run_until_cancelled(all).await;
    }

    async fn watch_primary(&self) {
        let mut conn = None;
        let mut ticks = ticks(self.reads.poll);
        loop {
            ticks.tick().await;
            // The instant before the question: what the set holds was executed by then.
            let at = Instant::now();
            let answer = self
                .ask(&self.primary_at, &mut conn, PRIMARY)
                .await
                .and_then(|row| {
                    Some(PrimaryAnswer {
                        open: row.try_get::<i64, _>("closed").ok()? == 0,
                        server_uuid: text(&row, "server_uuid")?,
                        executed: GtidSet::parse(&text(&row, "executed")?).ok()?,
                    })
                });
            self.note_primary(at, answer);
        }
    }

    async fn watch_replica(&self, replica: &ReplicaServer) {
        let mut conn = None;
        let mut ticks = ticks(self.reads.poll);
        loop {
            ticks.tick().await;
            let standing = self.ask_replica(replica, &mut conn).await;
            self.note_replica(replica, standing);
        }
    }

    async fn ask_replica(
        &self,
        replica: &ReplicaServer,
        conn: &mut Option<MySqlConnection>,
    ) -> Standing {
        let at = Instant::now();
        let Some(row) = self.ask(&replica.at, conn, "show replica status").await else {
            return Standing::out("it cannot be asked, or follows nobody");
        };
        let runs = |name| text(&row, name).is_some_and(|t| t == "Yes");
        let source = text(&row, "Source_UUID");
        let executed = text(&row, "Executed_Gtid_Set").and_then(|t| GtidSet::parse(&t).ok());
        let fault = if !runs("Replica_SQL_Running") {
            "its applier is stopped"
        } else if text(&row, "Replica_IO_Running").is_none_or(|t| t == "No") {
            "its receiver is stopped"
        } else if self
            .source_uuid()
            .is_some_and(|uuid| source.as_ref() != Some(&uuid))
        {
            "it follows another source"
        } else if executed.is_none() {
            "its executed set cannot be read"
        } else {
            ""
        };
        Standing {
            at,
            executed: executed.unwrap_or_default(),
            fault,
            cut_off: !runs("Replica_IO_Running"),
        }
    }

    /// One question with a deadline. A connection that failed is opened anew at the next tick.
    async fn ask(
        &self,
        at: &shared::config::Endpoint,
        conn: &mut Option<MySqlConnection>,
        sql: &'static str,
    ) -> Option<MySqlRow> {
        let question = async {
            let mut raw = match conn.take() {
                Some(raw) => raw,
                None => {
                    let mysql = &self.mysql;
                    let options = options(
                        mysql,
                        at,
                        &mysql.monitor_user,
                        mysql.monitor_password.expose(),
                    );
                    // No database: the account has rights on none.
                    options
                        .database("")
                        .disable_statement_logging()
                        .connect()
                        .await?
                }
            };
            let rows = raw.fetch_all(sqlx::raw_sql(sql)).await?;
            *conn = Some(raw);
            Ok::<_, sqlx::Error>(rows)
        };
        match timeout(self.connect, question).await {
            Ok(Ok(rows)) => rows.into_iter().next(),
            Ok(Err(error)) => {
                tracing::debug!(server = %at, %error, "the monitor's question failed");
                None
            }
            Err(_) => None,
        }
    }
}

const PRIMARY: &str = "select @@global.read_only or @@global.super_read_only as closed, @@server_uuid as server_uuid, \
     @@global.gtid_executed as executed";

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// A text column; SHOW gives some of them as binary.
fn text(row: &MySqlRow, name: &str) -> Option<String> {
    row.try_get::<String, _>(name)
        .ok()
        .or_else(|| String::from_utf8(row.try_get::<Vec<u8>, _>(name).ok()?).ok())
}
