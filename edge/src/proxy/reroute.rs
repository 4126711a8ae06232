//! Where a request goes after a pod said "not here".

use shared::error::Kind;
use shared::{Epoch, PodId};

use super::{Edge, admit};
use crate::context::{Again, Context};
use crate::reply::Reply;
use crate::retry::{Refreshed, Why, after_refresh};

impl Edge {
    /// Sends the request where the mark of the table's pod points; to a pod that the edge does not know, after the
    /// catalog was asked.
    pub(super) fn follow(&self, context: &mut Context, pod: PodId, epoch: Epoch) -> Again {
        match self.turn_to(context, pod, epoch, false) {
            Ok(()) => Again::Send,
            Err(_) => Again::Refresh,
        }
    }

    /// Asks the catalog and sends the request where the table then says, if that is news.
    pub(super) async fn reroute(&self, context: &mut Context) -> Result<(), Reply> {
        let Some(route) = &context.route else {
            return Err(admit::UNREACHABLE);
        };
        let (shop, refused) = (route.shop, (route.pod_id(), route.epoch));
        // Another request may have asked already: what is news needs no second question.
        if let Refreshed::Send { pod, epoch } = after_refresh(refused, self.placed(shop)) {
            return self.turn_to(context, pod, epoch, true);
        }
        if !self.routes.refresh(self.refresh_max).await {
            return Err(self.give_up(Why::Catalog));
        }
        match after_refresh(refused, self.placed(shop)) {
            Refreshed::Send { pod, epoch } => self.turn_to(context, pod, epoch, true),
            Refreshed::Gone => Err(Kind::UnknownShop.into()),
            Refreshed::Offline => Err(Kind::Offline.into()),
            Refreshed::GiveUp(why) => Err(self.give_up(why)),
        }
    }

    fn placed(&self, shop: shared::ShopId) -> Option<(PodId, Epoch, shared::PlacementState)> {
        let table = self.routes.table();
        let placement = table.as_ref()?.lookup_shop(shop)?;
        Some((placement.pod, placement.epoch, placement.state))
    }

    fn turn_to(
        &self,
        context: &mut Context,
        pod: PodId,
        epoch: Epoch,
        by_table: bool,
    ) -> Result<(), Reply> {
        let pod = self.routes.pods.get(pod).ok_or(admit::UNREACHABLE)?;
        self.enter_pod(context, &pod)?;
        if let Some(route) = &mut context.route {
            route.pod = pod;
            route.epoch = epoch;
            route.by_table = by_table;
        }
        context.process = None;
        Ok(())
    }
}
