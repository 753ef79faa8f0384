use super::*;

// Holds: NU10.
#[test]
fn values_are_there_and_can_be_changed() {
    for len in [0, 1, 512, 10_000] {
        let mut mapped = Mapped::filled(Some((7_u64, 1_u8)), len);
        assert_eq!(mapped.mapping.is_some(), len >= 512 && !cfg!(any(radixkv_heap, miri)));
        assert!(mapped.len() == len && mapped.iter().all(|item| *item == Some((7, 1))));
        if let Some(last) = mapped.last_mut() {
            *last = None;
            assert_eq!(mapped.iter().filter(|item| item.is_none()).count(), 1);
        }
    }
}

// Holds: NU11.
#[test]
fn what_is_dropped_meanwhile_is_unmapped_in_the_end() {
    let kept = || UNMAPPING.with(|Unmapping { later, dropped }| later.get().then(|| dropped.borrow().len()));
    let mapped = || drop(Mapped::filled(7_u64, 512));
    mapped();
    assert_eq!(kept(), None);
    let unmapping = UnmapsLater::begin().expect("the first");
    assert!(UnmapsLater::begin().is_none());
    mapped();
    drop(Mapped::filled(7_u64, 1));
    mapped();
    assert_eq!(kept(), Some(if cfg!(any(radixkv_heap, miri)) { 0 } else { 2 }));
    drop(unmapping);
    assert_eq!(kept(), None);
    mapped();
    assert!(kept().is_none() && UnmapsLater::begin().is_some());
}

#[test]
fn values_without_a_size_need_no_memory() {
    let mapped = Mapped::filled((), 3);
    assert_eq!((mapped.len(), mapped.mapping.is_none()), (3, true));
}
