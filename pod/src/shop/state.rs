//! The life of an order: one pure function from state and event to the next state and what goes with it.

/// What an order is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// Its units are taken from the stock; the provider has not answered yet.
    Pending,
    /// The money is there.
    Paid,
    /// The provider said no; the units are back.
    PaymentFailed,
    /// Sent to the buyer.
    Fulfilled,
    /// Called off by the merchant before it was sent; money and units are back.
    Cancelled,
    /// Taken back; money and units are back.
    Refunded,
}

impl Status {
    /// All of them, in the order of an order's life.
    pub(crate) const ALL: [Self; 6] = [
        Self::Pending,
        Self::Paid,
        Self::PaymentFailed,
        Self::Fulfilled,
        Self::Cancelled,
        Self::Refunded,
    ];

    /// The word in SQL and JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Paid => "paid",
            Self::PaymentFailed => "payment_failed",
            Self::Fulfilled => "fulfilled",
            Self::Cancelled => "cancelled",
            Self::Refunded => "refunded",
        }
    }

    /// Reads the word.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// The words on a page.
    pub(crate) const fn for_people(self) -> &'static str {
        match self {
            Self::Pending => "Waiting for payment",
            Self::Paid => "Paid",
            Self::PaymentFailed => "Payment failed",
            Self::Fulfilled => "Sent",
            Self::Cancelled => "Cancelled",
            Self::Refunded => "Refunded",
        }
    }
}

/// What happens to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The provider has the money.
    Approve,
    /// The provider has not, and never will under this key.
    Decline,
    /// The merchant sends it.
    Fulfil,
    /// The merchant calls it off.
    Cancel,
    /// The merchant takes it back.
    Refund,
}

impl Event {
    /// All of them.
    #[cfg(test)]
    const ALL: [Self; 5] = [
        Self::Approve,
        Self::Decline,
        Self::Fulfil,
        Self::Cancel,
        Self::Refund,
    ];

    /// The verb in a sentence.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Approve => "approved",
            Self::Decline => "declined",
            Self::Fulfil => "fulfilled",
            Self::Cancel => "cancelled",
            Self::Refund => "refunded",
        }
    }
}

/// The next state, and what has to be done in the same transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// The next state.
    pub(crate) to: Status,
    /// The order's units go back to the stock.
    pub(crate) restock: bool,
    /// The provider has to be told, after the commit, to give the money back.
    pub(crate) money_back: bool,
}

/// The whole state machine. `None`: not from there. No state is entered twice, and every step that restocks leaves a state
/// that holds units for one that does not: so units go back exactly once.
pub(crate) const fn step(from: Status, event: Event) -> Option<Step> {
    let (to, restock, money_back) = match (from, event) {
        (Status::Pending, Event::Approve) => (Status::Paid, false, false),
        (Status::Pending, Event::Decline) => (Status::PaymentFailed, true, false),
        // Approved after we had given up on it: the units are sold to somebody else by now.
        (Status::PaymentFailed, Event::Approve) => (Status::PaymentFailed, false, true),
        (Status::Paid, Event::Fulfil) => (Status::Fulfilled, false, false),
        (Status::Paid, Event::Cancel) => (Status::Cancelled, true, true),
        (Status::Paid | Status::Fulfilled, Event::Refund) => (Status::Refunded, true, true),
        // A pending order's money is in the air: it is settled first, within a minute.
        (Status::Pending, Event::Fulfil | Event::Cancel | Event::Refund)
        | (Status::Paid, Event::Approve | Event::Decline)
        | (Status::PaymentFailed, Event::Decline | Event::Fulfil | Event::Cancel | Event::Refund)
        | (Status::Fulfilled, Event::Approve | Event::Decline | Event::Fulfil | Event::Cancel)
        | (
            Status::Cancelled | Status::Refunded,
            Event::Approve | Event::Decline | Event::Fulfil | Event::Cancel | Event::Refund,
        ) => return None,
    };
    Some(Step {
        to,
        restock,
        money_back,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn holds_units(status: Status) -> bool {
        match status {
            Status::Pending | Status::Paid | Status::Fulfilled => true,
            Status::PaymentFailed | Status::Cancelled | Status::Refunded => false,
        }
    }

    /// Walks every state and event: units go back on just the steps that leave a state which holds some.
    #[test]
    fn units_go_back_exactly_when_they_stop_being_held() {
        for from in Status::ALL {
            for event in Event::ALL {
                if let Some(step) = step(from, event) {
                    let released = holds_units(from) && !holds_units(step.to);
                    assert_eq!(step.restock, released, "{from:?} {event:?}");
                    let taken = !holds_units(from) && holds_units(step.to);
                    assert!(
                        !taken,
                        "{from:?} {event:?} would hold units it does not have"
                    );
                }
            }
        }
    }

    /// Invariant 3: from `pending`, no path gives the money back twice or the units back twice.
    #[test]
    fn inv3_no_path_restocks_or_pays_back_twice() {
        fn walk(at: Status, restocks: u32, refunds: u32, depth: u32) {
            assert!(restocks <= 1, "restocked twice on the way to {at:?}");
            for event in Event::ALL {
                match step(at, event) {
                    Some(step) if step.to != at => walk(
                        step.to,
                        restocks + u32::from(step.restock),
                        refunds + u32::from(step.money_back),
                        depth + 1,
                    ),
                    Some(_) | None => {}
                }
            }
            assert!(refunds <= 1 && depth <= 3);
        }
        walk(Status::Pending, 0, 0, 0);
    }

    #[test]
    fn words_are_read_back() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        assert_eq!(Status::parse("Paid"), None);
    }
}
