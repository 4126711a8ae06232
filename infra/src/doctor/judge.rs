//! From facts to findings. Pure: the same facts give the same findings.

use std::fmt::Display;

use super::facts::Facts;
use super::{Finding, Severity};

mod fleet;
mod moves;
mod placements;
mod schema;
mod servers;

/// Everything that is wrong.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Found::default();
    if facts.is_stopped() {
        // Everything else would say the same of each part.
        fleet::units(facts.supervised, &facts.units, &mut found);
        fleet::disks(&facts.disks, &mut found);
        return found.findings;
    }
    match &facts.catalog {
        Ok(catalog) => {
            fleet::reconciled(catalog, &mut found);
            fleet::operations(catalog, facts.at, &mut found);
            fleet::buckets(catalog, &mut found);
            fleet::routes(catalog, &facts.units, &mut found);
            placements::hosts(catalog, &mut found);
            placements::homes(catalog, &facts.pods, &mut found);
            moves::moves(catalog, facts.at, &mut found);
            moves::homes(catalog, &facts.pods, &mut found);
        }
        Err(why) => found.error(
            "control",
            "control server",
            format!("it cannot be asked: {why}"),
            "start the fleet with `podctl up`; `podctl process list` shows whether it runs",
        ),
    }
    for (id, pod) in &facts.pods {
        let catalog = facts.catalog.as_ref().ok();
        let known = catalog.and_then(|catalog| catalog.pods.iter().find(|pod| pod.id == *id));
        let primary = catalog.and_then(|c| c.status.primaries.iter().find(|it| it.pod == *id));
        schema::contents(*id, pod, known, &mut found);
        servers::all(
            *id,
            pod,
            primary.and_then(|it| it.reason.as_deref()),
            &mut found,
        );
    }
    if let Some(plan) = &facts.plan {
        fleet::plan(plan, &mut found);
    }
    fleet::units(facts.supervised, &facts.units, &mut found);
    fleet::disks(&facts.disks, &mut found);
    found.findings
}

/// Collects findings.
#[derive(Debug, Default)]
struct Found {
    findings: Vec<Finding>,
}

impl Found {
    fn add(
        &mut self,
        severity: Severity,
        check: &'static str,
        subject: impl Display,
        wrong: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let (subject, wrong, fix) = (subject.to_string(), wrong.into(), fix.into());
        self.findings.push(Finding {
            severity,
            check,
            subject,
            wrong,
            fix,
        });
    }

    fn error(
        &mut self,
        check: &'static str,
        subject: impl Display,
        wrong: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(Severity::Error, check, subject, wrong, fix);
    }

    fn warning(
        &mut self,
        check: &'static str,
        subject: impl Display,
        wrong: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.add(Severity::Warning, check, subject, wrong, fix);
    }
}

#[cfg(test)]
mod tests;
