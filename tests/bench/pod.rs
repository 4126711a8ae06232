//! Part 2: a pod.
use crate::Options;
use anyhow::Result;
pub(crate) async fn run(_: &Options) -> Result<()> {
    Ok(())
}
