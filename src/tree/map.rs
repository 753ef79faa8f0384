//! A lock-free map from a `u32` to a node: the points of a run by depth, the child runs of a point by first token.
//!
//! A trie over the mixed bits of the key. The root is one slot inside the owner: empty, the only entry inline, or a
//! branch of `FAN` slots, each of them the same again. So a map of nothing costs a word, a map of one entry costs no
//! allocation, and a map of 10^5 entries is reached in four or five steps. A change is one compare-and-swap of a slot
//! (two when an entry must first give way to a branch), at a cost that does not grow: nothing is ever resized.
//!
//! The mixing is a bijection, so two keys differ in some digit and the trie is never deeper than the key has digits.
//!
//! # Shrinking
//!
//! A branch that is left empty is taken out: every slot of it is *frozen* (a tag after which every compare-and-swap of the
//! slot fails), then the slot that led to it is swapped for its content: nothing, or a copy if something came before the last slot
//! was frozen. A thread that meets a frozen slot on the way to a change finishes this first, so no thread waits. Readers ignore the
//! tag. A branch with one entry stays: where entries come and go, it would be made and taken out by turns.
//!
//! # Invariants
//!
//! - **M1** A slot holds null, an entry, or a branch (`BRANCH`), each perhaps `FROZEN`. A frozen slot never changes.
//! - **M2** An entry is put into the first empty slot on its key's path, so a key is in the map at most once.
//! - **M3** A branch is unlinked only when all its slots are frozen, and what replaces it holds the same entries.
//! - **M4** An entry's key never changes.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E1 | `Map::change`: compare-and-swap of a slot | `Map::get`, every walk | an entry or branch that is found is initialised |
//! | Dekker | `remove`, `replace` empty a slot, then look at the others of the branch | the same, of another slot | the one that comes last sees that the branch is empty |
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::reclaim::{Canary, Guard, Node, Own, Ref, free_owned};
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sync::{dekker, prefetch, prefetch_to_write};

/// Bits of the key that one branch resolves; one under a model checker, where two entries then need several branches.
const DIGIT: u32 = if cfg!(any(radixkv_loom, radixkv_shuttle)) { 1 } else { 4 };
const FAN: usize = 1 << DIGIT;

const BRANCH: usize = 1;
const FROZEN: usize = 2;

/// The node that was not inserted, and the entry that has its key.
pub(crate) type Occupied<'g, T> = (Own<'g, T>, Option<Ref<'g, T>>);

/// A node that knows its key in the map.
pub(crate) trait Keyed: Node {
    fn key(&self) -> u32;
}

/// The map. It owns its branches, and does not own its entries.
#[derive(Debug)]
pub(crate) struct Map<T: Keyed> {
    root: TrieSlot,
    entries: PhantomData<AtomicPtr<T>>,
}

type TrieSlot = AtomicPtr<()>;

struct Branch<T> {
    slots: [TrieSlot; FAN],
    canary: Canary,
    entries: PhantomData<AtomicPtr<T>>,
}

const _: () = assert!(align_of::<Branch<()>>() > FROZEN | BRANCH, "tags need the low bits");

// SAFETY: a branch is a `Box` of slots; freeing it follows none of them.
unsafe impl<T: 'static> Node for Branch<T> {
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }

    fn canary(&self) -> &Canary {
        &self.canary
    }
}

