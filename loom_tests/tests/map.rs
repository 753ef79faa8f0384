//! The concurrent map, which stores points by depth and runs by token.
//!
//! Property: a key is in the map at most once. An inserted entry is found until it is removed. No
//! insert is lost in a branch that is being removed. A branch that becomes empty is removed, and
//! freed once.
//!
//! Edges: E1 (a slot's publication). In these models each level uses one bit of the key, from the
//! lowest: the keys 0 and 2 need two branches.
//!
//! Seeded bugs: `get` without Acquire; an entry or a branch is published Relaxed; a slot is filled
//! without being counted, or in a closed branch; a branch is closed while a thread is about to fill
//! one of its slots; the count of a thread that filled no slot, or of a removed branch in its
//! parent, is not subtracted; two threads retire the same branch; an entry that the caller did not
//! name is replaced.
#![cfg(radixkv_loom)]

mod common;

use std::sync::Arc;

use common::{explore, explore_less, spawn};
use radixkv::internals::{Domain, Entries, Local};

struct Subject {
    // Dropped before the domain.
    entries: Entries,
    domain: Domain,
}

impl Subject {
    fn with(pairs: &[(u32, u32)]) -> Arc<Self> {
        let shared = Self { entries: Entries::default(), domain: Domain::default() };
        let local = shared.domain.register();
        for &(key, value) in pairs {
            shared.entries.insert(key, value, &local).unwrap();
        }
        Arc::new(shared)
    }

    /// A map with one entry in a branch, after the removal of a second one.
    fn with_lone(key: u32, value: u32) -> Arc<Self> {
        let shared = Self::with(&[(key, value), (key ^ 1, 99)]);
        let local = shared.domain.register();
        assert_eq!(shared.entries.remove(key ^ 1, &local), Some(99));
        assert!(shared.entries.branch_bytes() > 0);
        drop(local);
        shared
    }

    /// Checks that the map contains exactly `pairs`, removes them, and checks that nothing leaks.
    fn close(self: Arc<Self>, pairs: &[(u32, u32)]) {
        let local = self.domain.register();
        assert_eq!(self.entries.all(&local), pairs);
        for &(key, value) in pairs {
            assert_eq!(self.entries.get(key, &local), Some(value));
            assert_eq!(self.entries.remove(key, &local), Some(value));
        }
        assert_eq!(self.entries.all(&local), []);
        assert_eq!(self.entries.branch_bytes(), 0);
    }
}

fn beside<T: Send + 'static>(
    shared: &Arc<Subject>,
    body: impl FnOnce(&Entries, &Local) -> T + Send + 'static,
) -> loom::thread::JoinHandle<T> {
    let shared = shared.clone();
    spawn(move || body(&shared.entries, &shared.domain.register()))
}

// Holds: NU7.
#[test]
fn two_inserts_grow_a_branch() {
    explore("insert 0 vs insert 2", || {
        let shared = Subject::with(&[]);
        let other = beside(&shared, |entries, local| entries.insert(0, 10, local));
        assert_eq!(beside(&shared, |entries, local| entries.insert(2, 12, local)).join().unwrap(), Ok(()));
        assert_eq!(other.join().unwrap(), Ok(()));
        shared.close(&[(0, 10), (2, 12)]);
    });
}

#[test]
fn two_inserts_of_one_key() {
    explore("insert 1 vs insert 1", || {
        let shared = Subject::with(&[(3, 13)]);
        let other = beside(&shared, |entries, local| entries.insert(1, 10, local));
        let mine = beside(&shared, |entries, local| entries.insert(1, 11, local)).join().unwrap();
        let value = match (mine, other.join().unwrap()) {
            (Ok(()), Err(Some(11))) => 11,
            (Err(Some(10)), Ok(())) => 10,
            both => panic!("{both:?}"),
        };
        shared.close(&[(1, value), (3, 13)]);
    });
}

