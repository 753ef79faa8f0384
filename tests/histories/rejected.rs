//! Histories that a broken cache would leave, to show that the checker finds them.

use crate::pool::{Pool, Step as Taken};
use crate::record::{Event, is_linearizable};
use crate::tree::{Call, Inserted, Path, Step, Tree};

/// One call after the other.
fn in_turn<T: Copy>(calls: &[T]) -> Vec<Event<T>> {
    let event = |(i, &what)| Event { thread: 0, called: 2 * i as u64, returned: 2 * i as u64 + 1, what };
    calls.iter().enumerate().map(event).collect()
}

fn tree_allows(calls: &[Call]) -> bool {
    let steps: Vec<_> = calls.iter().map(|&call| Step { call, lenient: false }).collect();
    is_linearizable::<Tree>(&in_turn(&steps))
}

fn inserted(duplicates: usize, lease: usize) -> Option<Inserted> {
    Some(Inserted { duplicates, lease })
}

/// A match that found nothing and an insert of two blocks from it: leases 1 and 2.
fn two_blocks() -> [Call; 2] {
    let path = Path::new(&[0, 1]);
    [Call::Match { path, found: 0, lease: 1 }, Call::Insert { from: 1, path, inserted: inserted(0, 2) }]
}

fn after_two_blocks(calls: &[Call]) -> bool {
    tree_allows(&[&two_blocks()[..], calls].concat())
}

#[test]
fn a_sound_history_is_accepted() {
    let path = Path::new(&[0, 1, 1]);
    let calls = [
        Call::Peek { path, found: 2 },
        Call::Release { lease: 2 },
        Call::Trim,
        Call::Match { path, found: 1, lease: 3 },
        Call::Dry,
        Call::Insert { from: 1, path, inserted: inserted(1, 4) },
        Call::Clear,
        Call::Insert { from: 4, path, inserted: None },
        Call::Peek { path, found: 0 },
    ];
    assert!(after_two_blocks(&calls));
}

#[test]
fn a_lost_insert_is_rejected() {
    assert!(!after_two_blocks(&[Call::Peek { path: Path::new(&[0, 1]), found: 1 }]));
}

#[test]
fn an_evicted_lease_is_rejected() {
    assert!(!after_two_blocks(&[Call::Trim]));
    let other = Path::new(&[1]);
    let lapsed = [Call::Insert { from: 1, path: other, inserted: inserted(0, 3) }, Call::Release { lease: 3 }];
    assert!(after_two_blocks(&[&lapsed[..], &[Call::Trim]].concat()));
    assert!(!after_two_blocks(&[&lapsed[..], &[Call::Trim, Call::Trim]].concat()));
}

#[test]
fn an_eviction_that_leaves_an_idle_block_is_rejected() {
    assert!(!after_two_blocks(&[Call::Release { lease: 2 }, Call::Dry]));
}

#[test]
fn a_prefix_evicted_before_what_continues_it_is_rejected() {
    let gone = Call::Match { path: Path::new(&[0]), found: 0, lease: 3 };
    assert!(!after_two_blocks(&[Call::Release { lease: 2 }, Call::Trim, gone]));
}

#[test]
fn an_insert_that_is_counted_twice_is_rejected() {
    let again = Call::Insert { from: 1, path: Path::new(&[0, 1]), inserted: inserted(0, 3) };
    assert!(!after_two_blocks(&[again]));
}

#[test]
fn a_hit_after_a_clear_is_rejected() {
    let hit = Call::Match { path: Path::new(&[0]), found: 1, lease: 3 };
    assert!(!after_two_blocks(&[Call::Clear, hit]));
    let late = Call::Insert { from: 2, path: Path::new(&[0, 1, 0]), inserted: inserted(0, 3) };
    assert!(!after_two_blocks(&[Call::Clear, late]));
}

/// Two readers that see one insert in opposite orders.
#[test]
fn a_match_that_forgets_what_another_has_seen_is_rejected() {
    let path = Path::new(&[0, 1]);
    let event =
        |thread, called, returned, call| Event { thread, called, returned, what: Step { call, lenient: false } };
    let [miss, insert] = two_blocks();
    let read = |called, found| event(1, called, called + 1, Call::Peek { path, found });
    let history = |first, second| [event(0, 0, 1, miss), event(0, 2, 9, insert), read(3, first), read(5, second)];
    assert!(is_linearizable::<Tree>(&history(0, 2)));
    assert!(!is_linearizable::<Tree>(&history(2, 0)));
    assert!(!is_linearizable::<Tree>(&history(0, 1)));
}

#[test]
fn a_block_granted_twice_and_a_refusal_without_need_are_rejected() {
    let reserve = |blocks, granted| Taken::Reserve { blocks, granted };
    assert!(is_linearizable::<Pool>(&in_turn(&[reserve(3, true), reserve(3, false), reserve(2, true)])));
    assert!(!is_linearizable::<Pool>(&in_turn(&[reserve(3, true), reserve(3, true)])));
    assert!(!is_linearizable::<Pool>(&in_turn(&[reserve(3, true), reserve(2, false)])));
}