/// What is in a slot.
enum Occupant<'g, T> {
    Nothing,
    Entry(Ref<'g, T>),
    Branch(Ref<'g, Branch<T>>),
}

impl<'g, T> Occupant<'g, T> {
    /// The slot's content without its tags. A word that is not null was stored by this map (M1).
    #[inline(always)]
    fn of(word: *mut (), guard: &'g Guard<'_>) -> Self {
        let node = word.map_addr(|address| address & !(BRANCH | FROZEN));
        if word.addr() & BRANCH != 0 {
            Ref::from_ptr(node.cast(), guard).map_or(Self::Nothing, Self::Branch)
        } else {
            Ref::from_ptr(node.cast(), guard).map_or(Self::Nothing, Self::Entry)
        }
    }
}

fn is_frozen(word: *mut ()) -> bool {
    word.addr() & FROZEN != 0
}

fn branch_word<T>(branch: *mut Branch<T>) -> *mut () {
    branch.cast::<()>().map_addr(|address| address | BRANCH)
}

/// Spreads the key over all bits and loses none (an odd multiplier and shifts are bijections).
fn mix(key: u32) -> u32 {
    if cfg!(any(radixkv_loom, radixkv_shuttle)) {
        return key; // small keys differ in their low bits
    }
    let x = (key ^ (key >> 16)).wrapping_mul(0x7feb_352d);
    (x ^ (x >> 15)).wrapping_mul(0x846c_a68b)
}

fn digit(mixed: u32, level: u32) -> usize {
    (mixed >> (DIGIT * level)) as usize & (FAN - 1)
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

    /// As [`get`](Self::get), for a caller that is about to change what is there.
    #[inline]
    pub(crate) fn get_to_change<'g>(&'g self, key: u32, guard: &'g Guard<'_>) -> Option<Ref<'g, T>> {
        let (entry, slot) = self.find(key, guard);
        prefetch_to_write(slot);
        entry
    }

    /// The entry under `key`, and the slot where it is or would be.
    #[inline(always)]
    fn find<'g>(&'g self, key: u32, guard: &'g Guard<'_>) -> (Option<Ref<'g, T>>, &'g TrieSlot) {
        let mut slot = &self.root;
        let mut level = 0;
        loop {
            // Acquire: E1.
            match Occupant::<T>::of(slot.load(Acquire), guard) {
                Occupant::Nothing => return (None, slot),
                Occupant::Entry(entry) => return ((entry.key() == key).then_some(entry), slot),
                Occupant::Branch(branch) => {
                    slot = &branch.as_ref().slots[digit(mix(key), level)];
                    level += 1;
                }
            }
        }
    }

    /// Prefetches the only entry, or the first branch.
    #[inline]
    pub(crate) fn prefetch(&self) {
        // Relaxed: a hint.
        let first = self.root.load(Relaxed).map_addr(|address| address & !(BRANCH | FROZEN));
        prefetch(first.cast::<T>().cast_const());
    }

    /// Prefetches the next thing on the way to `key` behind so many branches.
    pub(crate) fn prefetch_way(&self, key: u32, branches: u32, guard: &Guard<'_>) {
        let (mut slot, mixed) = (&self.root, mix(key));
        for level in 0..branches {
            // Acquire: E1.
            match Occupant::<T>::of(slot.load(Acquire), guard) {
                Occupant::Branch(branch) => slot = &branch.as_ref().slots[digit(mixed, level)],
                Occupant::Nothing | Occupant::Entry(_) => return,
            }
        }
        // Relaxed: a hint.
        prefetch(slot.load(Relaxed).map_addr(|address| address & !(BRANCH | FROZEN)).cast::<Branch<T>>().cast_const());
    }

    /// Puts `new` under its key in place of `current` (nothing, or the entry that was found there).
    ///
    /// # Errors
    ///
    /// Gives `new` back with the entry that is there instead, if any.
    pub(crate) fn insert<'g>(
        &'g self,
        current: Option<Ref<'g, T>>,
        new: Own<'g, T>,
        guard: &'g Guard<'g>,
    ) -> Result<Ref<'g, T>, Occupied<'g, T>> {
        let word = new.as_ptr().cast();
        match self.change(new.key(), current, word, guard) {
            Ok(()) => Ok(new.publish()),
            Err(found) => Err((new, found)),
        }
    }

    /// The same for the first entry of a map that no other thread can reach yet.
    pub(crate) fn begin_with(&self, entry: Own<'_, T>) {
        // Relaxed: what makes the map reachable has E1.
        self.root.store(entry.publish().as_ptr().cast(), Relaxed);
    }

    /// Takes `entry` out; false if its key has another entry, or none, by then.
    pub(crate) fn remove<'g>(&'g self, entry: Ref<'g, T>, guard: &'g Guard<'g>) -> bool {
        let held: *mut () = entry.as_ptr().cast();
        let mixed = mix(entry.key());
        let (mut slot, mut level) = (&self.root, 0);
        let mut within = None;
        loop {
            // Acquire: E1.
            let word = slot.load(Acquire);
            if word == held {
                // Dekker. On failure it is loaded again.
                if slot.compare_exchange(word, ptr::null_mut(), dekker::CHANGE, Relaxed).is_ok() {
                    break;
                }
            } else if is_frozen(word) {
                self.thaw(entry.key(), guard);
                (slot, level, within) = (&self.root, 0, None);
            } else if let Occupant::Branch(branch) = Occupant::<T>::of(word, guard) {
                slot = &branch.as_ref().slots[digit(mixed, level)];
                level += 1;
                within = Some(branch);
            } else {
                return false;
            }
        }
        if within.is_some_and(|branch| branch.is_empty()) {
            self.tidy(entry.key(), guard);
        }
        true
    }

    /// One compare-and-swap of the slot of `key` from `current` to `new`.
    fn change<'g>(
        &'g self,
        key: u32,
        current: Option<Ref<'g, T>>,
        new: *mut (),
        guard: &'g Guard<'g>,
    ) -> Result<(), Option<Ref<'g, T>>> {
        let (mut slot, mut level) = (&self.root, 0);
        loop {
            // Acquire: E1.
            let word = slot.load(Acquire);
            if is_frozen(word) {
                self.thaw(key, guard);
                (slot, level) = (&self.root, 0);
                continue;
            }
            match Occupant::<T>::of(word, guard) {
                Occupant::Branch(branch) => {
                    slot = &branch.as_ref().slots[digit(mix(key), level)];
                    level += 1;
                    continue;
                }
                Occupant::Nothing if current.is_none() => {}
                Occupant::Nothing => return Err(None),
                Occupant::Entry(entry) if entry.key() == key => {
                    if current != Some(entry) {
                        return Err(Some(entry));
                    }
                }
                Occupant::Entry(_) if current.is_some() => return Err(None),
                Occupant::Entry(other) => {
                    self.grow(slot, other, level, guard);
                    continue;
                }
            }
            // Release: E1. The word was loaded with its edge, and a failure is loaded again.
            if slot.compare_exchange(word, new, Release, Relaxed).is_ok() {
                return Ok(());
            }
        }
    }

    /// Replaces `entry`, alone in `slot`, by a branch that holds it; if that fails the caller looks again.
    fn grow<'g>(&self, slot: &TrieSlot, entry: Ref<'g, T>, level: u32, guard: &'g Guard<'g>) {
        let at = digit(mix(entry.key()), level);
        let held: *mut () = entry.as_ptr().cast();
        let branch = Own::new(Branch::<T>::with(|i| if i == at { held } else { ptr::null_mut() }), guard);
        let word = branch_word(branch.as_ptr());
        // Release: E1.
        if slot.compare_exchange(held, word, Release, Relaxed).is_ok() {
            branch.publish();
        }
    }

    /// Takes out branches on the path of `key` that hold nothing, deepest first.
    fn tidy<'g>(&'g self, key: u32, guard: &'g Guard<'g>) {
        while !self.try_tidy(key, guard) {
            self.thaw(key, guard);
        }
    }

    /// The same; false where a branch hangs in a slot that another thread has frozen: what replaces that branch would keep it.
    fn try_tidy<'g>(&'g self, key: u32, guard: &'g Guard<'g>) -> bool {
        let mut path = smallvec::SmallVec::<[(&TrieSlot, Ref<'g, Branch<T>>); 8]>::new();
        let (mut slot, mut level) = (&self.root, 0);
        // Acquire: E1; in no model is there a branch here that the change before did not pass through.
        while let Occupant::Branch(branch) = Occupant::of(slot.load(Acquire), guard) {
            path.push((slot, branch));
            slot = &branch.as_ref().slots[digit(mix(key), level)];
            level += 1;
        }
        while let Some((slot, branch)) = path.pop() {
            if !branch.is_empty() {
                return true;
            }
            if !self.replace(slot, branch, guard) {
                return false;
            }
        }
        true
    }

    /// Finishes the first replacement of a branch on the path of `key`.
    fn thaw<'g>(&'g self, key: u32, guard: &'g Guard<'g>) {
        let (mut slot, mut level) = (&self.root, 0);
        // Acquire: E1.
        while let Occupant::Branch(branch) = Occupant::of(slot.load(Acquire), guard) {
            let next = &branch.as_ref().slots[digit(mix(key), level)];
            // Relaxed: only the tag counts; `replace` freezes for itself, and the next turn loads again.
            if is_frozen(next.load(Relaxed)) {
                self.replace(slot, branch, guard);
                return;
            }
            slot = next;
            level += 1;
        }
    }

    /// Freezes `branch` and, if `slot` still leads to it, swaps it for its content (M3). False if the slot is frozen.
    fn replace<'g>(&self, slot: &TrieSlot, branch: Ref<'g, Branch<T>>, guard: &'g Guard<'g>) -> bool {
        let content = branch.freeze();
        let is_empty = content.iter().all(|word| word.is_null());
        let copy = (!is_empty).then(|| Own::new(Branch::<T>::with(|i| content[i]), guard));
        let word = copy.as_ref().map_or(ptr::null_mut(), |copy| branch_word(copy.as_ptr()));
        // Release: E1, for a fresh copy, and Dekker. The threads that froze the branch are pinned until they have finished with it.
        // On failure another thread has replaced it, and Dekker from its change on; or it has frozen the slot.
        match slot.compare_exchange(branch_word(branch.as_ptr()), word, dekker::CHANGE, dekker::LOOK) {
            Ok(_) => {
                if let Some(copy) = copy {
                    copy.publish();
                }
                guard.retire(branch);
                true
            }
            Err(found) => !is_frozen(found),
        }
    }

    /// Calls `visit` with every entry that is in the map during the whole call, and perhaps with others.
    pub(crate) fn for_each<'g>(&'g self, guard: &'g Guard<'_>, visit: &mut dyn FnMut(Ref<'g, T>)) {
        each(&self.root, guard, &mut |entry| {
            visit(entry);
            false
        });
    }

    /// Calls `is_enough` with entries of the map until it returns true.
    pub(crate) fn seek<'g>(&'g self, guard: &'g Guard<'_>, is_enough: &mut dyn FnMut(Ref<'g, T>) -> bool) {
        each(&self.root, guard, is_enough);
    }

    /// Moves the content of every slot of the first branch one slot on, where its keys do not lead.
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

    /// Bytes of the branches that dropping the map frees, as far as they are there now. Called while pinned.
    #[inline]
    pub(crate) fn branch_bytes(&self) -> usize {
        // Relaxed: whether there is any.
        if self.root.load(Relaxed).addr() & BRANCH == 0 { 0 } else { self.bytes_of_branches() }
    }

    fn bytes_of_branches(&self) -> usize {
        let mut bytes = 0;
        each_branch::<T>(&self.root, &mut |_| bytes += size_of::<Branch<T>>());
        bytes
    }
}

