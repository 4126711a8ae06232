//! What a test's own fleets leave behind.
//!
//! A fleet that is stopped says so itself. One that is only dropped cannot: its test has its result by then. So it is
//! noted with the test it was started in, which does not pass.

use std::sync::Arc;

use parking_lot::Mutex;

tokio::task_local! {
    static HERE: Left;
}

/// What was found when the fleets of one test were dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Left(Arc<Mutex<Vec<String>>>);

impl Left {
    /// That of the test that runs here. Outside of one nobody asks for it.
    pub(super) fn here() -> Self {
        HERE.try_with(Self::clone).unwrap_or_default()
    }

    /// Runs a test whose fleets are noted here.
    pub(crate) async fn of<T>(&self, test: impl Future<Output = T>) -> T {
        HERE.scope(self.clone(), test).await
    }

    pub(super) fn note(&self, fault: String) {
        self.0.lock().push(fault);
    }

    /// What was noted.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}
