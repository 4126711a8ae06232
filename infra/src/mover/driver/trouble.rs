//! What an operator reads of a move that does not get on: what ended an earlier run, until some work is done again, and not for
//! the hours that the rest of the work takes; and what holds the work back for long, until it goes on.
//!
//! How much is done is kept with it, so that counts do not go back when a run ends in the midst of its work.
//!
//! Being held back ends no run: the next one would begin much anew, at pods that have too much to do as it is.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, sleep};

use crate::catalog::{Catalog, MoveDetail, MoveRow};
use crate::mover::error::MoveError;
use crate::mover::job::Job;
use crate::mover::limits::MoveLimits;
use crate::mover::progress::{HeldBack, Progress, Told};

/// Does a part of a run; what ended an earlier one is forgotten on the way, once it does not stand in the way any more.
pub(super) async fn forgetting<T>(
    catalog: &Catalog,
    row: &mut MoveRow,
    job: &Job,
    work: impl Future<Output = Result<T, MoveError>>,
) -> Result<T, MoveError> {
    let mut trouble = Trouble::of(&job.progress, &job.limits);
    trouble.before = Some(trouble.pieces());
    trouble.during(catalog, row, work).await
}

/// Does a part of a run that waits for something: only what holds it back for long is told.
pub(super) async fn telling<T>(
    catalog: &Catalog,
    row: &mut MoveRow,
    job: &Job,
    work: impl Future<Output = Result<T, MoveError>>,
) -> Result<T, MoveError> {
    let mut trouble = Trouble::of(&job.progress, &job.limits);
    trouble.during(catalog, row, work).await
}

/// What has been told.
#[derive(Debug)]
pub(super) struct Trouble<'a> {
    progress: &'a Progress,
    limits: &'a MoveLimits,
    /// The pieces of work that were done when an earlier run's trouble was found; nothing where that stays.
    before: Option<u64>,
    told: Told,
    /// What the move waited for before anything was told.
    instead_of: Option<String>,
    /// When it was kept how much is done.
    counted: Instant,
}

impl<'a> Trouble<'a> {
    pub(super) fn of(progress: &'a Progress, limits: &'a MoveLimits) -> Self {
        Self {
            progress,
            limits,
            before: None,
            told: Told::default(),
            instead_of: None,
            counted: Instant::now(),
        }
    }

    async fn during<T>(
        &mut self,
        catalog: &Catalog,
        row: &mut MoveRow,
        work: impl Future<Output = Result<T, MoveError>>,
    ) -> Result<T, MoveError> {
        let done = tokio::select! {
            biased;
            done = work => done,
            never = self.keep_looking(catalog, row) => match never {},
        };
        if done.is_ok() {
            self.look(catalog, row).await;
        }
        done
    }

    async fn keep_looking(&mut self, catalog: &Catalog, row: &mut MoveRow) -> Infallible {
        loop {
            sleep(self.limits.note_every).await;
            self.look(catalog, row).await;
        }
    }

    /// Tells what is to be told by now, and forgets what is not so any more.
    pub(super) async fn look(&mut self, catalog: &Catalog, row: &mut MoveRow) {
        self.count(catalog, row).await;
        let held = self.progress.held_back.lock().clone();
        let bounds = held
            .as_ref()
            .map_or(0, |held| held.bounds(self.limits.throttle_bound));
        match held {
            Some(held) if bounds > 0 => self.hold(catalog, row, &held, bounds).await,
            Some(_) | None => self.go_on(catalog, row).await,
        }
    }

    /// Keeps how much is done. If it is not kept now, it is the next time.
    async fn count(&mut self, catalog: &Catalog, row: &mut MoveRow) {
        if self.counted.elapsed() < self.limits.note_every {
            return;
        }
        self.counted = Instant::now();
        let mut record = row.detail.record.clone();
        self.progress.now().keep_in(&mut record);
        if record == row.detail.record {
            return;
        }
        match catalog.note_counts(row, &record).await {
            Ok(counted) => *row = counted,
            Err(error) => {
                tracing::debug!(id = %row.id, "not counted: {}", shared::error::chain(&error));
            }
        }
    }

    /// Told again it says what holds the work back by then.
    async fn hold(&mut self, catalog: &Catalog, row: &mut MoveRow, held: &HeldBack, bounds: u128) {
        if !self.told.is_news(bounds) {
            return;
        }
        let before = row.detail.waits.clone();
        let error = row.error.clone();
        if !note(catalog, row, Some(held.told()), error.as_deref()).await {
            return;
        }
        if !self.told.stands() {
            self.instead_of = before;
        }
        self.told = Told::from(bounds);
    }

    async fn go_on(&mut self, catalog: &Catalog, row: &mut MoveRow) {
        let passed = self.before.is_some_and(|before| self.pieces() != before);
        let (waits, error) = if passed {
            (None, None)
        } else if self.told.stands() {
            (self.instead_of.clone(), row.error.clone())
        } else {
            return;
        };
        let same = row.detail.waits == waits && row.error == error;
        if same || note(catalog, row, waits, error.as_deref()).await {
            self.told = Told::default();
        }
    }

    fn pieces(&self) -> u64 {
        self.progress.pieces.load(Ordering::Relaxed)
    }
}

