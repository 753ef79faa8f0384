use super::*;

fn proven(push: bool) -> Leased {
    Leased::Proven { push, at_once: true }
}

#[test]
fn the_last_to_abandon_an_unproven_point_ends_it() {
    let word = Word::unproven();
    assert_eq!(word.lease(), Leased::Unproven);
    assert!(word.load(Relaxed).is_new());
    assert_eq!(word.abandon(), Abandoned::Left);
    assert_eq!((word.load(Relaxed).leases(), word.load(Relaxed).is_dead()), (1, false));
    assert_eq!(word.abandon(), Abandoned::Dead);
    assert_eq!((word.load(Relaxed).leases(), word.load(Relaxed).is_dead()), (0, true));
    assert_eq!(word.lease(), Leased::Dead);
}

#[test]
fn a_point_is_pushed_once_until_it_is_taken_out() {
    let word = Word::unproven();
    assert!(word.prove() && !word.prove());
    assert!(!word.load(Relaxed).is_new() && word.load(Relaxed).is_queued());
    assert!(!word.release().push, "queued already");
    assert!(word.take_out().is_queued() && !word.load(Relaxed).is_queued());
    assert_eq!(word.lease(), proven(true));
    assert_eq!(word.lease(), proven(false));
    assert!(!word.release().push && !word.release().push);
    assert!(word.kill().is_some_and(Snapshot::is_queued));
    assert!(word.kill().is_none());
    assert!(word.take_out().is_dead());
}

#[test]
fn what_holds_a_point_keeps_it_from_being_killed() {
    let word = Word::idle();
    assert_eq!(word.lease(), proven(true));
    assert!(word.add_child() && word.kill().is_none());
    assert!(!word.release().push && word.kill().is_none());
    assert_eq!((word.load(Relaxed).children(), word.load(Relaxed).is_idle()), (1, false));
    _ = word.take_out();
    assert!(word.remove_child().push, "the last hold went");
    assert!(word.kill().is_some());
}

#[test]
fn a_full_word_takes_no_further_lease() {
    let word = Word(AtomicU64::new((MAX_LEASES - 1) * LEASE));
    assert_eq!(word.lease(), proven(false));
    assert_eq!(word.lease(), Leased::Full);
    assert!(!word.release().push);
    assert_eq!((word.load(Relaxed).leases(), word.lease()), (MAX_LEASES - 1, proven(false)));
}