impl<T: Keyed> Drop for Map<T> {
    /// Frees the branches; entries belong to the index.
    fn drop(&mut self) {
        each_branch::<T>(&self.root, &mut |branch| {
            // SAFETY: dropping excludes every other user, and each branch hangs in one slot (M1).
            unsafe { free_owned(branch) };
        });
    }
}

impl<T> Branch<T> {
    fn with(content: impl Fn(usize) -> *mut ()) -> Self {
        Self { slots: std::array::from_fn(|i| AtomicPtr::new(content(i))), canary: Canary::new(), entries: PhantomData }
    }

    /// Whether it holds nothing, after a change of one of its slots.
    fn is_empty(&self) -> bool {
        dekker::before_look();
        // Dekker: of two threads that empty two slots, the last one sees both empty.
        self.slots.iter().all(|slot| slot.load(dekker::LOOK).addr() & !FROZEN == 0)
    }

    /// Makes every slot final (M1) and returns what they hold.
    fn freeze(&self) -> [*mut (); FAN] {
        std::array::from_fn(|i| {
            let slot = &self.slots[i];
            loop {
                // Acquire, here if another thread was first, or below: E1, for a reader that finds it in the copy. No
                // model fails without it: that takes two threads that freeze and two more.
                let word = slot.load(Acquire);
                let frozen = word.map_addr(|address| address | FROZEN);
                if is_frozen(word) || slot.compare_exchange(word, frozen, Acquire, Relaxed).is_ok() {
                    return word.map_addr(|address| address & !FROZEN);
                }
            }
        })
    }
}

