//! A lock-free map from a `u32` to a node: the points of a run by depth, and the child runs of a
//! point by first token. Callers are pinned; they retire the nodes that they remove.
//!
//! It is a trie over the mixed bits of the key. The root is one slot inside the owner. A slot is
//! empty, has an entry, or leads to a branch of `FAN` slots of the same kind. So an empty map costs
//! one word, a map of one entry needs no allocation, and a map of 10^5 entries is six or seven
//! steps deep. A change is one compare-and-swap of a slot (two when a branch must first replace an
//! entry). Its cost does not grow with the map, because nothing is ever resized.
//!
//! The mixing is a bijection, so two keys differ in some digit, and the trie is never deeper than a
//! key has digits.
//!
//! # Shrinking
//!
//! A branch counts its occupied slots and the threads that are about to fill an empty slot. A
//! thread counts itself before it fills a slot; the thread that empties a slot subtracts one. A
//! thread that brings the count to zero *closes* the branch, unless another thread has counted
//! itself meanwhile. No slot of a closed branch is ever filled. The closed branch is removed from
//! the slot that leads to it, which subtracts one from the branch above. A thread that finds a
//! branch closed removes it first and then inserts, so no thread waits for another. Readers ignore
//! the counts. A branch with one entry stays: otherwise it would be made and removed again and
//! again where entries come and go.
//!
//! # Invariants
//!
//! - **M1** A slot holds null, an entry, or a branch (`BRANCH`).
//! - **M2** An entry is put into the first empty slot on its key's path, so a key is in the map at
//!   most once.
//! - **M3** The count of a branch is at least the number of its occupied slots. A branch is
//!   unlinked only when it is closed, at a count of zero: it stays empty.
//! - **M4** An entry's key never changes.
//!
//! Counts need no ordering of their own: a thread that empties a slot has read the entry by E1, so
//! it comes after the thread that filled the slot, which had counted itself before.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E1 | `Map::change`: compare-and-swap of a slot | `Map::get`, every walk | an entry or branch that is found is initialised, and was counted |
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::reclaim::{Canary, Guard, Node, Own, Ref, free_owned};
use crate::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sync::{prefetch, prefetch_to_write};

/// Slots of a branch; with the count they fill one cache line. In models there are two, so that
/// two entries need several branches.
const FAN: u32 = if cfg!(any(radixkv_loom, radixkv_shuttle)) { 2 } else { 7 };

/// Tag in a slot's word that leads to a branch.
const BRANCH: usize = 1;

/// Flag in the count of a closed branch.
const CLOSED: u64 = 1 << 63;

/// The node that was not inserted, and the entry that is there instead, if any.
pub(crate) type Occupied<'g, T> = (Own<'g, T>, Option<Ref<'g, T>>);

/// A node that has a fixed key in the map.
pub(crate) trait Keyed: Node {
    fn key(&self) -> u32;
}

/// A lock-free map. It owns its branches, but not its entries.
#[derive(Debug)]
pub(crate) struct Map<T: Keyed> {
    root: TrieSlot,
    entries: PhantomData<AtomicPtr<T>>,
}

type TrieSlot = AtomicPtr<()>;

struct Branch<T> {
    /// Number of occupied slots, and of threads that are about to fill an empty one (M3).
    count: AtomicU64,
    slots: [TrieSlot; FAN as usize],
    canary: Canary,
    entries: PhantomData<AtomicPtr<T>>,
}

const _: () = assert!(align_of::<Branch<()>>() > BRANCH, "the tag needs the low bit");

// SAFETY: a branch is a count and slots; freeing it follows none of them.
unsafe impl<T: 'static> Node for Branch<T> {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }
}