/// Whether it is noted. If not, the move is another's, or the catalog is busy: it is tried again as long as there is a run to
/// do it.
async fn note(
    catalog: &Catalog,
    row: &mut MoveRow,
    waits: Option<String>,
    error: Option<&str>,
) -> bool {
    let detail = MoveDetail {
        waits,
        ..row.detail.clone()
    };
    match catalog.note_move(row, &detail, error).await {
        Ok(noted) => {
            *row = noted;
            true
        }
        Err(error) => {
            tracing::debug!(id = %row.id, "not noted: {}", shared::error::chain(&error));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::moves::MoveId;
    use tokio::time::timeout;

    use super::*;
    use crate::catalog::tests::{catalog, make};
    use crate::catalog::{MoveRef, NewMove, ShopRef};

    const EVERY: Duration = Duration::from_millis(10);

    async fn begun(catalog: &Catalog) -> MoveRow {
        let shop = make(catalog, "snow").await;
        let new = NewMove {
            shop: ShopRef::Id(shop.id),
            target: if shop.pod.name == "one" { "two" } else { "one" }.to_owned(),
            reason: None,
            observe_ms: 0,
            despite_strays: 0,
        };
        let row = catalog.begin_move("ops", &new).await.unwrap();
        let taken = catalog.take_move(row.id, "a", 1_000, true).await;
        taken.unwrap().unwrap()
    }

    async fn told(catalog: &Catalog, id: MoveId) -> (Option<String>, Option<String>) {
        let row = catalog.move_row(&MoveRef::Id(id)).await.unwrap();
        (row.error, row.detail.waits)
    }

    fn limits() -> MoveLimits {
        MoveLimits {
            note_every: EVERY,
            throttle_bound: EVERY * 10,
            ..MoveLimits::default()
        }
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[tokio::test]
    async fn what_ended_an_earlier_run_is_told_until_a_piece_of_work_is_done() {
        let (_dir, catalog) = catalog().await;
        let mut row = begun(&catalog).await;
        row.detail.waits = some("held back");
        let noted = catalog.note_move(&row, &row.detail, Some("connect failed"));
        let mut row = noted.await.unwrap();
        let id = row.id;
        let (progress, limits) = (Progress::default(), limits());
        // What another run did counts for nothing, nor do rows that were there before.
        Progress::add(&progress.pieces, 7);
        let mut trouble = Trouble::of(&progress, &limits);
        trouble.before = Some(7);
        let mut forgetting = std::pin::pin!(trouble.keep_looking(&catalog, &mut row));
        Progress::add(&progress.rows_copied, 7);
        timeout(EVERY * 10, &mut forgetting).await.unwrap_err();
        let before = (some("connect failed"), some("held back"));
        assert_eq!(told(&catalog, id).await, before);
        Progress::add(&progress.pieces, 1);
        let forgotten = async {
            while told(&catalog, id).await != (None, None) {
                sleep(EVERY).await;
            }
        };
        let forgotten = async {
            tokio::select! {
                never = forgetting => match never {},
                () = forgotten => {}
            }
        };
        timeout(Duration::from_secs(60), forgotten).await.unwrap();
    }

    /// A control server that takes the move up begins with these. That some more are copied is no event.
    #[tokio::test]
    async fn what_is_done_is_kept_while_it_goes_on() {
        let (_dir, catalog) = catalog().await;
        let mut row = begun(&catalog).await;
        let id = row.id;
        let (progress, limits) = (Progress::default(), limits());
        let events = async || catalog.move_events(id, 0).await.unwrap().len();
        let (before, changed) = (events().await, row.changed_ms);
        let mut trouble = Trouble::of(&progress, &limits);
        // Until the next step of the move only the driver knows this.
        (
            row.detail.record.compared_rows,
            row.detail.record.repaired_rows,
        ) = (7, 1);
        for rows in [30, 40] {
            progress.rows_copied.store(rows, Ordering::Relaxed);
            sleep(EVERY * 2).await;
            trouble.look(&catalog, &mut row).await;
            let kept = catalog.move_row(&MoveRef::Id(id)).await.unwrap();
            assert_eq!(kept.detail.record.copied_rows, rows);
            let compared = |row: &MoveRow| {
                let record = &row.detail.record;
                (record.compared_rows, record.repaired_rows)
            };
            assert_eq!((compared(&kept), compared(&row)), ((7, 1), (7, 1)));
            assert_eq!(kept.changed_ms, changed);
        }
        assert_eq!(events().await, before);
    }

    /// Past its bound, and again each time that it lasts twice as long; then the move waits for what it waited for before.
    #[tokio::test]
    async fn what_holds_work_back_for_long_is_told_until_it_goes_on() {
        let (_dir, catalog) = catalog().await;
        let mut row = begun(&catalog).await;
        row.detail.waits = some("a fence");
        let noted = catalog.note_move(&row, &row.detail, Some("an error")).await;
        let mut row = noted.unwrap();
        let id = row.id;
        let (progress, limits) = (Progress::default(), limits());
        let held_for = |bounds: u32, by: &str| {
            let since = Instant::now() - limits.throttle_bound.saturating_mul(bounds);
            let by = by.to_owned();
            *progress.held_back.lock() = Some(HeldBack { by, since });
        };
        let mut trouble = Trouble::of(&progress, &limits);
        for (bounds, by, expected) in [
            (0, "a replica", None),
            (1, "a replica", Some("a replica")),
            // The same again would be news again and again.
            (1, "a disk", Some("a replica")),
            (2, "a disk", Some("a disk")),
        ] {
            held_for(bounds, by);
            trouble.look(&catalog, &mut row).await;
            let (error, waits) = told(&catalog, id).await;
            assert_eq!(error, some("an error"));
            let waits = waits.unwrap();
            let says = expected.map_or_else(|| "a fence".to_owned(), |by| format!("now: {by};"));
            assert!(waits.contains(&says), "{bounds} bounds: {waits}");
        }
        *progress.held_back.lock() = None;
        trouble.look(&catalog, &mut row).await;
        assert_eq!(
            told(&catalog, id).await,
            (some("an error"), some("a fence"))
        );
    }
}
