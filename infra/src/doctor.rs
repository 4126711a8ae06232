//! What is wrong with a fleet, and what to do: facts are gathered in one place and judged, without any I/O, in another.

use std::collections::BTreeSet;

use serde::Serialize;

pub mod facts;
pub mod judge;
pub mod observe;
mod print;

pub use judge::judge;
pub use print::text;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Somebody is not served, or data is in danger.
    Error,
    /// It will become one, or help is missing when one comes.
    Warning,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What was checked: `placement`, `move`, `host`, `bucket`, `schema`, `setting`, `replica`, `identity`, `process`, `disk`,
    /// `table`, `operation`, `route`, `plan`, `control`.
    pub check: &'static str,
    /// The shop, pod, server or process.
    pub subject: String,
    /// What is wrong.
    pub wrong: String,
    /// What to do.
    pub fix: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Whether nothing was found.
    pub healthy: bool,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Of one look.
    pub fn of(mut findings: Vec<Finding>) -> Self {
        findings.sort();
        findings.dedup();
        Self {
            healthy: findings.is_empty(),
            findings,
        }
    }

    /// What two looks have in common: the parts of a fleet are looked at one after the other, and what changed between
    /// them shows as a fault in one look only. The second look's words are kept.
    #[must_use]
    pub fn lasting(self, second: Self) -> Self {
        let key = |finding: &Finding| (finding.check, finding.subject.clone());
        let first: BTreeSet<_> = self.findings.iter().map(key).collect();
        let findings = second
            .findings
            .into_iter()
            .filter(|f| first.contains(&key(f)));
        Self::of(findings.collect())
    }
}
