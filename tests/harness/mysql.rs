//! Sessions on the fleet's MySQL servers, and the rows that tests look at.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shared::home::HomeState;
use shared::{Epoch, PodId, ShopId};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

use crate::status::{Mysql, MysqlServer};

/// A server that listens answers at once, on a machine that lets it; one that is starting is asked again by the test.
const CONNECT_MAX: Duration = Duration::from_secs(15);

/// One MySQL server of a pod, with an account.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its port on the loopback.
    pub port: u16,
    options: MySqlConnectOptions,
}

impl Server {
    /// A server under the operator's account.
    pub fn operator(mysql: &Mysql, server: &MysqlServer) -> Result<Self> {
        let password = secret(Path::new(&mysql.password_file))?;
        Ok(Self::account(
            &server.host,
            server.port,
            &mysql.user,
            &password,
            &mysql.database,
        ))
    }

    /// A server under any account.
    pub fn account(host: &str, port: u16, user: &str, password: &str, database: &str) -> Self {
        let options = MySqlConnectOptions::new()
            .host(host)
            .port(port)
            .username(user)
            .password(password)
            .database(database);
        Self { port, options }
    }

    /// The same account at another port: through a proxy.
    #[must_use]
    pub fn at_port(&self, port: u16) -> Self {
        Self {
            port,
            options: self.options.clone().port(port),
        }
    }

    /// What sqlx connects with, for pools.
    pub fn options(&self) -> MySqlConnectOptions {
        self.options.clone()
    }

    /// A session.
    pub async fn connect(&self) -> Result<MySqlConnection> {
        let connect = MySqlConnection::connect_with(&self.options);
        tokio::time::timeout(CONNECT_MAX, connect)
            .await
            .with_context(|| format!("port {} did not answer", self.port))?
            .with_context(|| format!("connect to port {}", self.port))
    }

    /// A session without a database, to see whether the account is let in at all.
    pub async fn connect_without_database(&self) -> Result<MySqlConnection> {
        Self {
            options: self.options.clone().database(""),
            ..self.clone()
        }
        .connect()
        .await
    }

    /// Statements without an answer, in a session of their own.
    pub async fn run(&self, sql: &str) -> Result<()> {
        let mut session = self.connect().await?;
        session
            .execute(AssertSqlSafe(sql.to_owned()))
            .await
            .with_context(|| sql.to_owned())?;
        Ok(())
    }

    /// One number; NULL is an error.
    pub async fn number(&self, sql: &str) -> Result<i64> {
        let text = self.text(sql).await?;
        text.parse().with_context(|| format!("{sql} gave {text}"))
    }

    /// The first column of the one row, as text.
    pub async fn text(&self, sql: &str) -> Result<String> {
        let mut session = self.connect().await?;
        text(&mut session, sql).await
    }

    /// The first column of all rows, as text.
    pub async fn texts(&self, sql: &str) -> Result<Vec<String>> {
        let mut session = self.connect().await?;
        let rows = session.fetch_all(AssertSqlSafe(sql.to_owned())).await;
        rows.with_context(|| sql.to_owned())?
            .iter()
            .map(first_as_text)
            .collect()
    }

    /// Whether it takes writes.
    pub async fn writable(&self) -> Result<bool> {
        Ok(self
            .number("select @@global.read_only + @@global.super_read_only")
            .await?
            == 0)
    }

    /// Everything it has executed.
    pub async fn gtid_executed(&self) -> Result<String> {
        self.text("select @@global.gtid_executed").await
    }

    /// Takes all binlogs away but the one that is written from now on.
    pub async fn purge_binlogs(&self) -> Result<()> {
        let file = self.new_binlog().await?;
        self.purge_binlogs_to(&file).await
    }

    /// Begins a new binlog; its name.
    pub async fn new_binlog(&self) -> Result<String> {
        self.run("flush binary logs").await?;
        self.text("show binary log status").await
    }

    /// Takes all binlogs away that are older than this one.
    pub async fn purge_binlogs_to(&self, file: &str) -> Result<()> {
        self.run(&format!("purge binary logs to '{file}'")).await
    }

    /// A shop's home: state and epoch.
    pub async fn home(&self, shop: ShopId) -> Result<(String, u64)> {
        let home = self.home_if_any(shop).await?;
        home.with_context(|| format!("shop {shop} has no home there"))
    }

