//! The commerce application.
