//! The shops of a route table and the index of their names, in shards.
//!
//! A shop is one slot of 40 bytes plus its names in one allocation (`handle\nhost\nhost`). The two indexes hold no
//! names of their own: eight bytes a name (half of its hash, and the slot) and four bytes an id. A look-up reads two
//! shards and compares the name in the slot, so that an entry that points at a slot which changed meanwhile finds nothing
//! wrong. A writer never holds two locks: a reader waits at most for one shard to grow (well under a millisecond with ten
//! million shops), never for a whole change.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use parking_lot::RwLock;

use super::slot::{NameKind, Slot};
use crate::{Placement, ShopId};

/// With ten million shops a shard has 40,000 slots: growing it copies 1.6 MB, a fraction of a millisecond.
const SHARDS: usize = 256;
/// A slot's number within its shard takes 24 of the 32 bits of a [`Place`].
const SLOTS_PER_SHARD_MAX: usize = 1 << 24;

/// Which slot: the shard in the low byte, the slot's number above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    fn new(shard: usize, slot: usize) -> Option<Self> {
        if slot >= SLOTS_PER_SHARD_MAX {
            return None;
        }
        u32::try_from(slot * SHARDS + shard).ok().map(Self)
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
    free: Vec<u32>,
    by_id: HashTable<u32>,
}

impl Shard {
    fn get(&self, slot: usize) -> Option<&Slot> {
        self.slots.get(slot)?.as_ref()
    }

    fn find(&self, hash: u64, shop: ShopId) -> Option<usize> {
        let is = |slot: &u32| {
            self.get(*slot as usize)
                .is_some_and(|s| s.placement.shop() == shop)
        };
        self.by_id.find(hash, is).map(|slot| *slot as usize)
    }
}

/// An entry of the name index.
#[derive(Debug, Clone, Copy)]
struct Name {
    half: u32,
    place: Place,
}

/// Where a name is looked for.
#[derive(Debug, Clone, Copy)]
struct NameKey {
    shard: usize,
    half: u32,
}

impl NameKey {
    /// What the table is asked with. The stored half of the hash gives the whole again, so a growing table reads no slot.
    const fn spread(half: u32) -> u64 {
        // 2^64 divided by the golden ratio (Knuth 6.4): the table wants its tag in the top bits.
        (half as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// All shops and names. Writers are serialised by the owner; readers need nobody.
#[derive(Debug)]
pub(super) struct Index {
    hasher: RandomState,
    shops: Box<[RwLock<Shard>]>,
    names: Box<[RwLock<HashTable<Name>>]>,
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
                by_id: HashTable::with_capacity(each),
            })
        };
        let names = |_| RwLock::new(HashTable::with_capacity(each));
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

    fn shop_key(&self, shop: ShopId) -> (usize, u64) {
        let hash = self.hasher.hash_one(shop);
        // The table takes the low bits and the top seven; these are from between.
        ((hash >> 40) as usize % SHARDS, hash)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low half is meant, and eight bits of the other"
    )]
    fn name_key(&self, kind: NameKind, name: &str) -> NameKey {
        let hash = self.hasher.hash_one((kind, name));
        NameKey {
            shard: (hash >> 32) as usize % SHARDS,
            half: hash as u32,
        }
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
        for entry in names.iter_hash(NameKey::spread(key.half)) {
            if entry.half != key.half {
                continue;
            }
            let shard = self.shops[entry.place.shard()].read();
            if let Some(slot) = shard.get(entry.place.slot()).filter(|s| s.has(kind, name)) {
                return Some(read(entry.place, slot));
            }
        }
        None
    }

    /// What is stored of a shop.
    pub(super) fn with_shop<T>(&self, shop: ShopId, read: impl FnOnce(&Slot) -> T) -> Option<T> {
        let (shard, hash) = self.shop_key(shop);
        let shard = self.shops[shard].read();
        let slot = shard.find(hash, shop)?;
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
    /// shop is taken over: readers see the former owner until the one moment in which they see the new one. The caller has
    /// made sure that no other shop has the handle. `false`: no room.
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
        let (number, hash) = self.shop_key(shop);
        let mut shard = self.shops[number].write();
        let shard = &mut *shard;
        if let Some(slot) = shard.find(hash, shop) {
            let old = shard.slots[slot].replace(new);
            return Some((Place::new(number, slot)?, old));
        }
        let slot = match shard.free.pop() {
            Some(slot) => slot as usize,
            None => shard.slots.len(),
        };
        let place = Place::new(number, slot)?;
        if slot == shard.slots.len() {
            shard.slots.push(Some(new));
        } else {
            shard.slots[slot] = Some(new);
        }
        let Shard { slots, by_id, .. } = shard;
        let rehash = |slot: &u32| {
            let stored = slots.get(*slot as usize).and_then(Option::as_ref);
            stored.map_or(0, |s| self.hasher.hash_one(s.placement.shop()))
        };
        by_id.insert_unique(hash, u32::try_from(slot).ok()?, rehash);
        self.len.fetch_add(1, Ordering::Relaxed);
        Some((place, None))
    }

    /// Makes a name point at a slot; a former owner of a host loses it, after the switch.
    fn point(&self, kind: NameKind, name: &str, place: Place) {
        let former = self.with_name(kind, name, |place, _| place);
        let key = self.name_key(kind, name);
        {
            let mut names = self.names[key.shard].write();
            let hash = NameKey::spread(key.half);
            let is = |e: &Name| e.half == key.half && Some(e.place) == former;
            if let Some(entry) = names.find_mut(hash, is) {
                entry.place = place;
            } else {
                let entry = Name {
                    half: key.half,
                    place,
                };
                names.insert_unique(hash, entry, |e| NameKey::spread(e.half));
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
        let mut names = self.names[key.shard].write();
        let is = |e: &Name| e.half == key.half && e.place == place;
        if let Ok(entry) = names.find_entry(NameKey::spread(key.half), is) {
            entry.remove();
        }
    }

    /// Takes a shop out; `None` if it was not there.
    pub(super) fn remove(&self, shop: ShopId) -> Option<Slot> {
        let (number, hash) = self.shop_key(shop);
        let (place, old) = {
            let mut shard = self.shops[number].write();
            let slot = shard.find(hash, shop)?;
            let old = shard.slots[slot].take()?;
            let number_of = u32::try_from(slot).ok()?;
            if let Ok(entry) = shard.by_id.find_entry(hash, |s| *s == number_of) {
                entry.remove();
            }
            (Place::new(number, slot)?, old)
        };
        for (kind, name) in old.names() {
            self.unpoint(kind, name, place);
        }
        // Free only now: no name may point at the next owner of the slot.
        let freed = u32::try_from(place.slot()).ok()?;
        self.shops[number].write().free.push(freed);
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
