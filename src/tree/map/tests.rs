//! Tests the bytes of a map, its branches after removals, and the spread of keys. Tests of whole
//! trees cover its entries.

use super::*;
use crate::name::NamespaceName;
use crate::reclaim::{Domain, Local};
use crate::sync::Arc;
use crate::tree::{NamespaceAccount, Point, Space, Word};

const BRANCH_BYTES: usize = size_of::<Branch<Point>>();

/// A map of points that are in no other map; their run is only named.
struct Bed {
    map: Map<Point>,
    local: Local,
    // Dropped last.
    domain: Domain,
}

impl Bed {
    fn new() -> Self {
        let domain = Domain::new();
        Self { map: Map::new(), local: domain.register(), domain }
    }

    fn insert(&self, keys: impl IntoIterator<Item = u32>, root: Ref<'_, Point>) {
        let guard = self.local.pin();
        for key in keys {
            let point = Point::new(root.run().link(), key, Word::idle(), 0, &guard);
            assert!(self.map.insert(None, point, &guard).is_ok());
        }
    }

    fn remove(&self, keys: impl IntoIterator<Item = u32>) {
        let guard = self.local.pin();
        for key in keys {
            let point = self.map.get(key, &guard).expect("an entry");
            assert!(self.map.remove(point, &guard));
            guard.retire(point);
        }
    }

    fn bytes(&self) -> usize {
        self.local.reclaim();
        self.domain.bytes()
    }
}

fn account() -> Arc<NamespaceAccount> {
    Arc::new(NamespaceAccount::new(NamespaceName::default(), Domain::new().records().row()))
}

/// Retires an empty tree.
fn uproot(root: Ref<'_, Point>, guard: &Guard<'_>) {
    let (trunk, space) = (root.run(), root.run().space());
    guard.retire(root);
    trunk.retire_arrays(guard);
    guard.retire(trunk);
    guard.retire(space);
}

#[test]
fn branches_are_weighed_and_go_with_their_entries() {
    let bed = Bed::new();
    let holder = bed.domain.register();
    let guard = holder.pin();
    let root = Space::plant(0, account(), &guard);
    let before = bed.domain.bytes();
    let points = |n: usize| n * size_of::<Point>();
    bed.insert(1..2, root);
    assert_eq!((bed.map.branch_bytes(), bed.bytes()), (0, before + points(1)));
    bed.insert(2..2_001, root);
    let branches = bed.map.branch_bytes();
    assert!(branches >= 2_000 / FAN as usize * BRANCH_BYTES && branches % BRANCH_BYTES == 0);
    assert_eq!(bed.bytes(), before + points(2_000) + branches);
    bed.remove(2..2_001);
    let way = bed.map.branch_bytes();
    assert!((BRANCH_BYTES..=6 * BRANCH_BYTES).contains(&way), "the branches on the way to one entry: {way} bytes");
    bed.remove(1..2);
    assert_eq!(bed.map.branch_bytes(), 0);
    uproot(root, &guard);
}

#[test]
fn a_branch_that_is_still_needed_is_left_alone() {
    let bed = Bed::new();
    let holder = bed.domain.register();
    let guard = holder.pin();
    let root = Space::plant(0, account(), &guard);
    bed.insert(1..41, root);
    // Only the entry itself is retired, one of many.
    bed.remove(1..2);
    assert_eq!(bed.local.pin().retired_bytes(), size_of::<Point>());
    bed.remove(2..41);
    uproot(root, &guard);
}

#[test]
fn who_replaces_what_has_gone_grows_no_branch() {
    let bed = Bed::new();
    let guard = bed.local.pin();
    let root = Space::plant(0, account(), &guard);
    bed.insert([5, 6], root);
    let gone = bed.map.get(5, &guard).expect("an entry");
    assert!(bed.map.remove(gone, &guard));
    let new = Point::new(root.run().link(), 5, Word::idle(), 0, &guard);
    let (new, there) = bed.map.insert(Some(gone), new, &guard).expect_err("nothing stands there");
    assert!(there.is_none());
    assert_eq!(bed.map.branch_bytes(), BRANCH_BYTES);
    drop(new);
    guard.retire(gone);
    bed.remove([6]);
    uproot(root, &guard);
}

/// The first branch of the map.
fn first_branch<'g>(bed: &'g Bed, guard: &'g Guard<'_>) -> Ref<'g, Branch<Point>> {
    match Occupant::of(bed.map.root.load(Acquire), guard) {
        Occupant::Branch(branch) => branch,
        _ => panic!("a branch"),
    }
}

/// Two keys that differ in their first digit, and a third that shares its first digit with the
/// first.
fn parting_keys() -> [u32; 3] {
    let first = first_digit(mix(0)).0;
    let find = |same| (1..).find(|key| (first_digit(mix(*key)).0 == first) == same).expect("endless");
    [0, find(false), find(true)]
}

/// Empties the slot of `key`, which is the first step of a removal.
fn empty_slot(bed: &Bed, key: u32, guard: &Guard<'_>) {
    let (entry, place) = bed.map.find(key, guard);
    let entry = entry.expect("an entry");
    let held = entry.as_ptr().cast();
    assert!(place.slot.compare_exchange(held, ptr::null_mut(), Relaxed, Relaxed).is_ok());
    guard.retire(entry);
}