/// The content of a slot.
enum Occupant<'g, T> {
    Nothing,
    Entry(Ref<'g, T>),
    Branch(Ref<'g, Branch<T>>),
}

impl<'g, T> Occupant<'g, T> {
    /// Decodes the word of a slot. A word that is not null was stored by this map (M1).
    #[inline(always)]
    fn of(word: *mut (), guard: &'g Guard<'_>) -> Self {
        let node = untagged(word);
        if word.addr() & BRANCH != 0 {
            Ref::from_ptr(node.cast(), guard).map_or(Self::Nothing, Self::Branch)
        } else {
            Ref::from_ptr(node.cast(), guard).map_or(Self::Nothing, Self::Entry)
        }
    }
}

/// A slot on the path of a key.
#[derive(Debug)]
pub(crate) struct Place<'g, T> {
    slot: &'g TrieSlot,
    /// The branch that the slot is in.
    within: Option<Ref<'g, Branch<T>>>,
    /// Number of branches on the path up to this slot.
    level: u32,
    /// The digits of the key that those branches have not resolved, as in `first_digit`.
    rest: u32,
}

impl<'g, T: 'static> Place<'g, T> {
    /// Moves on to the key's slot in the branch that this slot leads to.
    #[inline(always)]
    fn enter(&mut self, branch: Ref<'g, Branch<T>>) {
        let (digit, rest) = first_digit(self.rest);
        self.slot = &branch.as_ref().slots[digit];
        self.within = Some(branch);
        self.level += 1;
        self.rest = rest;
    }

    /// Prefetches the lines that a change which fills or empties the slot writes.
    #[inline]
    fn prefetch_to_write(&self) {
        prefetch_to_write(self.slot);
        self.within.into_iter().for_each(|branch| prefetch_to_write(&raw const branch.count));
    }
}

fn untagged(word: *mut ()) -> *mut () {
    word.map_addr(|address| address & !BRANCH)
}

fn branch_word<T>(branch: *mut Branch<T>) -> *mut () {
    branch.cast::<()>().map_addr(|address| address | BRANCH)
}

/// Spreads the key over all bits without loss (odd multipliers and shifts are bijections).
fn mix(key: u32) -> u32 {
    if cfg!(any(radixkv_loom, radixkv_shuttle)) {
        return key.reverse_bits(); // small keys differ in their first digits
    }
    let x = (key ^ (key >> 16)).wrapping_mul(0x7feb_352d);
    (x ^ (x >> 15)).wrapping_mul(0x846c_a68b)
}

/// The first digit of a mixed key, read as a fraction of 2^32 in base `FAN`, and the remaining
/// fraction. Two keys that agree in twelve digits of base 7 are equal: 2^32 / 7^12 is less than one.
#[inline(always)]
fn first_digit(mixed: u32) -> (usize, u32) {
    let shifted = u64::from(mixed) * u64::from(FAN);
    ((shifted >> u32::BITS) as usize, shifted as u32)
}

impl<T: Keyed> Map<T> {
    pub(crate) fn new() -> Self {
        Self { root: AtomicPtr::new(ptr::null_mut()), entries: PhantomData }
    }

