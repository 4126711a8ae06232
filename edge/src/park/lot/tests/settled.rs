//! What must be so whenever nothing happens, and when all is over.

use super::*;

impl Scene {
    /// Who may go went, or waits for a slot of that pod, of which none is free; and all that is kept of a shop elsewhere is
    /// what its queue says.
    pub(super) fn is_settled(&self) {
        let lot = &self.lot;
        assert!(lot.ring.is_empty() && lot.ringed.is_empty(), "{lot:?}");
        assert!(lot.stirred.is_empty(), "{lot:?}");
        for pod in lot.waiting.places() {
            assert!(lot.pods.is_full(pod, &lot.settings), "{lot:?}");
        }
        let known = |count: usize| assert!(count <= lot.queues.len(), "{lot:?}");
        known(lot.waiting.len());
        known(lot.asking.len());
        assert_eq!(lot.sizes.len(), lot.queues.len());
        for (shop, queue) in &lot.queues {
            let wanted = queue.wants(&lot.settings);
            assert_eq!(wanted, lot.waiting.place(*shop), "{shop} {lot:?}");
            let asks = queue.asks().map(|(pod, ask, due)| ((pod, ask), due));
            assert_eq!(asks, lot.asking.stands(*shop), "{shop} {lot:?}");
            let due = queue.due(&lot.settings).map(|due| ((), due));
            // What is remembered longer since it was asked for is looked at once too often.
            let alarm = lot.alarms.stands(Alarm::Shop(*shop));
            assert!(due.is_some() == alarm.is_some() && alarm <= due, "{lot:?}");
            let size = lot.sizes.stands(*shop);
            assert_eq!(size, Some(((), queue.waiting())));
        }
        self.asks_as_it_may();
    }

    /// No more ask than may, and nobody who may does not.
    fn asks_as_it_may(&self) {
        let lot = &self.lot;
        for pod in (1..=3).map(|id| at(id, 1).pod) {
            let (slots, [fence, write, read]) = lot.pods.out(pod);
            let max = lot.settings.drain_pod_max;
            assert!(slots + write + read <= max && fence <= max, "{lot:?}");
            let firsts = Ask::ALL.map(|ask| {
                let (due, _) = lot.asking.first((pod, ask))?;
                lot.pods.may_ask(pod, ask, due, &lot.settings)
            });
            let first = firsts.into_iter().flatten().min();
            let alarm = lot.alarms.stands(Alarm::Pod(pod));
            // A pod that has become full since is looked at once too often.
            let late = first.is_some_and(|first| alarm.is_none_or(|((), at)| at > first));
            assert!(!late, "{lot:?}");
            assert!(first.is_none_or(|first| first > self.now), "{lot:?}");
        }
    }

    /// Nothing is left of anything.
    pub(super) fn is_empty(&mut self) {
        self.after(700_000);
        self.after(1);
        let lot = &self.lot;
        assert_eq!((lot.seats(), lot.bytes(), lot.shops()), (0, 0, 0));
        assert_eq!(lot.pods.len(), 0, "{lot:?}");
        let stand = [lot.asking.len(), lot.waiting.len(), lot.alarms.len()];
        assert_eq!((stand, lot.sizes.len()), ([0; 3], 0), "{lot:?}");
    }
}
