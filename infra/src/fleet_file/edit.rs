//! Changing `fleet.toml` without losing what people wrote into it: comments, order and spacing stay.

use anyhow::{Context as _, ensure};
use shared::PodId;
use shared::config;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::{FleetFile, NAME_RULE, PodWish, is_name};
use crate::home_dir::{HomeDir, write_durably};
use crate::render::render;

/// What an operator says of a new pod; the rest is the file's defaults.
#[derive(Debug, Clone, Default)]
pub struct PodNew {
    /// Its name.
    pub name: String,
    /// Its number; the next free one if left out.
    pub id: Option<PodId>,
    /// Where it is.
    pub region: Option<String>,
    /// The budget it draws on.
    pub pool: Option<String>,
    /// How large it is.
    pub class: Option<String>,
    /// How many shops it takes.
    pub max_shops: Option<u64>,
}

const FILE_MODE: u32 = 0o644;

/// The file of a new fleet.
pub(crate) fn write_first(home: &HomeDir, edge_port: u16) -> anyhow::Result<()> {
    let listen = format!("127.0.0.1:{edge_port}");
    let text = render(
        "fleet.toml",
        include_str!("../../templates/fleet.toml"),
        &[("edge_listen", listen)],
    )?;
    Ok(write_durably(
        &home.fleet_file(),
        text.as_bytes(),
        FILE_MODE,
    )?)
}

/// Writes a pod into the file. A pod that stands there just so is fine: an interrupted `pod add` is repeated.
pub fn add_pod(home: &HomeDir, new: &PodNew) -> anyhow::Result<PodWish> {
    ensure!(
        is_name(&new.name),
        "{:?} is not a pod's name: {NAME_RULE}",
        new.name
    );
    let fleet = FleetFile::load(home)?;
    if let Some(pod) = fleet.pods.iter().find(|pod| pod.name == new.name) {
        ensure!(
            is_same(pod, new),
            "fleet.toml has a pod {} already, with other settings (id {}, region {}): choose another name, or change the file and run `podctl apply`",
            pod.name,
            pod.id,
            pod.region
        );
        return Ok(pod.clone());
    }
    let id = new.id.map_or_else(|| fleet.next_id(), Ok)?;
    let taken = fleet.pods.iter().find(|pod| pod.id == id);
    ensure!(
        taken.is_none(),
        "pod {id} is {:?} already",
        taken.map(|pod| &*pod.name).unwrap_or_default()
    );
    change(home, |file| {
        let pods = file
            .entry("pod")
            .or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        let pods = pods
            .as_array_of_tables_mut()
            .context("fleet.toml: `pod` is not a list of tables ([[pod]])")?;
        pods.push(table(id, new));
        Ok(())
    })?;
    let fleet = FleetFile::load(home)?;
    fleet
        .pods
        .into_iter()
        .find(|pod| pod.id == id)
        .context("the pod is not in fleet.toml after writing it")
}

/// Writes the first edge's port.
pub(crate) fn set_edge_port(home: &HomeDir, port: u16) -> anyhow::Result<()> {
    let mut listen = FleetFile::load(home)?.edge.listen;
    listen.set_port(port);
    change(home, |file| {
        file["edge"]["listen"] = value(listen.to_string());
        Ok(())
    })
}

/// Edits the file; what comes out must be a file that can be read.
fn change(
    home: &HomeDir,
    edit: impl FnOnce(&mut DocumentMut) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let path = home.fleet_file();
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let mut file: DocumentMut = text
        .parse()
        .with_context(|| format!("understand {}", path.display()))?;
    edit(&mut file)?;
    let text = file.to_string();
    config::parse(&path, &text, FleetFile::read)?;
    Ok(write_durably(&path, text.as_bytes(), FILE_MODE)?)
}

fn is_same(pod: &PodWish, new: &PodNew) -> bool {
    let PodNew {
        name,
        id,
        region,
        pool,
        class,
        max_shops,
    } = new;
    let same = |wish: &Option<String>, has: &str| wish.as_deref().is_none_or(|wish| wish == has);
    pod.name == *name
        && id.is_none_or(|id| id == pod.id)
        && same(region, &pod.region)
        && same(pool, &pod.pool)
        && same(class, &pod.class)
        && max_shops.is_none_or(|max| max == pod.max_shops)
}

fn table(id: PodId, new: &PodNew) -> Table {
    let PodNew {
        name,
        id: _,
        region,
        pool,
        class,
        max_shops,
    } = new;
    let mut table = Table::new();
    table["id"] = value(i64::from(id.get()));
    table["name"] = value(name);
    for (key, word) in [("region", region), ("pool", pool), ("class", class)] {
        if let Some(word) = word {
            table[key] = value(word);
        }
    }
    if let Some(max) = max_shops.and_then(|max| i64::try_from(max).ok()) {
        table["max_shops"] = value(max);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, HomeDir) {
        let folder = tempfile::tempdir().unwrap();
        let home = HomeDir::at(folder.path()).create().unwrap();
        write_first(&home, 8080).unwrap();
        (folder, home)
    }

    fn new(name: &str) -> PodNew {
        PodNew {
            name: name.into(),
            ..PodNew::default()
        }
    }

    #[test]
    fn a_pod_is_added_once_and_comments_stay() {
        let (_folder, home) = home();
        let before = std::fs::read_to_string(home.fleet_file()).unwrap();
        let east = PodNew {
            region: Some("eu".into()),
            ..new("east")
        };
        let pod = add_pod(&home, &east).unwrap();
        assert_eq!((pod.id.get(), &*pod.region, pod.replicas), (3, "eu", 2));
        let after = std::fs::read_to_string(home.fleet_file()).unwrap();
        assert!(after.starts_with(&before), "{after}");
        // Said again it is the same pod, and nothing is written.
        assert_eq!(add_pod(&home, &east).unwrap(), pod);
        assert_eq!(std::fs::read_to_string(home.fleet_file()).unwrap(), after);
    }

    #[test]
    fn a_name_or_an_id_that_is_taken_or_wrong_is_refused_and_nothing_is_written() {
        let (_folder, home) = home();
        let before = std::fs::read_to_string(home.fleet_file()).unwrap();
        let other_region = PodNew {
            region: Some("eu".into()),
            ..new("north")
        };
        let taken_id = PodNew {
            id: PodId::new(2).ok(),
            ..new("east")
        };
        for (wish, fault) in [
            (other_region, "already"),
            (taken_id, "pod 2 is \"south\""),
            (new("7"), "not a pod's name"),
        ] {
            let text = add_pod(&home, &wish).unwrap_err().to_string();
            assert!(text.contains(fault), "{text}");
        }
        assert_eq!(std::fs::read_to_string(home.fleet_file()).unwrap(), before);
    }

    #[test]
    fn the_edge_moves_to_another_port() {
        let (_folder, home) = home();
        set_edge_port(&home, 9090).unwrap();
        assert_eq!(FleetFile::load(&home).unwrap().edge.listen.port(), 9090);
        assert!(
            std::fs::read_to_string(home.fleet_file())
                .unwrap()
                .contains("# The first edge listens here")
        );
    }
}