    /// The entry under `key`. Lock-free; writes nothing.
    #[inline]
    pub(crate) fn get<'g>(&'g self, key: u32, guard: &'g Guard<'_>) -> Option<Ref<'g, T>> {
        self.find(key, guard).0
    }

    /// As [`get`](Self::get), for a caller that is about to change the slot: also returns the
    /// place, for [`insert_at`](Self::insert_at).
    #[inline]
    pub(crate) fn get_to_change<'g>(&'g self, key: u32, guard: &'g Guard<'_>) -> (Option<Ref<'g, T>>, Place<'g, T>) {
        let (entry, place) = self.find(key, guard);
        place.prefetch_to_write();
        (entry, place)
    }

    /// The first place on the path of `key`: the root slot.
    #[inline(always)]
    fn begin(&self, key: u32) -> Place<'_, T> {
        Place { slot: &self.root, within: None, level: 0, rest: mix(key) }
    }

    /// The entry under `key`, and the place where it is or would be.
    #[inline(always)]
    fn find<'g>(&'g self, key: u32, guard: &'g Guard<'_>) -> (Option<Ref<'g, T>>, Place<'g, T>) {
        let mut place = self.begin(key);
        loop {
            // Acquire: E1.
            match Occupant::<T>::of(place.slot.load(Acquire), guard) {
                Occupant::Nothing => return (None, place),
                Occupant::Entry(entry) => return ((entry.key() == key).then_some(entry), place),
                Occupant::Branch(branch) => place.enter(branch),
            }
        }
    }

    /// Prefetches the only entry, or the first branch.
    #[inline]
    pub(crate) fn prefetch(&self) {
        // Relaxed: a hint.
        prefetch(untagged(self.root.load(Relaxed)).cast::<T>().cast_const());
    }

    /// Puts `new` under its key in place of `current` (`None`, or the entry that was found there).
    ///
    /// # Errors
    ///
    /// Returns `new`, and the entry that is there instead, if any.
    pub(crate) fn insert<'g>(
        &'g self,
        current: Option<Ref<'g, T>>,
        new: Own<'g, T>,
        guard: &'g Guard<'g>,
    ) -> Result<Ref<'g, T>, Occupied<'g, T>> {
        self.insert_at(self.begin(new.key()), current, new, guard)
    }

    /// As [`insert`](Self::insert), starting from a place on the path of the key.
    pub(crate) fn insert_at<'g>(
        &'g self,
        place: Place<'g, T>,
        current: Option<Ref<'g, T>>,
        new: Own<'g, T>,
        guard: &'g Guard<'g>,
    ) -> Result<Ref<'g, T>, Occupied<'g, T>> {
        let word = new.as_ptr().cast();
        match self.change(place, new.key(), current, word, guard) {
            Ok(()) => Ok(new.publish()),
            Err(found) => Err((new, found)),
        }
    }

    /// As [`insert`](Self::insert), for the first entry of a map that no other thread can reach
    /// yet.
    pub(crate) fn begin_with(&self, entry: Own<'_, T>) {
        // Relaxed: the publication of the map's owner has E1.
        self.root.store(entry.publish().as_ptr().cast(), Relaxed);
    }

    /// Removes `entry`; false if its key has another entry meanwhile, or none.
    pub(crate) fn remove<'g>(&'g self, entry: Ref<'g, T>, guard: &'g Guard<'g>) -> bool {
        let held: *mut () = entry.as_ptr().cast();
        let mut place = self.begin(entry.key());
        loop {
            // Acquire: E1.
            let word = place.slot.load(Acquire);
            if word == held {
                place.prefetch_to_write();
                // Relaxed: it publishes nothing. On failure it is loaded again.
                if place.slot.compare_exchange(word, ptr::null_mut(), Relaxed, Relaxed).is_ok() {
                    break;
                }
            } else if let Occupant::Branch(branch) = Occupant::<T>::of(word, guard) {
                place.enter(branch);
            } else {
                return false;
            }
        }
        if let Some(branch) = place.within {
            self.leave(branch, entry.key(), guard);
        }
        true
    }

    /// Replaces `current` by `new` with one compare-and-swap of the key's slot, at `place` or
    /// further on the path.
    fn change<'g>(
        &'g self,
        mut place: Place<'g, T>,
        key: u32,
        current: Option<Ref<'g, T>>,
        new: *mut (),
        guard: &'g Guard<'g>,
    ) -> Result<(), Option<Ref<'g, T>>> {
        loop {
            // Acquire: E1.
            let word = place.slot.load(Acquire);
            match Occupant::<T>::of(word, guard) {
                Occupant::Branch(branch) => place.enter(branch),
                Occupant::Nothing if current.is_some() => return Err(None),
                Occupant::Nothing if self.fill(&place, key, new, guard) => return Ok(()),
                Occupant::Nothing => place = self.begin(key),
                Occupant::Entry(entry) if entry.key() == key => {
                    if current != Some(entry) {
                        return Err(Some(entry));
                    }
                    // Release: E1. The word was loaded with E1; after a failure it is loaded again.
                    if place.slot.compare_exchange(word, new, Release, Relaxed).is_ok() {
                        return Ok(());
                    }
                }
                Occupant::Entry(_) if current.is_some() => return Err(None),
                Occupant::Entry(other) => self.grow(&place, other, guard),
            }
        }
    }

    /// Puts `new` into an empty slot on the path of `key`; false if the slot is no longer empty, or
    /// its branch is closed.
    fn fill<'g>(&'g self, place: &Place<'g, T>, key: u32, new: *mut (), guard: &'g Guard<'g>) -> bool {
        if let Some(branch) = place.within.filter(|branch| !branch.admit()) {
            self.take_out(branch, key, guard);
            return false;
        }
        // Release: E1.
        let filled = place.slot.compare_exchange(ptr::null_mut(), new, Release, Relaxed).is_ok();
        if let Some(branch) = place.within.filter(|_| !filled) {
            self.leave(branch, key, guard);
        }
        filled
    }

    /// Replaces `entry` in its slot by a branch that has it as its only entry. If that fails, the
    /// caller looks again.
    fn grow<'g>(&self, place: &Place<'g, T>, entry: Ref<'g, T>, guard: &'g Guard<'g>) {
        let held: *mut () = entry.as_ptr().cast();
        let (digit, _) = first_digit(mix(entry.key()).wrapping_mul(FAN.wrapping_pow(place.level)));
        let branch = Own::new(Branch::<T>::of(held, digit), guard);
        let word = branch_word(branch.as_ptr());
        // Release: E1.
        if place.slot.compare_exchange(held, word, Release, Relaxed).is_ok() {
            branch.publish();
        }
    }

    /// Subtracts one from the count of `branch`, on the path of `key`, and removes the branch if
    /// that closed it.
    fn leave<'g>(&'g self, branch: Ref<'g, Branch<T>>, key: u32, guard: &'g Guard<'g>) {
        if branch.dismiss() {
            self.take_out(branch, key, guard);
        }
    }

    /// Removes a closed branch, on the path of `key`, and branches above it that this closes.
    #[cold]
    fn take_out<'g>(&'g self, closed: Ref<'g, Branch<T>>, key: u32, guard: &'g Guard<'g>) {
        let mut closed = Some(closed);
        while let Some(branch) = closed {
            closed = self.unlink(branch, key, guard).filter(|above| above.dismiss());
        }
    }

    /// Unlinks a closed branch and returns the one above it; `None` if there is none or another
    /// thread was first.
    fn unlink<'g>(&'g self, closed: Ref<'g, Branch<T>>, key: u32, guard: &'g Guard<'g>) -> Option<Ref<'g, Branch<T>>> {
        let mut place = self.begin(key);
        // Acquire: E1.
        while let Occupant::Branch(branch) = Occupant::of(place.slot.load(Acquire), guard) {
            if branch != closed {
                place.enter(branch);
                continue;
            }
            // Relaxed: it publishes nothing. On failure another thread has unlinked it.
            place.slot.compare_exchange(branch_word(branch.as_ptr()), ptr::null_mut(), Relaxed, Relaxed).ok()?;
            guard.retire(branch);
            return place.within;
        }
        None
    }

    /// Calls `visit` for every entry that is in the map during the whole call, and perhaps for
    /// others.
    pub(crate) fn for_each<'g>(&'g self, guard: &'g Guard<'_>, visit: &mut dyn FnMut(Ref<'g, T>)) {
        each(&self.root, guard, &mut |entry| {
            visit(entry);
            false
        });
    }

    /// Calls `is_enough` for entries of the map until it returns true.
    pub(crate) fn seek<'g>(&'g self, guard: &'g Guard<'_>, is_enough: &mut dyn FnMut(Ref<'g, T>) -> bool) {
        each(&self.root, guard, is_enough);
    }

    /// Moves the content of each slot of the first branch to the slot before it, where its key does
    /// not lead.
    #[cfg(test)]
    pub(crate) fn misplace(&self, guard: &Guard<'_>) {
        // Acquire: E1.
        let Occupant::Branch(branch) = Occupant::<T>::of(self.root.load(Acquire), guard) else {
            return;
        };
        // Acquire: E1.
        let words: Vec<_> = branch.as_ref().slots.iter().map(|slot| slot.load(Acquire)).collect();
        let moved = words.iter().cycle().skip(1);
        // Release: E1.
        branch.as_ref().slots.iter().zip(moved).for_each(|(slot, word)| slot.store(*word, Release));
    }

    /// Bytes of the present branches, which dropping the map frees. The caller is pinned.
    #[inline]
    pub(crate) fn branch_bytes(&self) -> usize {
        // Relaxed: only tells whether there is a branch.
        if self.root.load(Relaxed).addr() & BRANCH == 0 { 0 } else { self.bytes_of_branches() }
    }

    fn bytes_of_branches(&self) -> usize {
        let mut bytes = 0;
        each_branch::<T>(&self.root, &mut |_| bytes += size_of::<Branch<T>>());
        bytes
    }
}

