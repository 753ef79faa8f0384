use super::*;

/// Flags, slot, leases and children.
fn fields(word: Snapshot) -> ([bool; 4], Option<HotSlotId>, u64, u64) {
    let flags = [word.is_dead(), word.is_new(), word.is_queued(), word.is_open()];
    (flags, word.slot(), word.leases(), word.children())
}

#[test]
fn each_setter_changes_its_own_field_alone() {
    let (none, slot) = ([false; 4], HotSlotId::new(63));
    let word = Snapshot(0).with_lease().with_child();
    assert_eq!(fields(word), (none, None, 1, 1));
    assert_eq!(fields(word.without_lease()), (none, None, 0, 1));
    assert_eq!(fields(word.without_child()), (none, None, 1, 0));
    assert_eq!(fields(word.dead()), ([true, false, false, false], None, 1, 1));
    assert_eq!(fields(word.queued()), ([false, false, true, false], None, 1, 1));
    assert_eq!(fields(Snapshot(word.0 | NEW).proven()), (none, None, 1, 1));
    let hot = slot.map(|slot| word.with_slot(slot)).expect("not zero");
    assert_eq!((fields(hot), hot.open_slot()), (([false, false, false, true], slot, 1, 1), slot));
    assert_eq!(fields(Snapshot(hot.0 & !OPEN).without_slot()), (none, None, 1, 1));
    assert!(Snapshot(LEASES).is_full() && !word.is_full());
}

#[test]
fn a_step_is_pushed_once_and_never_on_a_new_word() {
    let word = Snapshot(0);
    assert_eq!(word.changed(word.with_lease(), true), (word.with_lease().queued(), true));
    assert_eq!(word.changed(word.with_lease(), false), (word.with_lease(), false));
    let queued = word.queued();
    assert_eq!(queued.changed(queued.with_lease(), true), (queued.with_lease(), false));
    let new = Snapshot(NEW | LEASE);
    assert_eq!(new.changed(new.with_lease(), true), (new.with_lease(), false));
}