/// Calls `is_enough` with entries below `slot` until it returns true; whether it did.
fn each<'g, T: Keyed>(slot: &'g TrieSlot, guard: &'g Guard<'_>, is_enough: &mut dyn FnMut(Ref<'g, T>) -> bool) -> bool {
    // Acquire: E1.
    match Occupant::of(slot.load(Acquire), guard) {
        Occupant::Nothing => false,
        Occupant::Entry(entry) => is_enough(entry),
        Occupant::Branch(branch) => branch.as_ref().slots.iter().any(|slot| each(slot, guard, is_enough)),
    }
}

/// Calls `visit` with every branch below `slot`, children first. The caller is pinned or alone: a thread that has seen a dead run
/// before may still put a point into its map while the run is retired.
fn each_branch<T: 'static>(slot: &TrieSlot, visit: &mut dyn FnMut(NonNull<Branch<T>>)) {
    // Acquire: E1.
    let word = slot.load(Acquire);
    if word.addr() & BRANCH == 0 {
        return;
    }
    let branch = word.map_addr(|address| address & !(BRANCH | FROZEN)).cast::<Branch<T>>();
    if let Some(branch) = NonNull::new(branch) {
        each_branch_from(branch, visit);
    }
}

fn each_branch_from<T: 'static>(branch: NonNull<Branch<T>>, visit: &mut dyn FnMut(NonNull<Branch<T>>)) {
    // SAFETY: the word was stored by this map (M1), and the branch was linked when the caller was pinned or alone (M3).
    let slots = unsafe { &branch.as_ref().slots };
    slots.iter().for_each(|slot| each_branch(slot, visit));
    visit(branch);
}

#[cfg(test)]
mod tests;
