//! The servers' settings, alone and against each other.

use std::collections::HashMap;
use std::time::Duration;

use shared::PodId;

use super::{
    BINLOG_FACTOR, BINLOG_MIN_SECONDS, End, Estimate, Job, Role, wrong_settings, wrong_version,
};

type Settings = HashMap<String, String>;

/// Settings that must be equal, with the reason.
const EQUAL: &[(&str, &str)] = &[
    (
        "lower_case_table_names",
        "tables would have other names there",
    ),
    ("innodb_page_size", "a row that fits here might not there"),
];

/// Whether a server is one that moves can use.
pub(super) fn alone(end: &End, settings: &Settings, reasons: &mut Vec<String>) {
    let of = |name: &str| settings.get(name).map_or("", String::as_str);
    let pod = end.pod;
    if let Some(reason) = wrong_version(of("version"), of("version_comment")) {
        reasons.push(format!("pod {pod}: {reason}"));
    }
    for wrong in wrong_settings(Role::Primary, settings) {
        reasons.push(format!("pod {pod}: {wrong}"));
    }
    if !of("binlog_row_value_options").is_empty() {
        reasons.push(format!(
            "pod {pod}: binlog_row_value_options is {}, must be empty: the binlog would hold parts of documents",
            of("binlog_row_value_options")
        ));
    }
}

/// What of a row might not fit on the other side.
pub(super) fn against_each_other(job: &Job, a: &Settings, b: &Settings, reasons: &mut Vec<String>) {
    let (from, to) = (job.source.pod, job.target.pod);
    for (name, why) in EQUAL {
        let (a, b) = (a.get(*name), b.get(*name));
        if a != b {
            let show = |v: Option<&String>| v.map_or_else(|| "unknown".to_owned(), Clone::clone);
            reasons.push(format!(
                "{name} is {} at pod {from} and {} at pod {to}: {why}; move to a pod with the same setting",
                show(a),
                show(b)
            ));
        }
    }
    let series = |settings: &Settings| -> Option<(u32, u32)> {
        let mut parts = settings.get("version")?.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    if series(b) < series(a) {
        reasons.push(format!(
            "pod {to} runs MySQL {}, older than {} at pod {from}: values and collations of the newer one may be unknown there; upgrade pod {to} first",
            b.get("version").map_or("?", String::as_str),
            a.get("version").map_or("?", String::as_str)
        ));
    }
    let packet = |settings: &Settings| -> u64 {
        let text = settings.get("max_allowed_packet");
        text.and_then(|t| t.parse().ok()).unwrap_or(0)
    };
    if packet(b) < packet(a) {
        reasons.push(format!(
            "max_allowed_packet is {} at pod {from} and {} at pod {to}: a value that fits here might not there; raise it at pod {to}",
            packet(a),
            packet(b)
        ));
    }
}

/// Whether the source keeps its binlogs for as long as the move may need them.
pub(super) fn keeps_binlogs(
    pod: PodId,
    settings: &Settings,
    estimate: &Estimate,
    reasons: &mut Vec<String>,
) {
    let of = |name: &str| settings.get(name).map_or("", String::as_str);
    let kept: u64 = of("binlog_expire_logs_seconds").parse().unwrap_or(0);
    let purges = !matches!(of("binlog_expire_logs_auto_purge"), "OFF" | "0");
    let needed = (estimate.seconds_beside_shops * BINLOG_FACTOR).max(BINLOG_MIN_SECONDS);
    // Zero: they are kept until somebody purges them.
    if purges && kept > 0 && kept < needed {
        reasons.push(format!(
            "pod {pod}: binlog_expire_logs_seconds is {kept}, and the move may need binlogs for {needed} s; raise it"
        ));
    }
}

/// Whether the target keeps its binlogs for as long as the shop may move back: from the hand-over until the end of the
/// time of observation, and while it moves.
pub(super) fn keeps_way_back(
    pod: PodId,
    observe: Duration,
    settings: &Settings,
    estimate: &Estimate,
    reasons: &mut Vec<String>,
) {
    let observe = observe.as_secs();
    let kept = settings.get("binlog_expire_logs_seconds");
    let kept: u64 = kept.and_then(|text| text.parse().ok()).unwrap_or(0);
    let purges = settings.get("binlog_expire_logs_auto_purge");
    let purges = !matches!(purges.map(String::as_str), Some("OFF" | "0"));
    let needed = observe.saturating_add(estimate.seconds_beside_shops * BINLOG_FACTOR);
    if observe > 0 && purges && kept > 0 && kept < needed {
        reasons.push(format!(
            "pod {pod}: binlog_expire_logs_seconds is {kept}, and to move back within the {observe} s of observation needs its \
             binlogs for {needed} s; raise it there, or move with a shorter `--observe`"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binlogs_must_outlive_the_way_back() {
        let check = |kept: &str, hours: u64| {
            let settings =
                HashMap::from([("binlog_expire_logs_seconds".to_owned(), kept.to_owned())]);
            let observe = Duration::from_secs(hours * 3_600);
            let estimate = Estimate::default();
            let mut reasons = Vec::new();
            let pod = PodId::new(3).unwrap();
            keeps_way_back(pod, observe, &settings, &estimate, &mut reasons);
            reasons.len()
        };
        assert_eq!(check("0", 1_000), 0);
        assert_eq!(check("172800", 24), 0);
        assert_eq!(check("172800", 72), 1);
        assert_eq!(check("1", 0), 0, "no way back is wanted");
    }

    #[test]
    fn binlogs_must_outlive_the_move() {
        let settings = |kept: &str| {
            HashMap::from([("binlog_expire_logs_seconds".to_owned(), kept.to_owned())])
        };
        let pod = PodId::new(3).unwrap();
        let check = |kept: &str, seconds| {
            let mut reasons = Vec::new();
            let estimate = Estimate {
                seconds_beside_shops: seconds,
                ..Estimate::default()
            };
            keeps_binlogs(pod, &settings(kept), &estimate, &mut reasons);
            reasons.len()
        };
        assert_eq!(check("0", 1 << 40), 0);
        assert_eq!(check("172800", 10), 0);
        assert_eq!(check("600", 10), 1);
        assert_eq!(check("172800", 100_000), 1);
    }
}
