//! How a request finds its shop.

use anyhow::Result;
use tests::suite::Test;
use tests::{Fleet, tests};

pub(crate) fn list() -> Vec<Test> {
    tests![shares: an_unknown_host_is_a_404_problem]
}

/// A host that no shop has is told so, as a problem for machines and as a page for people.
async fn an_unknown_host_is_a_404_problem(fleet: &Fleet) -> Result<()> {
    let call = tests::Call::get("/");
    fleet
        .edge
        .send("nobody.example", &call)
        .await?
        .wants_problem(404, "unknown-shop")?;
    let page = fleet
        .edge
        .send("nobody.example", &call.browser())
        .await?
        .wants(404)?;
    assert!(
        page.header("content-type")
            .unwrap_or_default()
            .starts_with("text/html")
    );
    Ok(())
}
