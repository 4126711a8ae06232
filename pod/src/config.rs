//! The config file, and the limits with their reasons.

/// A checked config.
#[derive(Debug)]
pub struct Config {}
