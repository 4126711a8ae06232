//! The shops of a route table and the index of their names, in shards.
//!
//! A shop is one slot ([`super::slot`]); the two indexes ([`super::probe`]) hold no names of their own. A look-up reads
//! two shards and compares the name in the slot, so that an entry that points at a slot which changed meanwhile finds
//! nothing wrong. A writer never holds two locks: a reader waits at most for one shard to grow (about a millisecond
//! with ten million shops), never for a whole change.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use parking_lot::RwLock;

use super::probe::{Probe, VALUE_MAX};
use super::slot::{NameKind, Slot};
use crate::{Placement, ShopId};

/// With ten million shops a shard has 40,000 slots: growing it copies 2.5 MB, about a millisecond.
const SHARDS: usize = 256;

/// Which slot: the shard in the low byte, the slot's number above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place(u32);

impl Place {
    fn new(shard: usize, slot: usize) -> Option<Self> {
        let raw = u32::try_from(slot.checked_mul(SHARDS)? + shard).ok()?;
        (raw <= VALUE_MAX).then_some(Self(raw))
    }

    const fn shard(self) -> usize {
        self.0 as usize % SHARDS
    }

    const fn slot(self) -> usize {
        self.0 as usize / SHARDS
    }
}

#[derive(Debug, Default)]
struct Shard {
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    by_id: Probe,
}

impl Shard {
    fn get(&self, slot: usize) -> Option<&Slot> {
        self.slots.get(slot)?.as_ref()
    }

    fn find(&self, half: u32, shop: ShopId) -> Option<usize> {
        let is = |raw: u32| {
            self.get(Place(raw).slot())
                .is_some_and(|s| s.placement.shop() == shop)
        };
        self.by_id.find(half, is).map(|raw| Place(raw).slot())
    }
}

/// Where a name or an id is looked for.
#[derive(Debug, Clone, Copy)]
struct Key {
    shard: usize,
    half: u32,
}

impl From<u64> for Key {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "one half is meant, and eight bits of the other"
    )]
    fn from(hash: u64) -> Self {
        Self {
            shard: (hash >> 32) as usize % SHARDS,
            half: hash as u32,
        }
    }
}

/// All shops and names. Writers are serialised by the owner; readers need nobody.
#[derive(Debug)]
pub(super) struct Index {
    hasher: RandomState,
    shops: Box<[RwLock<Shard>]>,
    names: Box<[RwLock<Probe>]>,
    len: AtomicUsize,
}

