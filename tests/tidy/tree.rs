//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

/// A file with its path from the top.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// `path:line: what`, as compilers write it.
    pub(crate) fn breach(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

/// What is not ours, or not source.
const SKIPPED: [&str; 4] = ["target", ".git", ".podhost", "vendor"];
const EXTENSIONS: [&str; 4] = ["rs", "sql", "toml", "md"];

/// The repository.
#[derive(Debug)]
pub(crate) struct Tree {
    /// Names in the top folder.
    pub(crate) top: Vec<String>,
    files: Vec<File>,
}

impl Tree {
    /// Reads it from the folder above this crate.
    pub(crate) fn read() -> Self {
        let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap()
            .to_owned();
        let names = |path: &Path| -> Vec<String> {
            let entries = fs::read_dir(path).unwrap();
            let mut names: Vec<_> = entries
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort_unstable();
            names
        };
        let top = names(&root);
        let mut files = Vec::new();
        let mut waiting: Vec<PathBuf> = vec![root.clone()];
        while let Some(folder) = waiting.pop() {
            for name in names(&folder) {
                let path = folder.join(&name);
                if SKIPPED.contains(&name.as_str()) || path.is_symlink() {
                    continue;
                }
                if path.is_dir() {
                    waiting.push(path);
                    continue;
                }
                if EXTENSIONS
                    .iter()
                    .any(|e| path.extension().is_some_and(|x| x == *e))
                {
                    // A file that another process has just removed is not of the tree.
                    let Ok(text) = fs::read_to_string(&path) else {
                        continue;
                    };
                    let path = path
                        .strip_prefix(&root)
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned();
                    files.push(File { path, text });
                }
            }
        }
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Self { top, files }
    }

    pub(crate) fn with_extension(&self, extension: &'static str) -> impl Iterator<Item = &File> {
        let is = move |file: &&File| {
            Path::new(&file.path)
                .extension()
                .is_some_and(|e| e == extension)
        };
        self.files.iter().filter(is)
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.files
            .iter()
            .find(|file| file.path == path)
            .map(|file| file.text.clone())
    }
}