impl<T: Keyed> Drop for Map<T> {
    /// Frees the branches, not the entries.
    fn drop(&mut self) {
        each_branch::<T>(&self.root, &mut |branch| {
            // SAFETY: dropping excludes every other user, and each branch is in one slot (M1).
            unsafe { free_owned(branch) };
        });
    }
}

impl<T> Branch<T> {
    /// A branch with `word` in the slot of this digit.
    fn of(word: *mut (), digit: usize) -> Self {
        let slots = std::array::from_fn(|i| AtomicPtr::new(if i == digit { word } else { ptr::null_mut() }));
        Self { count: AtomicU64::new(1), slots, canary: Canary::new(), entries: PhantomData }
    }

    /// Counts a thread that is about to fill an empty slot; false if the branch is closed.
    fn admit(&self) -> bool {
        // Relaxed: M3.
        self.count.fetch_add(1, Relaxed) & CLOSED == 0
    }

    /// Subtracts one, for a thread that filled no slot or for an emptied slot. Returns whether that
    /// was the last one and the branch is now closed.
    fn dismiss(&self) -> bool {
        // Relaxed, twice: M3. The second fails if a thread was admitted meanwhile; that thread
        // subtracts one later.
        self.count.fetch_sub(1, Relaxed) == 1 && self.count.compare_exchange(0, CLOSED, Relaxed, Relaxed).is_ok()
    }
}

