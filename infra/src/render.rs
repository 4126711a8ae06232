//! Templates to configuration files: `{{name}}` is replaced, and every name must be known and used, so that a template and
//! the code that fills it cannot drift apart.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};

/// Fills a template. `name` is for messages.
pub(crate) fn render(
    name: &str,
    template: &str,
    values: &[(&str, String)],
) -> anyhow::Result<String> {
    let mut text = String::with_capacity(template.len());
    let mut used = BTreeSet::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (key, after) = after
            .split_once("}}")
            .with_context(|| format!("template {name}: a {{{{ without }}}}"))?;
        let (key, value) = values
            .iter()
            .find(|(known, _)| *known == key)
            .with_context(|| format!("template {name} asks for {key:?}, which nobody gives"))?;
        text.push_str(before);
        text.push_str(value);
        used.insert(*key);
        rest = after;
    }
    text.push_str(rest);
    let unused: Vec<_> = values
        .iter()
        .map(|(key, _)| *key)
        .filter(|key| !used.contains(key))
        .collect();
    ensure!(unused.is_empty(), "template {name} does not use {unused:?}");
    Ok(text)
}

/// A text as TOML writes it, quotes included.
pub(crate) fn quoted(text: impl std::fmt::Display) -> String {
    toml::Value::String(text.to_string()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_filled_in_and_neither_side_may_have_more() {
        let port = [("port", "7".to_owned())];
        assert_eq!(
            render("t", "a={{port}};b={{port}}", &port).unwrap(),
            "a=7;b=7"
        );
        let fault = |template| render("t", template, &port).unwrap_err().to_string();
        assert!(fault("{{prot}}").contains("\"prot\""));
        assert!(fault("nothing").contains("port"));
        assert!(fault("{{port").contains("without"));
    }

    #[test]
    fn a_path_with_quotes_stays_one_value() {
        let text = format!("path = {}", quoted("/a \"b\"\\c"));
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["path"].as_str(), Some("/a \"b\"\\c"));
    }
}
