//! The route table as the control server sends it: one JSON object a line, and the answer of the change feed.
//!
//! Unknown fields of an object are passed over, so that an older edge understands a newer control server; an unknown
//! kind of line or change is a fault, since leaving it out would make a wrong table.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::fault::{Fault, Faults};
use super::{Builder, RouteTable};
use crate::{Epoch, Handle, Host, PlacementState, PodId, ShopId};

/// A line of the table or one change. The longest real one is a shop with [`super::HOSTS_PER_SHOP_MAX`] hosts of
/// full length; more than that is not a route.
pub const LINE_LEN_MAX: usize = 512 * 1024;

/// The media type of the full table.
pub const NDJSON: &str = "application/x-ndjson";

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Another incarnation is another history of the catalog: versions of two cannot be compared.
    pub incarnation: u64,
    /// The version of the catalog that the table shows.
    pub version: u64,
    /// Shops answer at `<handle>.<base_domain>`.
    pub base_domain: Host,
    /// Shops answer at `<platform_domain>/s/<handle>/`.
    pub platform_domain: Host,
}

/// Every line after the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A pod; pods come before the shops that they own.
    Pod(Pod),
    /// A shop.
    Shop(Shop),
    /// The last line: a table without it was cut off on the way.
    End(Counts),
}

/// Where a pod is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its id.
    pub id: PodId,
    /// Its name.
    pub name: String,
    /// Whether it takes new shops, or serves at all.
    pub status: PodStatus,
    /// Its processes. Addresses, not names: an edge resolves nothing while a request waits.
    pub http: Vec<SocketAddr>,
}

/// What an operator wants of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodStatus {
    /// Serves and takes new shops.
    Active,
    /// Serves the shops that it has.
    Draining,
    /// Serves nothing.
    Offline,
}

impl PodStatus {
    /// All of them, for tables and help texts.
    pub const ALL: [Self; 3] = [Self::Active, Self::Draining, Self::Offline];

    /// The word in SQL, JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Offline => "offline",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }
}

/// A shop with its names and its placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shop {
    /// The tenant.
    pub id: ShopId,
    /// Its short name.
    pub handle: Handle,
    /// Registered domains; `<handle>.<base_domain>` is implied.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// The pod that owns it.
    pub pod: PodId,
    /// Under which number.
    pub epoch: Epoch,
    /// What an operator allows.
    pub state: PlacementState,
}

/// How many lines of each kind the table has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Lines with a pod.
    pub pods: u64,
    /// Lines with a shop.
    pub shops: u64,
}

/// The answer of the change feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// As in [`Header`].
    pub incarnation: u64,
    /// The version after all these changes.
    pub version: u64,
    /// In the order of their versions.
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its number in the catalog.
    pub version: u64,
    /// What is so from then on.
    #[serde(flatten)]
    pub now: Now,
}

/// What is so after a change: whole things, so that applying one twice does no harm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Now {
    /// This shop, whole.
    Shop(Shop),
    /// This pod, whole.
    Pod(Pod),
    /// No such shop any more.
    ShopRemoved(ShopId),
}

/// One line as text, with its line feed. For the writer of a table.
pub fn to_line<T: Serialize>(line: &T) -> Result<String, serde_json::Error> {
    serde_json::to_string(line).map(|mut text| {
        text.push('\n');
        text
    })
}

/// Reads a table line by line as it arrives and builds the route table meanwhile, so that the text is never held whole.
///
/// ```
/// use shared::routes::wire::TableReader;
/// let text = r#"{"incarnation":1,"version":42,"base_domain":"localhost","platform_domain":"localhost"}
/// {"pod":{"id":1,"name":"one","status":"active","http":["127.0.0.1:9001"]}}
/// {"shop":{"id":7,"handle":"snow","hosts":["snow.example"],"pod":1,"epoch":3,"state":"serving"}}
/// {"end":{"pods":1,"shops":1}}"#;
/// let mut reader = TableReader::default();
/// for line in text.lines() {
///     reader.line(line.as_bytes());
/// }
/// let table = reader.finish().unwrap();
/// assert_eq!(table.lookup_host(&"snow.example".parse().unwrap()).unwrap().shop.get(), 7);
/// ```
#[derive(Debug, Default)]
pub struct TableReader {
    lines: u64,
    builder: Option<Builder>,
    faults: Faults,
    seen: Counts,
    end: Option<Counts>,
}

impl TableReader {
    /// Takes the next line, with or without its line feed. Faults are kept for [`Self::finish`].
    pub fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        if self.end.is_some() {
            self.faults.push(Fault::AfterEnd { line: self.lines });
            return;
        }
        if line.len() > LINE_LEN_MAX {
            self.faults.push(Fault::LineTooLong { line: self.lines });
            return;
        }
        if self.builder.is_none() {
            match self.parse::<Header>(line) {
                Some(header) => self.builder = Some(Builder::new(header)),
                // Without the header nothing after it can be placed, but each line is still read for its own faults.
                None => self.builder = Some(Builder::headless()),
            }
            return;
        }
        let Some(line) = self.parse::<Line>(line) else {
            return;
        };
        let Some(builder) = &mut self.builder else {
            return;
        };
        match line {
            Line::Pod(pod) => {
                self.seen.pods += 1;
                builder.pod(pod);
            }
            Line::Shop(shop) => {
                self.seen.shops += 1;
                builder.shop(&shop);
            }
            Line::End(counts) => self.end = Some(counts),
        }
    }

    fn parse<'a, T: Deserialize<'a>>(&mut self, line: &'a [u8]) -> Option<T> {
        match serde_json::from_slice(line) {
            Ok(it) => Some(it),
            Err(error) => {
                self.faults.push(Fault::Line {
                    line: self.lines,
                    error: error.to_string(),
                });
                None
            }
        }
    }

    /// The table, or everything that is wrong with it.
    pub fn finish(mut self) -> Result<RouteTable, Faults> {
        match self.end {
            None => self.faults.push(Fault::NoEnd { lines: self.lines }),
            Some(end) if end != self.seen && self.faults.is_empty() => {
                self.faults.push(Fault::Counts {
                    said: end,
                    seen: self.seen,
                });
            }
            Some(_) => {}
        }
        let Some(builder) = self.builder else {
            return Err(self.faults);
        };
        builder.finish_with(self.faults)
    }
}