/// The branch is removed while another thread inserts an entry into it.
#[test]
fn an_insert_against_a_tidying_removal() {
    explore("insert 3 vs remove 1", || {
        let shared = Subject::with_lone(1, 11);
        let other = beside(&shared, |entries, local| entries.insert(3, 13, local));
        assert_eq!(beside(&shared, |entries, local| entries.remove(1, local)).join().unwrap(), Some(11));
        assert_eq!(other.join().unwrap(), Ok(()));
        shared.close(&[(3, 13)]);
    });
}

#[test]
fn two_removals_of_two_keys() {
    explore("remove 0 vs remove 2", || {
        let shared = Subject::with(&[(0, 10), (2, 12)]);
        let other = beside(&shared, |entries, local| entries.remove(0, local));
        assert_eq!(beside(&shared, |entries, local| entries.remove(2, local)).join().unwrap(), Some(12));
        assert_eq!(other.join().unwrap(), Some(10));
        shared.close(&[]);
    });
}

#[test]
fn two_removals_of_one_key() {
    explore("remove 0 vs remove 0", || {
        let shared = Subject::with_lone(0, 10);
        let other = beside(&shared, |entries, local| entries.remove(0, local));
        let mine = beside(&shared, |entries, local| entries.remove(0, local)).join().unwrap();
        let both = (mine, other.join().unwrap());
        assert!(both == (Some(10), None) || both == (None, Some(10)), "{both:?}");
        shared.close(&[]);
    });
}

/// A reader finds an entry that is never removed, although branches above it are removed and added.
#[test]
fn a_reader_against_shrinking_and_growing() {
    explore("get 0 vs remove 2, insert 2", || {
        let shared = Subject::with(&[(0, 10), (2, 12)]);
        let reader = beside(&shared, |entries, local| (entries.get(0, local), entries.get(2, local)));
        let changer = beside(&shared, |entries, local| (entries.remove(2, local), entries.insert(2, 22, local)));
        assert_eq!(changer.join().unwrap(), (Some(12), Ok(())));
        let (zero, two) = reader.join().unwrap();
        assert_eq!(zero, Some(10));
        assert!([Some(12), Some(22), None].contains(&two));
        shared.close(&[(0, 10), (2, 22)]);
    });
}

/// A reader finds an entry while it is moved from the root's slot into branches.
#[test]
fn a_reader_against_growing() {
    explore("get 0 vs insert 2", || {
        let shared = Subject::with(&[(0, 10)]);
        let reader = beside(&shared, |entries, local| (entries.get(0, local), entries.get(2, local)));
        assert_eq!(beside(&shared, |entries, local| entries.insert(2, 12, local)).join().unwrap(), Ok(()));
        let (zero, two) = reader.join().unwrap();
        assert_eq!(zero, Some(10));
        assert!([Some(12), None].contains(&two));
        shared.close(&[(0, 10), (2, 12)]);
    });
}

/// An entry is inserted while its branch is being removed, and is found afterwards.
#[test]
fn a_reader_against_an_entry_that_comes() {
    explore_less("get 3 vs insert 3, get 3 vs remove 1", || {
        let shared = Subject::with_lone(1, 11);
        let reader = beside(&shared, |entries, local| entries.get(3, local));
        let remover = beside(&shared, |entries, local| entries.remove(1, local));
        let inserter = beside(&shared, |entries, local| (entries.insert(3, 13, local), entries.get(3, local)));
        assert_eq!(inserter.join().unwrap(), (Ok(()), Some(13)));
        assert!([Some(13), None].contains(&reader.join().unwrap()));
        assert_eq!(remover.join().unwrap(), Some(11));
        shared.close(&[(3, 13)]);
    });
}

