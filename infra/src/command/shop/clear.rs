//! `podctl shop clear`: rows of a shop at a pod that does not own it.

use super::known;
use crate::api::ShopClear;
use crate::cli::ShopClearAt;
use crate::client::Control;
use crate::command::pod::or_known_pods;
use crate::command::{Context, moves};

/// Orders it; it goes on by itself.
pub(super) async fn at(cx: &Context, control: &Control, wish: ShopClearAt) -> anyhow::Result<()> {
    let ShopClearAt { shop, at, reason } = wish;
    // Asked for first: a slip in a name gets a better answer than the order could give.
    known(control, &shop, control.shop(&shop).await).await?;
    or_known_pods(control, &at, control.pod(&at).await).await?;
    let ordered = control.shop_clear(&shop, &ShopClear { at, reason }).await?;
    Ok(cx.out.result(&ordered, moves::print::ordered)?)
}
