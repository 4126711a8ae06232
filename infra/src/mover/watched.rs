//! A shop's rows at a pod that does not own it, until they are gone: whoever else changes them is seen, told and counted, and
//! no row goes after a change that the last dump may not have.
//!
//! The source's copy after the hand-over is such rows, and so are those that no move made and that an operator has ordered to be
//! cleared.

use std::sync::Arc;
use std::time::Duration;

use shared::gtid::GtidSet;
use tokio::time::sleep;

use super::error::MoveError;
use super::job::Job;
use super::session::{COMMIT_LIMIT, Session};
use super::table::{Table, discover};
use super::tail::{STRAYS_KEPT, Strays, Tail};
use crate::api::Stray;
use crate::catalog::{MoveDetail, now_ms};

/// How often strays are looked for.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the pod's binlog may stand still while it is read to its end: it holds other shops' changes too.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(30);

/// Where what was seen is kept.
pub(crate) trait Account: Send {
    /// What is kept by now.
    fn detail(&self) -> &MoveDetail;

    /// Keeps this; so many changes in it are new.
    fn keep(
        &mut self,
        detail: MoveDetail,
        found: u64,
    ) -> impl Future<Output = Result<(), MoveError>> + Send;

    /// While rows are deleted: what else is to be told now and then.
    fn look_on(&mut self) -> impl Future<Output = ()> + Send;
}

/// The rows, at the source of a job.
#[derive(Debug)]
pub(crate) struct Watched {
    job: Job,
    tables: Arc<[Table]>,
    tail: Tail,
}

impl Watched {
    /// Follows the pod's binlog from where an earlier run had looked at it. Where that is not known, or that part of it is gone, nobody
    /// will know what it held: that counts as a change, and the watch goes on from here.
    pub(crate) async fn open(
        job: &Job,
        from: Option<&str>,
        account: &mut impl Account,
    ) -> Result<Self, MoveError> {
        let mut session = Session::open(job, &job.source).await?;
        let tables: Arc<[Table]> = discover(&mut session).await?.into();
        let executed = session.gtid_executed().await?;
        session.close().await;
        let tail = match from.and_then(|text| GtidSet::parse(text).ok()) {
            Some(from) => Tail::source(job, &tables, from.intersection(&executed)).await,
            None => Err(MoveError::Binlog {
                pod: job.source.pod,
                text: "the move's record names no set of transactions to look from".to_owned(),
            }),
        };
        let tail = match tail {
            Err(MoveError::Binlog { text, .. }) => {
                let mut detail = account.detail().clone();
                detail.watched = Some(executed.to_string());
                let found = take_in(&mut detail, unseen(text, now_ms()));
                account.keep(detail, found).await?;
                Tail::source(job, &tables, executed).await?
            }
            tail => tail?,
        };
        let job = job.clone();
        Ok(Self { job, tables, tail })
    }

    /// The shop's tables there.
    pub(crate) fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// What sees the changes.
    pub(crate) const fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Takes what was seen into the account; gives how many changes there are by now. Where that fails the run ends, and the
    /// next one sees them again.
    pub(crate) async fn look(&self, account: &mut impl Account) -> Result<u64, MoveError> {
        self.take(account).await?;
        Ok(account.detail().strays_told())
    }

    /// Reads all that the pod has executed by now; gives how many changes there are. All of them are committed.
    pub(crate) async fn read_to_the_end(
        &self,
        account: &mut impl Account,
    ) -> Result<u64, MoveError> {
        let mut session = Session::open(&self.job, &self.job.source).await?;
        let executed = session.gtid_executed().await?;
        self.tail.wait_for(&executed, READ_WITHIN).await?;
        let looked_at = self.take(account).await?;
        // A transaction is in the binlog before it is committed. What is counted is there for whoever dumps it.
        session.wait_executed(&looked_at, COMMIT_LIMIT).await?;
        session.close().await;
        Ok(account.detail().strays_told())
    }

    async fn take(&self, account: &mut impl Account) -> Result<GtidSet, MoveError> {
        let (strays, looked_at) = self.tail.take_strays()?;
        let mut detail = account.detail().clone();
        let found = take_in(&mut detail, strays);
        if found > 0 || self.tail.is_to_note(&looked_at) {
            detail.watched = Some(looked_at.to_string());
            account.keep(detail, found).await?;
        }
        Ok(looked_at)
    }

