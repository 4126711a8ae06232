//! The file against damage: whatever byte is wrong or missing, it is not believed.

use super::*;
use crate::routes::wire::{Change, Line, Now, Pod, Shop};

fn pod() -> Pod {
    Pod {
        id: 1_u64.try_into().unwrap(),
        name: "one".into(),
        status: PodStatus::Active,
        http: vec!["127.0.0.1:9001".parse().unwrap()],
    }
}

fn shop(id: u64) -> Shop {
    Shop {
        id: id.try_into().unwrap(),
        handle: format!("shop-{id}").parse().unwrap(),
        hosts: vec![format!("shop-{id}.example").parse().unwrap()],
        pod: 1_u64.try_into().unwrap(),
        epoch: 3_u64.try_into().unwrap(),
        state: PlacementState::Frozen,
    }
}

fn table(shops: u64) -> RouteTable {
    let header = Header {
        incarnation: 1,
        version: 1,
        base_domain: "localhost".parse().unwrap(),
        platform_domain: "platform.example".parse().unwrap(),
    };
    let lines = std::iter::once(Line::Pod(pod())).chain((1..=shops).map(|id| Line::Shop(shop(id))));
    RouteTable::build(header, lines).unwrap()
}

#[test]
fn any_wrong_or_missing_byte_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes.bin");
    save(&table(3), &path).unwrap();
    let good = fs::read(&path).unwrap();
    assert_eq!(load(&path).unwrap().len(), 3);
    for index in 0..good.len() {
        let mut bad = good.clone();
        bad[index] ^= 0x41;
        fs::write(&path, &bad).unwrap();
        let error = load(&path)
            .err()
            .unwrap_or_else(|| panic!("byte {index} may be wrong"));
        assert!(error.is_bad_file(), "{error}");
        fs::write(&path, &good[..index]).unwrap();
        assert!(load(&path).unwrap_err().is_bad_file(), "cut at {index}");
    }
    let mut longer = good;
    longer.push(0);
    fs::write(&path, &longer).unwrap();
    assert!(load(&path).is_err());
}

#[test]
fn errors_name_the_file_and_bad_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes.bin");
    let missing = load(&path).unwrap_err();
    assert!(missing.is_missing() && !missing.is_bad_file());
    fs::write(&path, "<html>").unwrap();
    let error = load(&path).unwrap_err();
    assert!(error.to_string().contains("routes.bin"), "{error}");
    let aside = set_aside(&path).unwrap();
    assert_eq!(fs::read(aside).unwrap(), b"<html>");
    assert!(!path.exists());
    let nowhere = save(&table(1), &folder.path().join("none/routes.bin")).unwrap_err();
    assert!(
        crate::error::chain(&nowhere).contains("No such file"),
        "{nowhere}"
    );
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes.bin");
    save(&table(1), &path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 2;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(load(&path), Err(DiskError::Format { got: 2, .. })));
}

/// Saves while changes come without a pause: each file holds exactly the version that it names.
#[test]
fn a_file_is_of_one_version_also_under_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("routes.bin");
    let table = table(200);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            let mut version = 1;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                version += 1;
                // The host of shop 1 wanders; its epoch says at which version.
                let mut wanderer = shop(1 + version % 200);
                wanderer.epoch = (version + 3).try_into().unwrap();
                wanderer.hosts = vec!["wanderer.example".parse().unwrap()];
                let now = Now::Shop(wanderer);
                table.apply(&Change { version, now }).unwrap();
            }
        });
        for _ in 0..20 {
            let version = save(&table, &path).unwrap();
            let read = load(&path).unwrap();
            assert_eq!(read.version(), version);
            if version > 1 {
                let found = read.lookup_host(&"wanderer.example".parse().unwrap());
                assert_eq!(found.unwrap().epoch.get(), version + 3);
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
    });
}
