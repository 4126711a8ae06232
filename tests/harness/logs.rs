//! What a stopped fleet leaves in its logs: no panic, no ERROR line that the test did not announce, no secret.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use regex::Regex;

/// A secret shorter than this could stand in a log by chance.
const SECRET_LEN_MIN: usize = 16;

/// Everything wrong with the logs of a home, one line each. `announced` are the ERROR lines a test has provoked.
/// MySQL's and Redis's own logs are searched for secrets only: what they call an error is often our test.
pub fn faults(home: &Path, announced: &[Regex]) -> Result<Vec<String>> {
    let secrets = secrets(home)?;
    let mut faults = Vec::new();
    for path in files(&home.join("logs"))? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let ours = !name.starts_with("mysql") && !name.starts_with("redis");
        for line in text.lines() {
            if let Some((file, _)) = secrets.iter().find(|(_, secret)| line.contains(secret)) {
                faults.push(format!(
                    "{name}: the secret of {} is in the log",
                    file.display()
                ));
            }
            if ours && is_alarming(line) && !announced.iter().any(|known| known.is_match(line)) {
                faults.push(format!("{name}: {line}"));
            }
        }
    }
    faults.dedup();
    Ok(faults)
}

/// A panic, or a line of level ERROR: those page a person.
fn is_alarming(line: &str) -> bool {
    let plain = without_colours(line);
    plain.contains("panicked at")
        || plain.contains("\"level\":\"ERROR\"")
        || plain.split_whitespace().take(3).any(|word| word == "ERROR")
}

fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut parts = line.split('\u{1b}');
    plain.push_str(parts.next().unwrap_or_default());
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain
}

/// The files that hold secrets and the secret part of each line of them.
fn secrets(home: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut secrets = Vec::new();
    for path in files(&home.join("secrets"))? {
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        for line in text
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with('#'))
        {
            // A key line is `<id>:<secret>`.
            let secret = line.rsplit(':').next().unwrap_or(line);
            if secret.len() >= SECRET_LEN_MIN {
                secrets.push((path.clone(), secret.to_owned()));
            }
        }
    }
    Ok(secrets)
}

/// The plain files of a folder; none if there is no such folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("read {}", folder.display()))?,
    };
    let paths = entries.map(|e| e.map(|e| e.path()).context("read a folder"));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_>>()?;
    paths.retain(|path| path.is_file());
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics, errors and secrets are found, what was announced and what a database says is not.
    #[test]
    fn what_must_not_be_in_a_log_is_found() {
        let home = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = home.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("secrets/fleet-key", "# keys\nk1:AAAABBBBCCCCDDDDEEEE\n");
        write(
            "logs/edge-1.log",
            "2026-01-01T00:00:00Z  INFO listening\n\
             2026-01-01T00:00:00Z \u{1b}[31mERROR\u{1b}[0m it broke\n\
             2026-01-01T00:00:00Z ERROR it was broken on purpose\n\
             thread 'main' panicked at src/main.rs:1:1:\n\
             2026-01-01T00:00:00Z  INFO no ERROR here, and AAAABBBBCCCCDDDDEEEE\n",
        );
        write(
            "logs/pod-1-1.log",
            "{\"level\":\"ERROR\",\"message\":\"json\"}\n",
        );
        write(
            "logs/mysql-1-1.log",
            "2026-01-01T00:00:00Z 0 [ERROR] ours to break\n",
        );
        let announced = [Regex::new("on purpose").unwrap()];
        let faults = faults(home.path(), &announced).unwrap();
        assert_eq!(faults.len(), 4, "{faults:#?}");
        assert!(faults.iter().any(|f| f.contains("it broke")));
        assert!(faults.iter().any(|f| f.contains("panicked")));
        assert!(faults.iter().any(|f| f.contains("json")));
        assert!(
            faults
                .iter()
                .any(|f| f.contains("fleet-key") && !f.contains("AAAA"))
        );
    }
}