#[test]
fn an_insert_takes_a_closed_branch_out_first() {
    let bed = Bed::new();
    let guard = bed.local.pin();
    let root = Space::plant(0, account(), &guard);
    let [one, other, beside] = parting_keys();
    bed.insert([one, other], root);
    bed.remove([one]);
    let branch = first_branch(&bed, &guard);
    empty_slot(&bed, other, &guard);
    assert!(branch.dismiss(), "it was the last");
    bed.insert([beside], root);
    assert_eq!(bed.map.branch_bytes(), 0, "an entry alone needs no branch");
    // The thread that closed it comes too late.
    bed.map.take_out(branch, other, &guard);
    assert!(bed.map.get(beside, &guard).is_some());
    bed.remove([beside]);
    uproot(root, &guard);
}

#[test]
fn a_branch_stays_open_for_a_thread_that_was_admitted() {
    let bed = Bed::new();
    let guard = bed.local.pin();
    let root = Space::plant(0, account(), &guard);
    let [one, other, _] = parting_keys();
    bed.insert([one, other], root);
    let branch = first_branch(&bed, &guard);
    assert!(branch.admit());
    bed.remove([one, other]);
    assert_eq!(bed.map.branch_bytes(), BRANCH_BYTES);
    bed.insert([one], root);
    bed.remove([one]);
    bed.map.leave(branch, one, &guard);
    assert_eq!(bed.map.branch_bytes(), 0, "the last one takes it out");
    assert!(!branch.admit());
    uproot(root, &guard);
}

// Holds: NU7.
#[test]
fn branches_above_each_other_go_together() {
    let bed = Bed::new();
    let guard = bed.local.pin();
    let root = Space::plant(0, account(), &guard);
    let [one, _, beside] = parting_keys();
    bed.insert([one, beside], root);
    assert!(bed.map.branch_bytes() >= 2 * BRANCH_BYTES);
    bed.remove([one]);
    assert!(bed.map.branch_bytes() >= 2 * BRANCH_BYTES);
    bed.remove([beside]);
    assert_eq!(bed.map.branch_bytes(), 0);
    uproot(root, &guard);
}

/// For each branch below `slot`: the number of occupied slots, and its count.
fn counts(slot: &TrieSlot, guard: &Guard<'_>, counted: &mut Vec<(u64, u64)>) {
    if let Occupant::Branch(branch) = Occupant::<Point>::of(slot.load(Acquire), guard) {
        let held = branch.slots.iter().filter(|slot| !slot.load(Relaxed).is_null()).count();
        counted.push((held as u64, branch.count.load(Relaxed)));
        branch.slots.iter().for_each(|slot| counts(slot, guard, counted));
    }
}

/// Threads insert and remove keys in the same branches; some of them compete for each key.
// Holds: NU7.
#[test]
fn branches_count_what_they_hold_when_threads_have_gone() {
    const KEYS: u32 = 48;
    const ROUNDS: usize = if cfg!(miri) { 40 } else { 4_000 };
    let bed = Bed::new();
    let holder = bed.domain.register();
    let guard = holder.pin();
    let root = Space::plant(0, account(), &guard);
    let run = root.run().link();
    let change = |mut state: u32, local: &Local| {
        for _ in 0..ROUNDS {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (key, guard) = ((state >> 16) % KEYS, local.pin());
            match bed.map.get(key, &guard) {
                Some(point) if bed.map.remove(point, &guard) => guard.retire(point),
                Some(_) => {}
                None => {
                    let point = Point::new(run, key, Word::idle(), 0, &guard);
                    _ = bed.map.insert(None, point, &guard);
                }
            }
        }
    };
    let locals = [1, 2, 3].map(|seed| (seed, bed.domain.register()));
    std::thread::scope(|scope| {
        for (seed, local) in locals {
            scope.spawn(move || change(seed, &local));
        }
    });
    let mut counted = Vec::new();
    counts(&bed.map.root, &guard, &mut counted);
    assert!(counted.iter().all(|(held, count)| held == count && *held > 0), "{counted:?}");
    let left: Vec<u32> = (0..KEYS).filter(|key| bed.map.get(*key, &guard).is_some()).collect();
    bed.remove(left);
    assert_eq!(bed.map.branch_bytes(), 0);
    uproot(root, &guard);
}

#[test]
fn keys_are_spread_and_none_is_lost() {
    // Consecutive, by blocks, by high bits, and the highest: depths and tokens as they occur.
    let families: [fn(u32) -> u32; 4] = [|i| i, |i| i << 4, |i| i << 16, |i| !(i << 8)];
    for family in families {
        let mut mixed: Vec<u32> = (0..4_096).map(|i| mix(family(i))).collect();
        for level in 0..2 {
            let mut digits = [0; FAN as usize];
            for mixed in &mut mixed {
                let (digit, rest) = first_digit(*mixed);
                digits[digit] += 1;
                *mixed = rest;
            }
            let fair = 4_096 / FAN;
            assert!(digits.iter().all(|&n| n > fair / 2 && n < fair * 2), "level {level}: {digits:?}");
        }
    }
    let mut all: Vec<u32> = (0..1 << 18).flat_map(|i: u32| [mix(i), mix(!i)]).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1 << 19);
}
