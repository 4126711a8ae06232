//! edge.
fn main() {}
