//! Reads the Prometheus text of an admin port.

use anyhow::{Context, Result};

/// The sum of a metric over all its labels; 0 if it was never counted.
pub async fn total(admin: &str, name: &str) -> Result<f64> {
    sum(admin, name, "").await
}

/// The sum of a metric over the lines whose labels contain a text (`outcome="unknown"`).
pub async fn sum(admin: &str, name: &str, label: &str) -> Result<f64> {
    let base = admin.trim_end_matches('/');
    let base = if base.contains("://") {
        base.to_owned()
    } else {
        format!("http://{base}")
    };
    let answer = reqwest::get(format!("{base}/metrics"))
        .await
        .context("ask for metrics")?;
    let text = answer
        .error_for_status()
        .context("ask for metrics")?
        .text()
        .await;
    Ok(sum_in(&text.context("read the metrics")?, name, label))
}

fn sum_in(text: &str, name: &str, label: &str) -> f64 {
    let of_name = |line: &&str| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']) && rest.contains(label))
    };
    let lines = text.lines().filter(of_name);
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are whole words and labels choose lines.
    #[test]
    fn sums_one_metric() {
        let text = "# TYPE a counter\na{x=\"1\"} 2\na{x=\"2\"} 3\na_total 100\na 1\n";
        assert!((sum_in(text, "a", "") - 6.0).abs() < f64::EPSILON);
        assert!((sum_in(text, "a", "x=\"2\"") - 3.0).abs() < f64::EPSILON);
    }
}
