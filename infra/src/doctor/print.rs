//! The diagnosis for people.

use super::{Diagnosis, Severity};
use crate::output::count;

/// A paragraph for each finding, or one sentence.
pub fn text(diagnosis: &Diagnosis) -> String {
    if diagnosis.healthy {
        return "nothing is wrong".into();
    }
    let paragraphs: Vec<_> = diagnosis
        .findings
        .iter()
        .map(|finding| {
            let severity = match finding.severity {
                Severity::Error => "ERROR",
                Severity::Warning => "warning",
            };
            format!(
                "{severity} {} {}: {}\n    {}",
                finding.check, finding.subject, finding.wrong, finding.fix
            )
        })
        .collect();
    let (errors, warnings): (Vec<_>, Vec<_>) = diagnosis
        .findings
        .iter()
        .partition(|finding| finding.severity == Severity::Error);
    format!(
        "{}\n\n{}, {}",
        paragraphs.join("\n"),
        count(errors.len() as u64, "error"),
        count(warnings.len() as u64, "warning")
    )
}