/// An entry is inserted while its branch is being removed, and is then removed again.
#[test]
fn an_entry_that_comes_and_goes_against_a_removal() {
    explore("insert 3, remove 3 vs remove 1", || {
        let shared = Subject::with_lone(1, 11);
        let remover = beside(&shared, |entries, local| entries.remove(1, local));
        let changer = beside(&shared, |entries, local| (entries.insert(3, 13, local), entries.remove(3, local)));
        assert_eq!(changer.join().unwrap(), (Ok(()), Some(13)));
        assert_eq!(remover.join().unwrap(), Some(11));
        shared.close(&[]);
    });
}

/// Two entries that need another branch are inserted and removed while the branch above is being
/// removed.
#[test]
fn a_branch_below_one_that_is_taken_out() {
    explore_less("insert 0, 2, remove 0, 2 vs remove 1", || {
        let shared = Subject::with_lone(1, 11);
        let remover = beside(&shared, |entries, local| entries.remove(1, local));
        let changer = beside(&shared, |entries, local| {
            assert_eq!((entries.insert(0, 10, local), entries.insert(2, 12, local)), (Ok(()), Ok(())));
            (entries.remove(0, local), entries.remove(2, local))
        });
        assert_eq!(changer.join().unwrap(), (Some(10), Some(12)));
        assert_eq!(remover.join().unwrap(), Some(11));
        shared.close(&[]);
    });
}

/// One thread replaces a dead entry, another removes it: the replacement stays.
#[test]
fn a_replacement_against_a_removal() {
    explore("replace 0 vs remove 0", || {
        let shared = Subject::with_lone(0, 10);
        let other = beside(&shared, |entries, local| entries.remove(0, local));
        let replaced = beside(&shared, |entries, local| entries.replace(0, 20, local)).join().unwrap();
        let removed = other.join().unwrap();
        match (replaced, removed) {
            (Some(10), None) => shared.close(&[(0, 20)]),
            (Some(10), Some(20)) | (None, Some(10)) => shared.close(&[]),
            both => panic!("{both:?}"),
        }
    });
}

/// Two threads replace one entry: each replaces the entry that it found, or none.
#[test]
fn two_replacements_of_one_entry() {
    explore("replace 0 vs replace 0", || {
        let shared = Subject::with_lone(0, 10);
        let other = beside(&shared, |entries, local| entries.replace(0, 20, local));
        let mine = beside(&shared, |entries, local| entries.replace(0, 30, local)).join().unwrap();
        match (other.join().unwrap(), mine) {
            (Some(10), None) | (Some(30), Some(10)) => shared.close(&[(0, 20)]),
            (None, Some(10)) | (Some(10), Some(20)) => shared.close(&[(0, 30)]),
            both => panic!("{both:?}"),
        }
    });
}

#[test]
fn a_replacement_against_a_reader_and_a_removal_beside() {
    explore_less("replace 0 vs get 0 vs remove 1", || {
        let shared = Subject::with(&[(0, 10), (1, 11)]);
        let reader = beside(&shared, |entries, local| entries.get(0, local));
        let remover = beside(&shared, |entries, local| entries.remove(1, local));
        let replaced = beside(&shared, |entries, local| entries.replace(0, 20, local)).join().unwrap();
        assert_eq!(replaced, Some(10));
        assert!([Some(10), Some(20)].contains(&reader.join().unwrap()));
        assert_eq!(remover.join().unwrap(), Some(11));
        shared.close(&[(0, 20)]);
    });
}

/// Two removals empty the branch while an insert goes into it.
#[test]
fn an_insert_against_two_removals() {
    explore_less("insert 2 vs remove 0 vs remove 1", || {
        let shared = Subject::with(&[(0, 10), (1, 11)]);
        let removers = [0, 1].map(|key| beside(&shared, move |entries, local| entries.remove(key, local)));
        assert_eq!(beside(&shared, |entries, local| entries.insert(2, 12, local)).join().unwrap(), Ok(()));
        assert_eq!(removers.map(|remover| remover.join().unwrap()), [Some(10), Some(11)]);
        shared.close(&[(2, 12)]);
    });
}
