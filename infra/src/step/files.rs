//! Configuration files and data folders.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use shared::PodId;
use tokio::process::Command;
use tokio::time::timeout;

use crate::home_dir::{make_folder, write_atomically, write_durably};
use crate::layout::Wanted;
use crate::observe::{World, has_data};

/// Reading a file and saying what is wrong with it takes a program well under a second.
const CHECK_WITHIN: Duration = Duration::from_secs(20);

/// Copying 30 MB; a slow disk is given time.
const COPY_WITHIN: Duration = Duration::from_secs(120);

const FILE_MODE: u32 = 0o600;

pub(super) fn is_written(wanted: &Wanted) -> bool {
    std::fs::read(&wanted.file.path).is_ok_and(|text| text == wanted.file.text.as_bytes())
}

/// Writes the files, each after the program that reads it has looked at it: what is in place is never a file that would
/// keep its program from starting.
pub(super) async fn write(units: &[&Wanted]) -> anyhow::Result<()> {
    let units = units.iter().filter(|wanted| !is_written(wanted));
    futures::future::try_join_all(units.map(|wanted| write_one(wanted)))
        .await
        .map(|_| ())
}

async fn write_one(wanted: &Wanted) -> anyhow::Result<()> {
    let file = &wanted.file;
    let folder = file
        .path
        .parent()
        .context("a configuration file without a folder")?;
    make_folder(folder)?;
    if let Some(command) = &file.check {
        let draft = file.path.with_extension("draft");
        write_atomically(&draft, file.text.as_bytes(), FILE_MODE)?;
        let checked = check(command, &file.path, &draft).await;
        std::fs::remove_file(&draft).with_context(|| format!("remove {}", draft.display()))?;
        checked.with_context(|| format!("the configuration of {}", wanted.unit.name))?;
    }
    Ok(write_durably(&file.path, file.text.as_bytes(), FILE_MODE)?)
}

/// Runs a program's own check with the draft in the file's place.
async fn check(command: &[String], path: &Path, draft: &Path) -> anyhow::Result<()> {
    let (path, draft) = (path.to_string_lossy(), draft.to_string_lossy());
    let mut words = command.iter().map(|word| word.replace(&*path, &draft));
    let program = words.next().context("an empty command")?;
    let ran = Command::new(&program)
        .args(words)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let ran = timeout(CHECK_WITHIN, ran)
        .await
        .with_context(|| format!("{program} did not check it in time"))?;
    let ran = ran.with_context(|| format!("run {program}"))?;
    ensure!(
        ran.status.success(),
        "{program} refuses it ({}): {}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr).trim()
    );
    Ok(())
}

pub(super) fn all_data(world: &World, pod: PodId) -> bool {
    let wish = world.fleet.pods.iter().find(|it| it.id == pod);
    wish.is_some_and(|wish| wish.servers().all(|k| has_data(&world.home.mysql(pod, k))))
}

/// Copies the fresh data folder to where there is none. A copy gets its name once it is whole.
pub(super) async fn copy_data(world: &World, pod: PodId) -> anyhow::Result<()> {
    let fresh = world.mysqld.fresh_data().await?;
    let wish = world
        .fleet
        .pods
        .iter()
        .find(|it| it.id == pod)
        .context("no such pod in fleet.toml")?;
    for k in wish.servers() {
        let folder = world.home.mysql(pod, k);
        if !has_data(&folder) {
            copy_one(&fresh, &folder).await?;
        }
    }
    Ok(())
}

async fn copy_one(fresh: &Path, folder: &Path) -> anyhow::Result<()> {
    make_folder(folder)?;
    let part = folder.join("data.part");
    if part.exists() {
        std::fs::remove_dir_all(&part).with_context(|| format!("remove {}", part.display()))?;
    }
    // Its files have holes, which the standard library's copy would fill with zeros.
    let mut copy = Command::new("cp");
    copy.args(["-r", "--sparse=always", "--reflink=auto"])
        .arg(fresh)
        .arg(&part);
    let copied = timeout(
        COPY_WITHIN,
        copy.stdin(Stdio::null()).kill_on_drop(true).output(),
    )
    .await;
    let copied = copied.with_context(|| format!("copying to {} takes too long", part.display()))?;
    let copied = copied.context("run cp")?;
    ensure!(
        copied.status.success(),
        "a fresh data folder could not be copied to {}: {}; is the disk full?",
        part.display(),
        String::from_utf8_lossy(&copied.stderr).trim()
    );
    let data = folder.join("data");
    std::fs::rename(&part, &data).with_context(|| format!("rename to {}", data.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_copy_that_was_cut_off_is_begun_again() {
        let root = tempfile::tempdir().unwrap();
        let (fresh, server) = (root.path().join("fresh"), root.path().join("mysql-1"));
        std::fs::create_dir_all(&fresh).unwrap();
        std::fs::write(fresh.join("ibdata1"), "x").unwrap();
        std::fs::create_dir_all(server.join("data.part")).unwrap();
        std::fs::write(server.join("data.part").join("half"), "y").unwrap();
        assert!(!has_data(&server));
        copy_one(&fresh, &server).await.unwrap();
        assert!(has_data(&server));
        let names: Vec<_> = std::fs::read_dir(server.join("data"))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names, ["ibdata1"]);
    }

    #[tokio::test]
    async fn a_file_that_its_program_refuses_is_not_put_in_place() {
        let root = tempfile::tempdir().unwrap();
        let layout = crate::layout::tests::layout(&crate::layout::tests::fleet(vec![]));
        let mut wanted = layout.unit("control").unwrap().clone();
        wanted.file.path = root.path().join("control").join("control.toml");
        let path = wanted.file.path.display().to_string();
        let script = |body: &str| Some(["sh", "-c", body, "sh", &path].map(str::to_owned).to_vec());
        wanted.file.check = script("echo no such key >&2; exit 64");
        let fault = format!("{:#}", write(&[&wanted]).await.unwrap_err());
        assert!(
            fault.contains("control") && fault.contains("no such key"),
            "{fault}"
        );
        assert!(!is_written(&wanted));
        wanted.file.check = script("test -s \"$1\"");
        write(&[&wanted]).await.unwrap();
        assert!(is_written(&wanted));
        assert_eq!(
            std::fs::read_dir(root.path().join("control"))
                .unwrap()
                .count(),
            1
        );
    }
}
