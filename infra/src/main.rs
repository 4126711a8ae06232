//! infra.
fn main() {}
