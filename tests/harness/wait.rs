//! Waits for a state with a deadline, and says the last state seen when it never came.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

/// How often a state is looked at: short against everything that is waited for, long against a look.
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// Looks until `look` gives a value. Its error is "not yet, because ..." and ends up in the failure.
pub async fn wait_until<T, F>(what: &str, deadline: Duration, mut look: F) -> Result<T>
where
    F: AsyncFnMut() -> Result<T>,
{
    let started = Instant::now();
    let mut before = None;
    loop {
        let left = deadline.saturating_sub(started.elapsed()).max(LOOK_EVERY);
        let last = match tokio::time::timeout(left, look()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(not_yet)) => not_yet,
            // What an earlier look saw says more than that this one was cut short.
            Err(_) => before
                .take()
                .unwrap_or_else(|| anyhow!("the look did not end")),
        };
        if started.elapsed() >= deadline {
            return Err(last).with_context(|| format!("not within {deadline:?}: {what}"));
        }
        before = Some(last);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The failure names what was waited for and what was last seen.
    #[tokio::test]
    async fn the_last_state_is_in_the_failure() {
        let mut looks = 0;
        let failure = wait_until("the moon is full", Duration::from_millis(90), async || {
            looks += 1;
            Err::<(), _>(anyhow!("it is {looks} days old"))
        })
        .await
        .unwrap_err();
        let text = format!("{failure:#}");
        assert!(
            text.contains("the moon is full") && text.contains("days old"),
            "{text}"
        );
        assert!(looks >= 2);
    }

    /// A look that hangs does not hang the wait.
    #[tokio::test]
    async fn a_look_that_hangs_is_bounded() {
        let forever = async || std::future::pending::<Result<()>>().await;
        assert!(
            wait_until("never", Duration::from_millis(50), forever)
                .await
                .is_err()
        );
    }
}
