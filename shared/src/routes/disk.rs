//! The route table as a file: what an edge starts from while no control server answers.
//!
//! `PHROUTES`, the format's version, then records, each with its length before it: the header, the pods, the shops, an
//! empty record; last the SHA-256 of all that. A file is written beside its place, synced and moved there, so that a
//! crash leaves the old one or the new one. It is read in one pass and believed only when the checksum fits. Whoever
//! loads a bad one keeps it aside for an engineer ([`set_aside`]) and starts without.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::slot::Slot;
use super::wire::{self, Header, PodStatus};
use super::{Builder, Faults, RouteTable};
use crate::{Placement, PlacementState};

mod frame;
use frame::{Sink, Source};

const MAGIC: [u8; 8] = *b"PHROUTES";
/// Goes up when an older edge cannot read what a newer one writes.
const FORMAT: u32 = 1;
/// A table that changes all the time is written while changes wait; before that, twice without making them wait.
const TRIES_FREE: usize = 2;
/// A file may ask for room at once for so many shops; more come by growing.
const ROOM_MAX: usize = 1 << 24;

/// Why a table was not written or read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum DiskError {
    #[error("cannot {verb} {path}")]
    Io {
        verb: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{path} is not a route table of Podhost")]
    Magic { path: PathBuf },
    #[error("{path} has format {got}, this program reads format {FORMAT}")]
    Format { path: PathBuf, got: u32 },
    #[error("{path} is damaged: {what}")]
    Damaged { path: PathBuf, what: &'static str },
    #[error("{path} holds no valid table")]
    Invalid { path: PathBuf, source: Faults },
}

impl DiskError {
    /// Whether the file itself is bad, and should be set aside; a missing or unreadable one is not.
    pub const fn is_bad_file(&self) -> bool {
        match self {
            Self::Io { .. } => false,
            Self::Magic { .. }
            | Self::Format { .. }
            | Self::Damaged { .. }
            | Self::Invalid { .. } => true,
        }
    }

    /// Whether there is no such file: an edge's first start.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

#[derive(Serialize, Deserialize)]
struct HeaderRecord<'a> {
    incarnation: u64,
    version: u64,
    base_domain: &'a str,
    platform_domain: &'a str,
    pods: u64,
    shops: u64,
}

#[derive(Serialize, Deserialize)]
struct PodRecord<'a> {
    id: u64,
    name: &'a str,
    status: &'a str,
    http: Vec<SocketAddr>,
}

#[derive(Serialize, Deserialize)]
struct ShopRecord<'a> {
    id: u64,
    pod: u64,
    epoch: u64,
    state: u8,
    handle: &'a str,
    hosts: Vec<&'a str>,
}

/// Writes the table to `path` and says which version it is. Looking up goes on meanwhile, and so does applying changes
/// unless they come without a pause.
pub fn save(table: &RouteTable, path: &Path) -> Result<u64, DiskError> {
    let part = beside(path, "part");
    let fail = |verb| {
        let path = part.clone();
        move |source| DiskError::Io { verb, path, source }
    };
    for attempt in 0..=TRIES_FREE {
        let _writer = (attempt == TRIES_FREE).then(|| table.writer.lock());
        let version = {
            // No change is half applied while this is taken.
            let _now = (attempt < TRIES_FREE).then(|| table.writer.lock());
            table.version()
        };
        let file = File::create(&part).map_err(fail("create"))?;
        let mut out = Sink::new(file);
        write_table(table, version, &mut out).map_err(fail("write"))?;
        let file = out.finish().map_err(fail("write"))?;
        if attempt < TRIES_FREE {
            let _now = table.writer.lock();
            if table.version() != version {
                continue;
            }
        }
        file.sync_all().map_err(fail("sync"))?;
        drop(file);
        fs::rename(&part, path).map_err(fail("rename"))?;
        sync_folder(path).map_err(fail("sync the folder of"))?;
        return Ok(version);
    }
    // The last try holds the writer's lock and returns.
    Err(DiskError::Damaged {
        path: part,
        what: "the table never stood still",
    })
}

fn write_table(table: &RouteTable, version: u64, out: &mut Sink) -> io::Result<()> {
    out.bytes(&MAGIC)?;
    out.bytes(&FORMAT.to_le_bytes())?;
    let pods = table.pods();
    out.record(&HeaderRecord {
        incarnation: table.incarnation,
        version,
        base_domain: table.base_domain.as_str(),
        platform_domain: table.platform_domain.as_str(),
        pods: pods.len() as u64,
        shops: table.len() as u64,
    })?;
    for pod in &pods {
        out.record(&PodRecord {
            id: pod.id.into(),
            name: &pod.name,
            status: pod.status.as_str(),
            http: pod.http.to_vec(),
        })?;
    }
    table
        .index
        .try_for_each(|slot| out.record(&shop_record(slot)))?;
    out.bytes(&0_u32.to_le_bytes())
}

fn shop_record(slot: &Slot) -> ShopRecord<'_> {
    let Placement {
        shop,
        pod,
        epoch,
        state,
    } = slot.placement.into();
    ShopRecord {
        id: shop.into(),
        pod: pod.into(),
        epoch: epoch.into(),
        state: match state {
            PlacementState::Serving => 0,
            PlacementState::Frozen => 1,
            PlacementState::Offline => 2,
        },
        handle: slot.handle(),
        hosts: slot.hosts().collect(),
    }
}

