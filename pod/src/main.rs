//! pod.
fn main() {}
