use super::*;

#[test]
fn a_slot_is_the_smallest_one_that_is_large_enough() {
    let of = |size| Class::of(Layout::from_size_align(size, 8).expect("a layout"));
    let sizes = Class::all().map(Class::size);
    assert_eq!((sizes[0], sizes[CLASSES - 1]), (GRAIN, LARGEST));
    assert!(sizes.is_sorted() && sizes.iter().all(|size| size % GRAIN == 0));
    for size in 1..=LARGEST {
        let expected = sizes.iter().find(|slot| **slot >= size).copied();
        assert_eq!(of(size).map(Class::size), expected, "{size} bytes");
    }
    assert_eq!(of(LARGEST + 1), None);
    assert_eq!(Class::of(Layout::from_size_align(8, 32).expect("a layout")), None);
}