const fn state_of(number: u8) -> Option<PlacementState> {
    match number {
        0 => Some(PlacementState::Serving),
        1 => Some(PlacementState::Frozen),
        2 => Some(PlacementState::Offline),
        _ => None,
    }
}

/// Reads and checks a file.
pub fn load(path: &Path) -> Result<RouteTable, DiskError> {
    let began = Instant::now();
    let io = |source| DiskError::Io {
        verb: "read",
        path: path.to_owned(),
        source,
    };
    let mut source = Source::new(File::open(path).map_err(io)?);
    let table = read_table(&mut source).map_err(|bad| bad.at(path))?;
    tracing::info!(
        shops = table.len(),
        version = table.version(),
        elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        "route table read from {}",
        path.display()
    );
    Ok(table)
}

/// Renames a bad file to `<name>.bad`, in place of an earlier one, and says where it is.
pub fn set_aside(path: &Path) -> Result<PathBuf, DiskError> {
    let aside = beside(path, "bad");
    match fs::rename(path, &aside) {
        Ok(()) => Ok(aside),
        Err(source) => Err(DiskError::Io {
            verb: "set aside",
            path: path.to_owned(),
            source,
        }),
    }
}

/// A [`DiskError`] that does not know its file yet.
enum Bad {
    Io(io::Error),
    Magic,
    Format(u32),
    Damaged(&'static str),
    Invalid(Faults),
}

impl Bad {
    fn at(self, path: &Path) -> DiskError {
        let path = path.to_owned();
        match self {
            Self::Io(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                DiskError::Damaged {
                    path,
                    what: "it ends too early",
                }
            }
            Self::Io(source) => DiskError::Io {
                verb: "read",
                path,
                source,
            },
            Self::Magic => DiskError::Magic { path },
            Self::Format(got) => DiskError::Format { path, got },
            Self::Damaged(what) => DiskError::Damaged { path, what },
            Self::Invalid(source) => DiskError::Invalid { path, source },
        }
    }
}

fn read_table(source: &mut Source) -> Result<RouteTable, Bad> {
    const HEADER: &str = "its header cannot be read";
    if source.array::<8>().map_err(Bad::Io)? != MAGIC {
        return Err(Bad::Magic);
    }
    let format = u32::from_le_bytes(source.array().map_err(Bad::Io)?);
    if format != FORMAT {
        return Err(Bad::Format(format));
    }
    let bytes = source.record()?.ok_or(Bad::Damaged(HEADER))?;
    let record: HeaderRecord<'_> = postcard::from_bytes(bytes).map_err(|_| Bad::Damaged(HEADER))?;
    let header = header_of(&record).ok_or(Bad::Damaged(HEADER))?;
    let (pods, shops) = (record.pods, record.shops);
    let room = usize::try_from(shops).unwrap_or(usize::MAX).min(ROOM_MAX);
    let mut builder = Builder::with_capacity(Some(header), room);
    let mut records = 0_u64;
    while let Some(bytes) = source.record()? {
        if records < pods {
            let pod = pod_of(bytes).ok_or(Bad::Damaged("the record of a pod cannot be read"))?;
            builder.pod(pod);
        } else {
            let shop = shop_of(bytes).ok_or(Bad::Damaged("the record of a shop cannot be read"))?;
            builder.shop(&shop);
        }
        records += 1;
    }
    if !source.checksum_fits().map_err(Bad::Io)? {
        return Err(Bad::Damaged("its checksum does not fit"));
    }
    if pods.checked_add(shops) != Some(records) {
        return Err(Bad::Damaged("it holds fewer or more records than it says"));
    }
    builder.finish().map_err(Bad::Invalid)
}

fn header_of(record: &HeaderRecord<'_>) -> Option<Header> {
    Some(Header {
        incarnation: record.incarnation,
        version: record.version,
        base_domain: record.base_domain.parse().ok()?,
        platform_domain: record.platform_domain.parse().ok()?,
    })
}

fn pod_of(bytes: &[u8]) -> Option<wire::Pod> {
    let record: PodRecord<'_> = postcard::from_bytes(bytes).ok()?;
    Some(wire::Pod {
        id: record.id.try_into().ok()?,
        name: record.name.to_owned(),
        status: PodStatus::parse(record.status)?,
        http: record.http,
    })
}

fn shop_of(bytes: &[u8]) -> Option<wire::Shop> {
    let record: ShopRecord<'_> = postcard::from_bytes(bytes).ok()?;
    let hosts: Result<Vec<_>, _> = record.hosts.iter().map(|host| host.parse()).collect();
    Some(wire::Shop {
        id: record.id.try_into().ok()?,
        handle: record.handle.parse().ok()?,
        hosts: hosts.ok()?,
        pod: record.pod.try_into().ok()?,
        epoch: record.epoch.try_into().ok()?,
        state: state_of(record.state)?,
    })
}

/// `<name>.<extra>` in the same folder, so that a rename stays within one file system.
fn beside(path: &Path, extra: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(extra);
    path.with_file_name(name)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
