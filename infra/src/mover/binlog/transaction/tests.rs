//! Transactions put together from events, damaged and strange ones too.
