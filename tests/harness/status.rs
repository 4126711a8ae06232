//! What `podctl status --json` says: the part of it that scripts may lean on, nothing more.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use redis::Client;
use redis::aio::MultiplexedConnection;
use serde::Deserialize;

/// The whole answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Status {
    /// What comes after a shop's handle in its first host.
    pub base_domain: String,
    /// The edges.
    pub edges: Vec<Edge>,
    /// The control servers.
    pub controls: Vec<Control>,
    /// The pods.
    pub pods: Vec<Pod>,
    /// The shops.
    pub shops: Vec<Shop>,
}

/// An edge.
#[derive(Debug, Clone, Deserialize)]
pub struct Edge {
    /// URL for buyers.
    pub http: String,
    /// URL of health and metrics.
    pub admin: String,
    /// Its process.
    pub pid: Option<u32>,
}

/// A control server.
#[derive(Debug, Clone, Deserialize)]
pub struct Control {
    /// URL.
    pub http: String,
    /// Its process.
    pub pid: Option<u32>,
    /// File with the operator's token.
    pub operator_token_file: String,
}

/// A pod.
#[derive(Debug, Clone, Deserialize)]
pub struct Pod {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// `active`, `draining` or `offline`.
    pub status: String,
    /// URL of its first process.
    pub http: String,
    /// Its processes.
    pub processes: Vec<PodProcess>,
    /// Its databases.
    pub mysql: Mysql,
    /// Its cache.
    pub redis: Redis,
}

/// A process of a pod.
#[derive(Debug, Clone, Deserialize)]
pub struct PodProcess {
    /// URL for the edge.
    pub http: String,
    /// URL of health and metrics.
    pub admin: String,
    /// Its process.
    pub pid: Option<u32>,
}

/// The databases of a pod.
#[derive(Debug, Clone, Deserialize)]
pub struct Mysql {
    /// The operator's account.
    pub user: String,
    /// File with its password.
    pub password_file: String,
    /// The database.
    pub database: String,
    /// The server that takes writes.
    pub primary: MysqlServer,
    /// The others.
    pub replicas: Vec<MysqlServer>,
}

/// A server of a pod.
#[derive(Debug, Clone, Deserialize)]
pub struct MysqlServer {
    /// Host.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Unix socket.
    pub socket: Option<String>,
    /// Its process.
    pub pid: Option<u32>,
}

/// The cache of a pod.
#[derive(Debug, Clone, Deserialize)]
pub struct Redis {
    /// URL.
    pub url: String,
    /// Its process.
    pub pid: Option<u32>,
}

/// A shop.
#[derive(Debug, Clone, Deserialize)]
pub struct Shop {
    /// Its id.
    pub id: u64,
    /// Its handle.
    pub handle: String,
    /// Every name that reaches it, `<handle>.<base_domain>` first.
    pub hosts: Vec<String>,
    /// The pod that owns it.
    pub pod: serde_json::Value,
    /// Under which epoch.
    pub epoch: u64,
    /// `serving`, `frozen` or `offline`.
    pub state: String,
    /// The state of its latest move.
    pub r#move: Option<String>,
}

impl Status {
    /// A pod by id.
    pub fn pod(&self, id: u32) -> Result<&Pod> {
        self.pods
            .iter()
            .find(|p| p.id == id)
            .with_context(|| format!("the status has no pod {id}"))
    }

    /// A shop by handle.
    pub fn shop(&self, handle: &str) -> Result<&Shop> {
        let found = self.shops.iter().find(|s| s.handle == handle);
        found.with_context(|| format!("the status has no shop {handle}"))
    }
}

impl Redis {
    /// A connection.
    pub async fn connect(&self) -> Result<MultiplexedConnection> {
        let client = Client::open(self.url.as_str()).context("the URL of a Redis")?;
        client
            .get_multiplexed_async_connection()
            .await
            .context("connect to Redis")
    }
}

impl Mysql {
    /// All three, the primary first.
    pub fn servers(&self) -> impl Iterator<Item = &MysqlServer> {
        std::iter::once(&self.primary).chain(&self.replicas)
    }
}

/// The address in an URL of the status.
pub fn address(url: &str) -> Result<SocketAddr> {
    let rest = url
        .strip_prefix("http://")
        .unwrap_or(url)
        .trim_end_matches('/');
    rest.parse()
        .with_context(|| format!("{url} is no http://address:port"))
}
