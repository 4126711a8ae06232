//! What a bench prints.

use std::fs;
use std::time::Duration;

/// Prints to standard output, which is what a bench is for.
#[expect(clippy::print_stdout, reason = "the tables are the result")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// The machine in one line.
pub(crate) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |text| {
        text.trim_start_matches([' ', '\t', ':'])
    });
    let cores = crate::process::cores();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let system = system.unwrap_or("unknown system").trim_matches('"');
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "machine: {cores} cores, {model}, {system}, Linux {}",
        kernel.trim()
    )
}

/// The median; 0 of nothing.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The value that a part of all sorted ones do not exceed.
pub(crate) fn percentile(sorted: &[Duration], part: f64) -> Duration {
    if sorted.is_empty() {
        return Duration::ZERO;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index of a list that is in memory"
    )]
    let index = ((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len()) - 1;
    sorted[index]
}

/// Microseconds with one digit.
pub(crate) fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// A table as Markdown, so that it can go into the README as it is.
pub(crate) fn table(title: &str, head: &[&str], rows: &[Vec<String>]) {
    let mut widths: Vec<usize> = head.iter().map(|text| text.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = String>| {
        let padded: Vec<String> = cells
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}", width = *width))
            .collect();
        format!("| {} |", padded.join(" | "))
    };
    say(&format!("\n{title}\n"));
    say(&line(&mut head.iter().map(|cell| (*cell).to_owned())));
    say(&line(&mut widths.iter().map(|width| "-".repeat(*width))));
    for row in rows {
        say(&line(&mut row.iter().cloned()));
    }
}