impl Index {
    pub(super) fn with_capacity(shops: usize) -> Self {
        // A little more than the mean: the shards are not filled evenly.
        let each = if shops == 0 {
            0
        } else {
            shops / SHARDS + shops / SHARDS / 16 + 8
        };
        let shard = |_| {
            RwLock::new(Shard {
                slots: Vec::with_capacity(each),
                free: Vec::new(),
                by_id: Probe::with_capacity(each),
            })
        };
        let names = |_| RwLock::new(Probe::with_capacity(each));
        Self {
            hasher: RandomState::default(),
            shops: (0..SHARDS).map(shard).collect(),
            names: (0..SHARDS).map(names).collect(),
            len: AtomicUsize::new(0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn shop_key(&self, shop: ShopId) -> Key {
        self.hasher.hash_one(shop).into()
    }

    fn name_key(&self, kind: NameKind, name: &str) -> Key {
        self.hasher.hash_one((kind, name)).into()
    }

    /// The shop of a name.
    pub(super) fn lookup(&self, kind: NameKind, name: &str) -> Option<Placement> {
        self.with_name(kind, name, |_, slot| slot.placement.into())
    }

    fn with_name<T>(
        &self,
        kind: NameKind,
        name: &str,
        read: impl FnOnce(Place, &Slot) -> T,
    ) -> Option<T> {
        let key = self.name_key(kind, name);
        let names = self.names[key.shard].read();
        let (mut read, mut found) = (Some(read), None);
        names.find(key.half, |raw| {
            let place = Place(raw);
            let shard = self.shops[place.shard()].read();
            let slot = shard.get(place.slot()).filter(|s| s.has(kind, name));
            found = slot.and_then(|slot| Some(read.take()?(place, slot)));
            found.is_some()
        });
        found
    }

    /// What is stored of a shop.
    pub(super) fn with_shop<T>(&self, shop: ShopId, read: impl FnOnce(&Slot) -> T) -> Option<T> {
        let key = self.shop_key(shop);
        let shard = self.shops[key.shard].read();
        let slot = shard.find(key.half, shop)?;
        shard.get(slot).map(read)
    }

    /// Every shop, shard by shard.
    pub(super) fn try_for_each<E>(
        &self,
        mut each: impl FnMut(&Slot) -> Result<(), E>,
    ) -> Result<(), E> {
        for shard in &self.shops {
            let shard = shard.read();
            shard.slots.iter().flatten().try_for_each(&mut each)?;
        }
        Ok(())
    }

    /// Puts a shop in the place of its former self or into a new slot, and its names into the index. A host of another
    /// shop is taken over: readers see the former owner until the one moment in which they see the new one. The caller
    /// has made sure that no other shop has the handle. `false`: no room.
    pub(super) fn put(&self, new: &Slot) -> bool {
        let Some((place, old)) = self.store(new.clone()) else {
            return false;
        };
        let kept = |(kind, name): (NameKind, &str)| old.as_ref().is_some_and(|o| o.has(kind, name));
        for (kind, name) in new.names() {
            if !kept((kind, name)) {
                self.point(kind, name, place);
            }
        }
        if let Some(old) = &old {
            for (kind, name) in old.names() {
                if !new.has(kind, name) {
                    self.unpoint(kind, name, place);
                }
            }
        }
        true
    }

    fn store(&self, new: Slot) -> Option<(Place, Option<Slot>)> {
        let shop = new.placement.shop();
        let key = self.shop_key(shop);
        let mut shard = self.shops[key.shard].write();
        if let Some(slot) = shard.find(key.half, shop) {
            let old = shard.slots[slot].replace(new);
            return Some((Place::new(key.shard, slot)?, old));
        }
        let slot = shard.free.last().copied().unwrap_or(shard.slots.len());
        let place = Place::new(key.shard, slot)?;
        if shard.free.pop().is_some() {
            shard.slots[slot] = Some(new);
        } else {
            shard.slots.push(Some(new));
        }
        shard.by_id.insert(key.half, place.0);
        self.len.fetch_add(1, Ordering::Relaxed);
        Some((place, None))
    }

    /// Makes a name point at a slot; a former owner of a host loses it, after the switch.
    fn point(&self, kind: NameKind, name: &str, place: Place) {
        let former = self.with_name(kind, name, |place, _| place);
        let key = self.name_key(kind, name);
        {
            let mut names = self.names[key.shard].write();
            let switched = former.is_some_and(|former| names.replace(key.half, former.0, place.0));
            if !switched {
                names.insert(key.half, place.0);
            }
        }
        if let Some(former) = former.filter(|former| *former != place) {
            let mut shard = self.shops[former.shard()].write();
            if let Some(Some(slot)) = shard.slots.get_mut(former.slot()) {
                let hosts = slot.hosts().filter(|host| *host != name);
                *slot = Slot::new(slot.placement.into(), slot.handle(), hosts);
            }
        }
    }

    fn unpoint(&self, kind: NameKind, name: &str, place: Place) {
        let key = self.name_key(kind, name);
        self.names[key.shard].write().remove(key.half, place.0);
    }

    /// Takes a shop out; `None` if it was not there.
    pub(super) fn remove(&self, shop: ShopId) -> Option<Slot> {
        let key = self.shop_key(shop);
        let (place, old) = {
            let mut shard = self.shops[key.shard].write();
            let slot = shard.find(key.half, shop)?;
            let place = Place::new(key.shard, slot)?;
            let old = shard.slots[slot].take()?;
            shard.by_id.remove(key.half, place.0);
            (place, old)
        };
        for (kind, name) in old.names() {
            self.unpoint(kind, name, place);
        }
        // Free only now: no name may point at the next owner of the slot.
        self.shops[key.shard].write().free.push(place.slot());
        self.len.fetch_sub(1, Ordering::Relaxed);
        Some(old)
    }

    /// Gives back what the growing vectors hold in excess.
    pub(super) fn shrink(&mut self) {
        for shard in &mut self.shops {
            shard.get_mut().slots.shrink_to_fit();
        }
    }
}
