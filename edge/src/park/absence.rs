//! The times in which a pod has no primary: one is waited for, a second one so soon after it is not.

use std::time::Instant;

use super::settings::Settings;
use crate::retry::Why;

/// One of those times, as a shop's requests met it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absence {
    began: Instant,
    /// When the last of those that had waited was sent; its beginning while it lasts.
    ended: Instant,
}

impl Absence {
    /// The absence that a refusal belongs to which nobody waits behind yet: the last one, or a new one. Errors with
    /// [`Why::Gap`] where it is a new one too soon.
    pub(crate) fn after(
        last: Option<Self>,
        settings: &Settings,
        now: Instant,
    ) -> Result<Self, Why> {
        match last {
            Some(last) if last.goes_on(settings, now) => Ok(last),
            Some(last) if now < last.known_until(settings) => Err(Why::Gap),
            Some(_) | None => Ok(Self {
                began: now,
                ended: now,
            }),
        }
    }

    /// A pod's processes find its primary one after the other, so one may refuse when another has answered. That has an
    /// end: a primary that comes and goes is not waited for again and again.
    fn goes_on(self, settings: &Settings, now: Instant) -> bool {
        now < self.ended + settings.settle() && now < self.began + settings.fence_max
    }

    /// The last of those that waited was sent.
    pub(crate) const fn end(&mut self, now: Instant) {
        self.ended = now;
    }

    /// How long it keeps others from being waited for.
    pub(crate) fn known_until(self, settings: &Settings) -> Instant {
        self.ended + settings.unready_gap
    }
}
