use super::*;
use crate::reclaim::{Domain, Local};

// Holds: MA14.
#[test]
fn what_was_put_is_taken_once_and_what_finds_no_slot_comes_back() {
    let domain = Domain::new();
    let idle: Idle<Local> = Idle::new();
    assert!(idle.take().is_none());
    assert!((0..SLOTS).all(|_| idle.put(domain.register()).is_none()));
    assert!(idle.put(domain.register()).is_some());
    assert_eq!(std::iter::from_fn(|| idle.take()).count(), SLOTS);
}

#[test]
fn what_is_lent_lies_in_a_slot_while_there_are_any() {
    let domain = Domain::new();
    let idle: Idle<Local> = Idle::new();
    let lend = || idle.lend(7, || domain.register());
    let address = |lent: Lent<'_, Local>| std::ptr::from_ref::<Local>(&lent).addr();
    assert_eq!(address(lend()), address(lend()), "the same one again");
    let lent: Vec<_> = (0..=SLOTS).map(|_| lend()).collect();
    assert_eq!(lent.iter().filter(|lent| matches!(lent.0, Kept::Alone(_))).count(), 1);
    assert!(idle.take().is_none(), "all are lent");
    drop(lent);
    assert_eq!(std::iter::from_fn(|| idle.take()).count(), SLOTS);
}

// Holds: MA14.
#[test]
fn a_slot_that_a_stopped_thread_has_claimed_is_skipped() {
    let domain = Domain::new();
    let idle: Idle<Local> = Idle::new();
    assert!(idle.put(domain.register()).is_none());
    assert!(idle.0[0].claim(FULL), "a thread that stops here");
    assert!(idle.take().is_none());
    assert!(idle.put(domain.register()).is_none());
    assert!(idle.take().is_some());
}