    /// Lets them be deleted, unless there are other changes than the dump is of (`strays`); gives whether they are gone, and
    /// nothing has changed meanwhile.
    pub(crate) async fn until_gone(
        &self,
        account: &mut impl Account,
        strays: u64,
        deleting: impl Future<Output = Result<(), MoveError>>,
    ) -> Result<bool, MoveError> {
        // The dump may have taken long: nobody has looked at what was written since.
        if self.read_to_the_end(account).await? != strays {
            return Ok(false);
        }
        let mut deleting = std::pin::pin!(deleting);
        loop {
            tokio::select! {
                done = &mut deleting => {
                    done?;
                    // A table whose rows were gone already may have new ones.
                    return Ok(self.read_to_the_end(account).await? == strays);
                }
                () = sleep(LOOK_EVERY) => {
                    account.look_on().await;
                    if self.look(account).await? != strays {
                        return Ok(false);
                    }
                }
            }
        }
    }
}

/// Whether so many changes are to be told, where so many were: the first one, and each time that there are twice as many. A job
/// that writes on and on would fill the log and the move's events.
pub(crate) const fn is_news(before: u64, now: u64) -> bool {
    now.leading_zeros() < before.leading_zeros()
}

/// What nobody will know, as a stray: it has no transaction, so that it is one however often it is met.
fn unseen(text: String, at_ms: i64) -> Strays {
    let stray = Stray {
        table: text,
        gtid: String::new(),
        at_ms: u64::try_from(at_ms).unwrap_or(0),
    };
    Strays {
        listed: vec![stray],
        more: 0,
    }
}

/// Adds strays that are not known yet, within the bound of those that are listed; says how many there were.
fn take_in(detail: &mut MoveDetail, found: Strays) -> u64 {
    let told = detail.strays_told();
    let mut count = found.more;
    for stray in found.listed {
        let known = detail
            .strays
            .iter()
            .any(|known| (&known.table, &known.gtid) == (&stray.table, &stray.gtid));
        if known {
            continue;
        }
        count += 1;
        if detail.strays.len() < STRAYS_KEPT {
            detail.strays.push(stray);
        }
    }
    detail.strays_total = told + count;
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strays(numbers: std::ops::Range<u64>) -> Strays {
        let of = |number| Stray {
            table: "orders".to_owned(),
            gtid: format!("a:{number}"),
            at_ms: 7,
        };
        Strays {
            listed: numbers.map(of).collect(),
            more: 0,
        }
    }

    #[test]
    fn what_was_not_seen_counts_once_and_within_the_bound() {
        let mut detail = MoveDetail::default();
        for at_ms in [7, 8] {
            take_in(&mut detail, unseen("purged".to_owned(), at_ms));
        }
        let first = detail.strays.first().unwrap();
        assert_eq!((detail.strays.len(), first.at_ms), (1, 7));
        for number in 0..2 * STRAYS_KEPT {
            take_in(&mut detail, unseen(number.to_string(), 9));
        }
        assert_eq!(detail.strays.len(), STRAYS_KEPT);
    }

    #[test]
    fn what_goes_on_and_on_is_told_at_each_double() {
        let told: Vec<u64> = (1..=100).filter(|now| is_news(now - 1, *now)).collect();
        assert_eq!(told, [1, 2, 4, 8, 16, 32, 64]);
        assert!(is_news(3, 9) && !is_news(9, 9) && !is_news(0, 0));
    }

    /// A word holds for what was looked at: neither the same ones that are met again nor the bound of the list changes what
    /// it says, and one more stands.
    #[test]
    fn a_word_is_of_the_strays_that_there_were_also_beyond_those_that_are_listed() {
        let mut detail = MoveDetail::default();
        assert!(!detail.strays_stand());
        let many = STRAYS_KEPT as u64 + 3;
        for (upto, new) in [(2, 2), (2, 0), (many, many - 2)] {
            assert_eq!(take_in(&mut detail, strays(0..upto)), new);
            assert_eq!(detail.strays_stand(), new > 0);
            detail.strays_let_go = detail.strays_told();
            assert!(!detail.strays_stand());
        }
        assert_eq!(
            (detail.strays.len(), detail.strays_told()),
            (STRAYS_KEPT, many)
        );
        let more = Strays {
            listed: Vec::new(),
            more: 1,
        };
        assert_eq!(take_in(&mut detail, more), 1);
        assert!(detail.strays_stand());
        // Of a move that was under way before they were counted.
        detail.strays_total = 0;
        assert_eq!(detail.strays_told(), STRAYS_KEPT as u64);
    }
}
