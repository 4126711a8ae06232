//! How `podctl` speaks: results on stdout, as tables for people or JSON for machines; everything else on stderr.
//!
//! Writing returns an error instead of panicking, so that `podctl shop list | head` ends quietly.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use time::{OffsetDateTime, UtcOffset};

/// Where results go.
#[derive(Debug, Clone, Copy)]
pub struct Out {
    json: bool,
}

impl Out {
    /// Tables, or JSON.
    pub const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether a machine reads along.
    pub const fn is_json(self) -> bool {
        self.json
    }

    /// A result: `value` for machines, `text` for people.
    pub fn result<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> io::Result<()> {
        let text = if self.json {
            serde_json::to_string_pretty(value).map_err(io::Error::other)?
        } else {
            text(value)
        };
        line(&mut io::stdout().lock(), &text)
    }
}

fn line(to: &mut impl Write, text: &str) -> io::Result<()> {
    to.write_all(text.trim_end().as_bytes())?;
    to.write_all(b"\n")?;
    to.flush()
}

/// A sentence for the operator, on stderr. Nobody there to read it is no fault.
pub fn note(text: &str) {
    let _ = line(&mut io::stderr().lock(), text);
}

/// A table: a header and rows of as many cells. Without rows, `none` says so. On a terminal long cells are wrapped to
/// its width; elsewhere a row stays one line.
pub fn table<const N: usize>(none: &str, header: [&str; N], rows: Vec<[String; N]>) -> String {
    if rows.is_empty() {
        return none.into();
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(if io::stdout().is_terminal() {
        ContentArrangement::Dynamic
    } else {
        ContentArrangement::Disabled
    });
    table.set_header(header.map(str::to_uppercase));
    table.add_rows(rows);
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table.trim_fmt()
}

/// Facts of one thing, a line each: `name  value`.
pub fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<_> = facts
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}").trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// So many of something: `1 shop`, `2 shops`.
pub fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A pod by its name in a sentence: names that say what they are need no word before them.
pub fn the_pod(name: &str) -> String {
    if name.starts_with("pod") {
        name.to_owned()
    } else {
        format!("pod {name}")
    }
}

/// An instant in UTC, each as long as the other: columns stay straight, and texts sort as the times do.
pub fn instant(at: OffsetDateTime) -> String {
    let at = at.to_offset(UtcOffset::UTC);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.millisecond()
    )
}

/// An absent value in a table.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".into(), |v| v.to_string())
}

/// Who is told of the steps of something long.
pub trait Progress: Send + Sync {
    /// Step `number` (from 1) of `total` begins.
    fn step(&self, number: usize, total: usize, text: &str);
    /// No step follows.
    fn done(&self);
}

/// A bar on a terminal; elsewhere one line a step, which a log keeps and a script can wait for.
#[derive(Debug, Default)]
pub struct Steps {
    bar: Mutex<Option<ProgressBar>>,
}

/// How often the bar moves while a step runs, so that a long one does not look dead.
const TICK: Duration = Duration::from_millis(120);

impl Progress for Steps {
    fn step(&self, number: usize, total: usize, text: &str) {
        if !io::stderr().is_terminal() {
            note(&format!("step {number}/{total} {text}"));
            return;
        }
        let Ok(mut bar) = self.bar.lock() else {
            return;
        };
        let bar = bar.get_or_insert_with(new_bar);
        bar.set_length(total as u64);
        bar.set_position(number.saturating_sub(1) as u64);
        bar.set_message(text.to_owned());
    }

    fn done(&self) {
        if let Some(bar) = self.bar.lock().ok().and_then(|mut bar| bar.take()) {
            bar.finish_and_clear();
        }
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:12} {pos}/{len} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(TICK);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_an_empty_one_is_a_sentence() {
        let rows = vec![
            ["milk".to_owned(), "1".to_owned()],
            ["long-handle".to_owned(), "20".to_owned()],
        ];
        let text = table("no shops", ["handle", "pod"], rows);
        assert_eq!(text, "HANDLE       POD\nmilk         1\nlong-handle  20");
        assert_eq!(table("no shops", ["handle"], Vec::new()), "no shops");
    }

    #[test]
    fn facts_are_aligned() {
        let text = facts(&[("id", "1".into()), ("handle", "milk".into())]);
        assert_eq!(text, "id      1\nhandle  milk");
    }

    #[test]
    fn one_of_something_is_not_many_and_a_pod_is_one_pod() {
        assert_eq!(count(1, "stray change"), "1 stray change");
        assert_eq!(count(0, "shop"), "0 shops");
        assert_eq!([the_pod("south"), the_pod("pod-4")], ["pod south", "pod-4"]);
    }

    #[test]
    fn instants_are_all_of_one_length_and_sort_as_texts() {
        let at = |ms: i128| OffsetDateTime::from_unix_timestamp_nanos(ms * 1_000_000).unwrap();
        let texts = [400, 770, 1_000, 61_005].map(|ms| instant(at(ms)));
        assert_eq!(
            texts,
            [
                "1970-01-01T00:00:00.400Z",
                "1970-01-01T00:00:00.770Z",
                "1970-01-01T00:00:01.000Z",
                "1970-01-01T00:01:01.005Z"
            ]
        );
        let east = UtcOffset::from_hms(2, 0, 0).unwrap();
        assert_eq!(instant(at(400).to_offset(east)), texts[0]);
    }
}
