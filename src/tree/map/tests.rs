//! The bytes of a map, what is left after removals, and the spread of keys. The entries of maps are tested through whole
//! trees.

use super::*;
use crate::name::{Keys, NamespaceName};
use crate::reclaim::{Domain, Local};
use crate::sync::Arc;
use crate::tree::{Holdings, Point, Space, Statistics, Word};

const BRANCH_BYTES: usize = size_of::<Branch<Point>>();

/// A map of points that hang nowhere else, on a run that is only named.
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
            let point = Point::new(root.run().link(), key, Word::idle(), Statistics::stamped(0), &guard);
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

fn holdings() -> Arc<Holdings> {
    Arc::new(Holdings::new(NamespaceName::new(&[], Keys::Tokens), Domain::new().records().row()))
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
    let root = Space::plant(0, holdings(), &guard);
    let before = bed.domain.bytes();
    let points = |n: usize| n * size_of::<Point>();
    bed.insert(0..1, root);
    assert_eq!((bed.map.branch_bytes(), bed.bytes()), (0, before + points(1)));
    bed.insert(1..2_000, root);
    let branches = bed.map.branch_bytes();
    assert!(branches >= 2_000 / FAN * BRANCH_BYTES && branches % BRANCH_BYTES == 0);
    assert_eq!(bed.bytes(), before + points(2_000) + branches);
    bed.remove(1..2_000);
    let way = bed.map.branch_bytes();
    assert!((BRANCH_BYTES..=4 * BRANCH_BYTES).contains(&way), "the branches on the way to one entry: {way} bytes");
    bed.remove(0..1);
    assert_eq!(bed.map.branch_bytes(), 0);
    uproot(root, &guard);
}

#[test]
fn a_branch_that_is_still_needed_is_left_alone() {
    let bed = Bed::new();
    let holder = bed.domain.register();
    let guard = holder.pin();
    let root = Space::plant(0, holdings(), &guard);
    bed.insert(0..40, root);
    // Nothing but the entry itself is retired, one of many.
    bed.remove(0..1);
    assert_eq!(bed.local.pin().retired_bytes(), size_of::<Point>());
    bed.remove(1..40);
    uproot(root, &guard);
}

#[test]
fn who_replaces_what_has_gone_grows_no_branch() {
    let bed = Bed::new();
    let guard = bed.local.pin();
    let root = Space::plant(0, holdings(), &guard);
    bed.insert([5, 6], root);
    let gone = bed.map.get(5, &guard).expect("an entry");
    assert!(bed.map.remove(gone, &guard));
    let new = Point::new(root.run().link(), 5, Word::idle(), Statistics::stamped(0), &guard);
    let (new, there) = bed.map.insert(Some(gone), new, &guard).expect_err("nothing stands there");
    assert!(there.is_none());
    assert_eq!(bed.map.branch_bytes(), BRANCH_BYTES);
    drop(new);
    guard.retire(gone);
    bed.remove([6]);
    uproot(root, &guard);
}

/// A thread that takes a branch out comes between the steps of one that puts two entries into it and takes them out.
#[test]
fn a_branch_that_is_emptied_while_it_is_copied_is_taken_out() {
    let bed = Bed::new();
    let guard = bed.local.pin();
    let root = Space::plant(0, holdings(), &guard);
    let first = digit(mix(0), 0);
    let beside: Vec<u32> = (1..).filter(|key| digit(mix(*key), 0) == first).take(2).collect();
    let other = (1..).find(|key| digit(mix(*key), 0) != first).expect("endless");
    bed.insert([0, other], root);
    bed.remove([0]);
    let Occupant::Branch(branch) = Occupant::<Point>::of(bed.map.root.load(Acquire), &guard) else {
        panic!("a branch")
    };
    let take = |key| {
        let (entry, slot) = bed.map.find(key, &guard);
        let entry = entry.expect("an entry");
        guard.retire(entry);
        (entry.as_ptr().cast(), slot)
    };
    let (entry, slot) = take(other);
    assert!(slot.compare_exchange(entry, ptr::null_mut(), Release, Relaxed).is_ok() && branch.is_empty());
    bed.insert(beside.iter().copied(), root);
    bed.remove([beside[0]]);
    let (entry, slot) = take(beside[1]);
    branch.freeze();
    assert!(slot.compare_exchange(entry, ptr::null_mut(), Release, Relaxed).is_ok());
    bed.map.tidy(beside[1], &guard);
    bed.map.replace(&bed.map.root, branch, &guard);
    assert_eq!(bed.map.branch_bytes(), 0);
    uproot(root, &guard);
}

#[test]
fn keys_are_spread_and_none_is_lost() {
    // In a row, by blocks, by their high bits, and the highest: depths and tokens as they come.
    let families: [fn(u32) -> u32; 4] = [|i| i, |i| i << 4, |i| i << 16, |i| !(i << 8)];
    for family in families {
        let mixed: Vec<u32> = (0..4_096).map(|i| mix(family(i))).collect();
        for level in 0..2 {
            let mut digits = [0; FAN];
            mixed.iter().for_each(|&mixed| digits[digit(mixed, level)] += 1);
            let fair = 4_096 / FAN;
            assert!(digits.iter().all(|&n| n > fair / 2 && n < fair * 2), "level {level}: {digits:?}");
        }
    }
    let mut all: Vec<u32> = (0..1 << 18).flat_map(|i: u32| [mix(i), mix(!i)]).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1 << 19);
}
