//! infra.
