//! What may depend on what, and what the top level holds.

use std::collections::BTreeSet;

/// Each crate, and the crates of ours that it may depend on.
const ARROWS: [(&str, &[&str]); 6] = [
    ("shared", &[]),
    ("edge", &["shared"]),
    ("pod", &["shared", "migrations"]),
    ("migrations", &[]),
    ("infra", &["shared", "migrations"]),
    ("tests", &["shared", "migrations"]),
];

/// What is here beside the crates and dotfiles; `target` is the build's.
const TOP: [&str; 4] = ["Cargo.toml", "Cargo.lock", "README.md", "target"];

/// Names of all dependencies in a manifest, also of tests, builds and single platforms.
fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut waiting = vec![manifest];
    while let Some(table) = waiting.pop() {
        for (key, value) in table {
            let Some(inner) = value.as_table() else {
                continue;
            };
            if key.ends_with("dependencies") {
                // `{ package = "x" }` renames.
                let real = |(name, of): (&String, &toml::Value)| {
                    of.get("package")
                        .and_then(toml::Value::as_str)
                        .unwrap_or(name)
                        .to_owned()
                };
                names.extend(inner.iter().map(real));
            } else if key == "target" || table.contains_key("cfg") || key.starts_with("cfg(") {
                waiting.push(inner);
            }
        }
    }
    names
}

/// Members that are missing or too many, and arrows that the design does not draw.
pub(crate) fn between_crates(text: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut breaches = Vec::new();
    let parse = |path: &str| text(path).and_then(|t| t.parse::<toml::Table>().ok());
    let ours: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let members: BTreeSet<String> = parse("Cargo.toml")
        .as_ref()
        .and_then(|root| root.get("workspace")?.get("members")?.as_array())
        .map(|m| {
            m.iter()
                .filter_map(|m| m.as_str().map(str::to_owned))
                .collect()
        })
        .unwrap_or_default();
    if members.iter().map(String::as_str).collect::<BTreeSet<_>>() != ours {
        breaches.push(format!(
            "Cargo.toml: the members are {members:?}, the design has {ours:?}"
        ));
    }
    for (name, may) in ARROWS {
        let path = format!("{name}/Cargo.toml");
        let Some(manifest) = parse(&path) else {
            breaches.push(format!("{path}: missing, or not TOML"));
            continue;
        };
        for found in dependencies(&manifest) {
            if ours.contains(found.as_str()) && !may.contains(&found.as_str()) {
                breaches.push(format!(
                    "{path}: {name} may not depend on {found}, only on {may:?}"
                ));
            }
        }
    }
    breaches
}

/// Names in the top folder that do not belong there.
pub(crate) fn top_level(names: &[String]) -> Vec<String> {
    let known = |name: &str| {
        name.starts_with('.') || TOP.contains(&name) || ARROWS.iter().any(|(dir, _)| *dir == name)
    };
    let strangers = names.iter().filter(|name| !known(name));
    strangers
        .map(|name| format!("{name}: not a thing of the top level"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(path: &str, manifest: &str) -> Vec<String> {
        between_crates(|asked| {
            Some(match asked {
                _ if asked == path => manifest.to_owned(),
                "Cargo.toml" => {
                    r#"workspace.members = ["shared","edge","pod","migrations","infra","tests"]"#
                        .into()
                }
                _ => String::new(),
            })
        })
    }

    #[test]
    fn a_wrong_arrow_is_found_wherever_it_is_written() {
        assert!(tree("", "").is_empty());
        for bad in [
            "[dependencies]\npod.workspace = true",
            "[dev-dependencies]\npod.workspace = true",
            "[build-dependencies]\ninfra = { path = '../infra' }",
            "[target.'cfg(unix)'.dependencies]\npod = { path = '../pod' }",
            "[dependencies]\nother = { package = 'pod', path = '../pod' }",
        ] {
            assert_eq!(tree("edge/Cargo.toml", bad).len(), 1, "{bad}");
        }
        assert!(tree("edge/Cargo.toml", "[dependencies]\nshared.workspace = true").is_empty());
        assert_eq!(
            tree(
                "shared/Cargo.toml",
                "[dependencies]\nmigrations.workspace = true"
            )
            .len(),
            1
        );
        assert_eq!(
            tree("Cargo.toml", "workspace.members = ['shared']").len(),
            1
        );
    }

    #[test]
    fn a_stranger_on_the_top_level_is_found() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert!(top_level(&names(&["edge", "README.md", ".clippy.toml"])).is_empty());
        assert_eq!(top_level(&names(&["docs", "edge", "Makefile"])).len(), 2);
    }
}
