//! Where a request goes after a pod said "not here".

use shared::error::Kind;
use shared::{Epoch, PodId};

use super::parked::Stuck;
use super::{Edge, admit};
use crate::context::{Again, Context};
use crate::retry::{Refreshed, Why, after_refresh};

/// Why a request cannot turn to a pod.
pub(super) enum NoWay {
    /// The edge does not know it.
    Unknown,
    /// As many requests are running there as may.
    Busy,
}

impl Edge {
    /// Sends the request where a mark points; to a pod that the edge does not know, after the catalog was asked.
    pub(super) fn follow(&self, context: &mut Context, pod: PodId, epoch: Epoch) -> Again {
        if let Some(route) = &context.route {
            self.parking.marked(route.shop, pod, epoch);
        }
        match self.turn_to(context, pod, epoch) {
            Ok(()) => Again::Send,
            Err(_) => Again::Refresh,
        }
    }

    /// Asks the catalog and sends the request where the table then says, if that is news.
    pub(super) async fn reroute(&self, context: &mut Context) -> Result<(), Stuck> {
        let Some(route) = &context.route else {
            return Err(Stuck::Reply(admit::UNREACHABLE));
        };
        let (shop, refused) = (route.shop, (route.pod_id(), route.epoch));
        // Another request may have asked already: what is news needs no second question.
        if let Refreshed::Send { pod, epoch } = after_refresh(refused, self.routes.placed(shop)) {
            return self.turn(context, pod, epoch);
        }
        if !self.routes.refresh(self.refresh_max).await {
            return Err(Stuck::Later(Why::Catalog));
        }
        match after_refresh(refused, self.routes.placed(shop)) {
            Refreshed::Send { pod, epoch } => self.turn(context, pod, epoch),
            Refreshed::Gone => Err(Stuck::Reply(Kind::UnknownShop.into())),
            Refreshed::Offline => Err(Stuck::Reply(Kind::Offline.into())),
            Refreshed::GiveUp(why) => Err(Stuck::Later(why)),
        }
    }

    fn turn(&self, context: &mut Context, pod: PodId, epoch: Epoch) -> Result<(), Stuck> {
        let turned = self.turn_to(context, pod, epoch);
        turned.map_err(|no| match no {
            NoWay::Unknown => Stuck::Reply(admit::UNREACHABLE),
            NoWay::Busy => Stuck::Reply(self.pod_busy()),
        })
    }

    /// Makes this the request's pod, if there is room.
    pub(super) fn turn_to(
        &self,
        context: &mut Context,
        pod: PodId,
        epoch: Epoch,
    ) -> Result<(), NoWay> {
        let pod = self.routes.pods.get(pod).ok_or(NoWay::Unknown)?;
        // The permit of the pod before is free, whether or not there is one here.
        context.pod_permit = None;
        context.pod_permit = Some(pod.in_flight.enter().ok_or(NoWay::Busy)?);
        if let Some(route) = &mut context.route {
            route.pod = pod;
            route.epoch = epoch;
        }
        context.process = None;
        Ok(())
    }
}