/// Calls `is_enough` for entries below `slot` until it returns true; returns whether it did.
fn each<'g, T: Keyed>(slot: &'g TrieSlot, guard: &'g Guard<'_>, is_enough: &mut dyn FnMut(Ref<'g, T>) -> bool) -> bool {
    // Acquire: E1.
    match Occupant::of(slot.load(Acquire), guard) {
        Occupant::Nothing => false,
        Occupant::Entry(entry) => is_enough(entry),
        Occupant::Branch(branch) => branch.as_ref().slots.iter().any(|slot| each(slot, guard, is_enough)),
    }
}

/// Calls `visit` for every branch below `slot`, children first. The caller is pinned or the only
/// user: a thread that saw a dead run earlier may still put a point into its map while the run is
/// retired.
fn each_branch<T: 'static>(slot: &TrieSlot, visit: &mut dyn FnMut(NonNull<Branch<T>>)) {
    // Acquire: E1.
    let word = slot.load(Acquire);
    if word.addr() & BRANCH == 0 {
        return;
    }
    let branch = untagged(word).cast::<Branch<T>>();
    if let Some(branch) = NonNull::new(branch) {
        each_branch_from(branch, visit);
    }
}

fn each_branch_from<T: 'static>(branch: NonNull<Branch<T>>, visit: &mut dyn FnMut(NonNull<Branch<T>>)) {
    // SAFETY: the word was stored by this map (M1), and the branch was linked when the caller was
    // pinned or the only user (M3).
    let slots = unsafe { &branch.as_ref().slots };
    slots.iter().for_each(|slot| each_branch(slot, visit));
    visit(branch);
}

#[cfg(test)]
mod tests;
