//! Reads the binlog of a pod's primary: which rows of one shop each transaction changed.
//!
//! Of a row only the key is taken; the values of all other columns are gone past by their length. The reader follows the
//! server by sets of transactions (GTIDs), never by files. Whatever it cannot follow exactly is an error: an event that
//! is damaged, a change that came as a statement, less than whole rows, tables that are not what they were, files that
//! were purged.

use std::time::Duration;

use shared::gtid::GtidSet;
use tokio::time::{Instant, sleep};

use super::error::MoveError;
use super::job::End;
use stream::Stream;
use transaction::Transactions;

// Bytes in order.
mod bytes;
// One event.
mod event;
// A task that reads on.
mod follow;
// A compressed transaction.
mod payload;
// A statement.
mod query;
// Row events.
mod rows;
// All events of a connection.
mod stream;
// Columns as the binlog describes them.
mod table_map;
// Events put together.
mod transaction;
// Values of keys.
mod value;
// The connection.
mod wire;

pub(crate) use follow::{Follow, Sink};
pub(crate) use transaction::{Seen, Watch};

/// A transaction is in the binlog before it is executed: it waits for a replica's acknowledgement meanwhile. So what was
/// read may be ahead of what the server says for so long.
const EXECUTED_WAIT: Duration = Duration::from_secs(3);
/// Between two looks.
const EXECUTED_LOOK: Duration = Duration::from_millis(50);

/// A reader of one server's binlog.
#[derive(Debug)]
pub(crate) struct Reader {
    stream: Stream,
    transactions: Transactions,
}

impl Reader {
    /// Begins after the set `from`: with every transaction that is not in it. All of those must be there still, and the
    /// server must have all of `from`, or it is not the server that `from` was read from.
    pub(crate) async fn open(end: &End, watch: Watch, from: &GtidSet) -> Result<Self, MoveError> {
        let began = Instant::now();
        let mut stream = loop {
            let (stream, sets) = Stream::connect(end).await?;
            let gone = sets.purged.minus(from);
            if !gone.is_empty() {
                let text = format!(
                    "{} has purged transactions that the move has not read: {gone}",
                    end.primary
                );
                return Err(MoveError::Binlog { pod: end.pod, text });
            }
            let ahead = from.minus(&sets.executed);
            if ahead.is_empty() {
                break stream;
            }
            if began.elapsed() > EXECUTED_WAIT {
                let text = format!(
                    "{} lacks transactions that the move has read: {ahead}",
                    end.primary
                );
                return Err(MoveError::PrimaryChanged { pod: end.pod, text });
            }
            sleep(EXECUTED_LOOK).await;
        };
        stream.ask(from).await?;
        Ok(Self {
            stream,
            transactions: Transactions::new(watch),
        })
    }

    /// Goes on for a reader whose connection died: what that one has seen half of is not unknown.
    pub(crate) fn instead_of(mut self, before: Self) -> Self {
        self.transactions.remember(before.transactions);
        self
    }

    /// Reads the next event and appends what it says. Dropped half way, the reader is of no more use.
    pub(crate) async fn read(&mut self, out: &mut Vec<Seen>) -> Result<(), MoveError> {
        let event = self.stream.next().await?;
        self.transactions.take(&event, out)
    }
}
