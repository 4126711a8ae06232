//! The limits of the application, each with its reason. All have a key of the same name in the table `[shop]` of the
//! config file.

use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use shared::config::Section;

use crate::config::limits::HOLD;
use crate::{App, Error};

/// Lines of an order. Each is a row that the checkout locks, and a transaction has two seconds.
pub const LINES: u32 = 100;
/// Units of one product in one order: more is a slip of the finger, or mischief.
pub const QUANTITY: u32 = 10_000;
/// Units of one product on the shelf. Far from what the column holds, so that no restock can overflow it.
pub const AVAILABLE: u32 = 1_000_000_000;
/// How long a payment provider may take to charge; most answer within a second, and a buyer waits for it.
pub const CHARGE: Duration = Duration::from_secs(2);
/// How long it may take to say what became of a key: one look-up. Asked before and after a charge at most.
pub const FIND: Duration = Duration::from_secs(1);
/// From when on the sweeper takes up a payment that nobody has settled: well after the request that began it has ended.
pub const SETTLE_AFTER: Duration = Duration::from_secs(15);
/// How often the sweeper looks: an order is settled within half a minute of a crash.
pub const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Payments of one shop in one run of the sweeper; the rest are due the next time.
pub const SWEEP_BATCH: u32 = 50;
/// When the sweeper comes back to a payment that the provider could not say anything of.
pub const SWEEP_AGAIN: Duration = Duration::from_secs(10);

const _: () = assert!(FIND.as_millis() * 2 + CHARGE.as_millis() < HOLD.as_millis());
const _: () = assert!(HOLD.as_millis() < SETTLE_AFTER.as_millis());

/// What the application may do at once, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the constants above say it")]
pub struct Limits {
    pub lines: u32,
    pub quantity: u32,
    pub available: u32,
    pub charge: Duration,
    pub find: Duration,
    pub settle_after: Duration,
    pub sweep_every: Duration,
    pub sweep_batch: u32,
    pub sweep_again: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lines: LINES,
            quantity: QUANTITY,
            available: AVAILABLE,
            charge: CHARGE,
            find: FIND,
            settle_after: SETTLE_AFTER,
            sweep_every: SWEEP_EVERY,
            sweep_batch: SWEEP_BATCH,
            sweep_again: SWEEP_AGAIN,
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

impl Limits {
    /// Reads the table `[shop]`.
    pub fn read(s: &mut Section<'_>) -> Self {
        let limits = Self {
            // A page of a hundred orders is read with all of its lines: 10,000 rows, the most a statement may give.
            lines: s.within("lines", LINES, 1..=LINES),
            quantity: s.within("quantity", QUANTITY, 1..=1_000_000),
            available: s.within("available", AVAILABLE, 1..=4_000_000_000),
            charge: s.or("charge", CHARGE),
            find: s.or("find", FIND),
            // The database counts whole seconds.
            settle_after: s.within("settle_after", SETTLE_AFTER, SECOND..=HOUR),
            sweep_every: s.within("sweep_every", SWEEP_EVERY, SECOND..=HOUR),
            sweep_batch: s.within("sweep_batch", SWEEP_BATCH, 1..=10_000),
            sweep_again: s.within("sweep_again", SWEEP_AGAIN, SECOND..=HOUR),
        };
        let provider = limits.find * 2 + limits.charge;
        if provider >= HOLD {
            let rule = format!(
                "twice `find` and `charge` must be less than {} s together",
                HOLD.as_secs()
            );
            s.fault("charge", rule);
        }
        if limits.settle_after <= provider {
            s.fault(
                "settle_after",
                "must be more than twice `find` and `charge` together",
            );
        }
        limits
    }
}

impl FromRequestParts<App> for Limits {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Error> {
        let limits = parts.extensions.get().copied();
        limits.ok_or_else(|| Error::bug("the routes of the shop were mounted without limits"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shared::config;

    use super::*;

    #[test]
    fn limits_that_contradict_each_other_are_named() {
        let read = |text| config::parse(Path::new("pod.toml"), text, |s| Some(Limits::read(s)));
        assert_eq!(read("").unwrap(), Limits::default());
        assert_eq!(read("lines = 7").unwrap().lines, 7);
        assert!(
            read("lines = 101").is_err(),
            "a page of orders would not fit a statement's rows"
        );
        let text = read("charge = \"20s\"\nsettle_after = \"2s\"\nlines = 0\nx = 1")
            .unwrap_err()
            .to_string();
        for part in ["charge", "settle_after", "lines", "x: unknown key"] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
}
