//! Configuration: every key that a program reads stands in the README's reference.

use std::collections::BTreeSet;

use regex::Regex;

/// The files that read configuration.
pub(crate) const READERS: [&str; 9] = [
    "infra/src/fleet_file.rs",
    "edge/src/config.rs",
    "edge/src/park/settings.rs",
    "pod/src/config.rs",
    "pod/src/config/limits.rs",
    "pod/src/shop/limits.rs",
    "infra/src/serve/config.rs",
    "infra/src/mover/limits.rs",
    "shared/src/telemetry.rs",
];

/// The keys that a file reads: the text behind a method of `Section`, or behind the short names that the readers give it.
pub(crate) fn keys(source: &str) -> BTreeSet<String> {
    let call = Regex::new(
        r#"(?x)
        (?: \bs\.(?: required | optional | or | within | word | parsed | parsed_optional | list | list_or_empty
                   | path | optional_path | secret | optional_secret | section | optional_section | sections )
            (?: ::<[^>]+> )?
          | \b(?: time | size ) )
        \( \s* "([a-z_]+)""#,
    )
    .unwrap();
    call.captures_iter(source)
        .map(|c| c[1].to_owned())
        .collect()
}

/// Keys that the README's section on configuration does not name.
pub(crate) fn missing(readme: &str, path: &str, source: &str) -> Vec<String> {
    let section: String = readme
        .lines()
        .skip_while(|line| !line.to_lowercase().starts_with("## configuration"))
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .flat_map(|line| [line, "\n"])
        .collect();
    // As a key, as the last part of one, as a table's name, or as a part of a key that has a table's name in front.
    let named = |key: &str| {
        Regex::new(&format!(r"[`.\[]{key}[`.\]]"))
            .unwrap()
            .is_match(&section)
    };
    keys(source)
        .into_iter()
        .filter(|key| !named(key))
        .map(|key| format!("{path}: the README's reference does not name the key {key}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        let a = s.required::<Host>("alpha");
        let b = s.section("table", |s| s.within("beta", 1, 1..=2));
        let mut time = |key, default| s.within(key, default, MIN..=MAX);
        let c = time("gamma", GAMMA);
        not_a_key("delta");
    "#;

    #[test]
    fn keys_are_found_in_each_form() {
        let found: Vec<_> = keys(SOURCE).into_iter().collect();
        assert_eq!(found, ["alpha", "beta", "gamma", "table"]);
    }

    #[test]
    fn a_key_that_is_named_elsewhere_only_is_missing() {
        let readme =
            "# X\n`alpha`\n## Configuration\n| `table.beta` | `gamma` |\n## Next\n`alpha`\n";
        let missing = missing(readme, "x.rs", SOURCE);
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0].contains("alpha"));
    }
}