    /// The same where there may be none.
    pub async fn home_if_any(&self, shop: ShopId) -> Result<Option<(String, u64)>> {
        let sql = format!("select concat(state, ' ', epoch) from shop_home where shop_id = {shop}");
        let rows = self.texts(&sql).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let (state, epoch) = row.split_once(' ').context("a home row")?;
        let epoch = epoch.parse().context("a home's epoch")?;
        Ok(Some((state.to_owned(), epoch)))
    }

    /// Writes a shop's home by hand, as an operator at a prompt would.
    pub async fn set_home(
        &self,
        shop: ShopId,
        state: HomeState,
        epoch: Epoch,
        mark: Option<(PodId, Epoch)>,
    ) -> Result<()> {
        let mark = mark.map_or("null, mark_epoch = null".to_owned(), |(pod, epoch)| {
            format!("{pod}, mark_epoch = {}", epoch.get())
        });
        let (state, epoch) = (state.as_str(), epoch.get());
        self.run(&format!(
            "update shop_home set state = '{state}', epoch = {epoch}, mark_pod = {mark} where shop_id = {shop}"
        ))
        .await
    }

    /// How many rows of a shop a table has.
    pub async fn rows(&self, table: &str, shop: ShopId) -> Result<i64> {
        self.number(&format!(
            "select count(*) from `{table}` where shop_id = {shop}"
        ))
        .await
    }
}

/// A session that holds a lock on a shop's home until it is dropped.
#[derive(Debug)]
pub struct HomeLock {
    session: MySqlConnection,
    shop: ShopId,
}

impl HomeLock {
    /// As a mover that is changing the row.
    pub async fn exclusive(server: &Server, shop: ShopId) -> Result<Self> {
        Self::take(server, shop, "for update").await
    }

    /// As a pod's write that has not ended.
    pub async fn shared(server: &Server, shop: ShopId) -> Result<Self> {
        Self::take(server, shop, "for share").await
    }

    /// Gives the lock back.
    pub async fn release(mut self) -> Result<()> {
        self.session
            .execute("rollback")
            .await
            .context("release the home")?;
        Ok(())
    }

    async fn take(server: &Server, shop: ShopId, how: &str) -> Result<Self> {
        let mut session = server.connect().await?;
        // Longer than the server's own bound, as a mover that means it.
        let patience = "set session innodb_lock_wait_timeout = 10";
        session.execute(patience).await.context("lock a home")?;
        session.execute("begin").await.context("lock a home")?;
        let sql = format!("select state from shop_home where shop_id = {shop} {how}");
        text(&mut session, &sql).await?;
        Ok(Self { session, shop })
    }

    /// A second session that waits for the row behind this lock, as a mover's fence waits for writes in flight. The
    /// task ends when it got the row, which it then leaves as it was.
    pub async fn queue_behind(
        &self,
        server: &Server,
    ) -> Result<tokio::task::JoinHandle<Result<()>>> {
        let mut waiter = server.connect().await?;
        let id = text(&mut waiter, "select connection_id()").await?;
        let shop = self.shop;
        let task = tokio::spawn(async move {
            waiter.execute("begin").await.context("queue for a home")?;
            text(
                &mut waiter,
                &format!("select state from shop_home where shop_id = {shop} for update"),
            )
            .await?;
            waiter.execute("rollback").await.context("leave the home")?;
            Ok(())
        });
        let sql = format!(
            "select count(*) from performance_schema.data_lock_waits w join performance_schema.threads t \
             on t.thread_id = w.requesting_thread_id where t.processlist_id = {id}"
        );
        crate::wait_until("a session waits for the home", CONNECT_MAX, async || {
            ensure!(server.number(&sql).await? > 0, "it does not wait yet");
            Ok(())
        })
        .await?;
        Ok(task)
    }
}

/// The first column of the one row of a statement, as text.
pub async fn text(session: &mut MySqlConnection, sql: &str) -> Result<String> {
    let row = session.fetch_one(AssertSqlSafe(sql.to_owned())).await;
    first_as_text(&row.with_context(|| sql.to_owned())?)
}

/// A secret from its file.
pub fn secret(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// The text protocol brings every value as text, but the type check refuses to read a number as such.
fn first_as_text(row: &sqlx::mysql::MySqlRow) -> Result<String> {
    let bytes: Vec<u8> = row.try_get_unchecked(0).context("read the first column")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
