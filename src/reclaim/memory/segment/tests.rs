use super::*;

// Holds: NU9.
#[test]
fn slabs_are_cut_from_few_segments_which_go_back_when_they_are_empty() {
    let stock = Stock::new();
    let slabs: Vec<_> = (0..3 * SLABS).map(|_| stock.take()).collect();
    let mut starts: Vec<_> = slabs.iter().map(|(slab, _)| slab.addr().get()).collect();
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), 3 * SLABS);
    assert!(starts.iter().all(|start| start % SLAB == 0));
    assert_eq!(stock.bytes(), 3 * SEGMENT);
    assert!(slabs.into_iter().all(|(slab, source)| stock.give_back(slab, source)));
    assert_eq!(stock.bytes(), SEGMENT, "one is kept");
    let segments = stock.segments.lock();
    assert_eq!((segments.in_use, segments.warm), (0, WARM));
    drop(segments);
    stock.cool_down();
    let segments = stock.segments.lock();
    assert_eq!(segments.warm, 0);
    let first = segments.list[0].as_ref().expect("kept");
    assert_eq!((segments.list.iter().flatten().count(), first.fresh), (1, SLABS as u32));
}

/// Slabs that are given back and taken again stay warm.
#[test]
fn a_load_that_turns_over_asks_the_system_for_nothing() {
    const COMING: usize = SLABS * 3 / 4;
    let stock = Stock::new();
    let mut held: Vec<_> = (0..4 * SLABS).map(|_| stock.take()).collect();
    let bytes = stock.bytes();
    for _ in 0..100 {
        for (slab, source) in held.split_off(4 * SLABS - COMING) {
            assert!(stock.give_back(slab, source));
        }
        assert_eq!(stock.segments.lock().warm, COMING);
        held.extend((0..COMING).map(|_| stock.take()));
        assert_eq!(stock.bytes(), bytes);
    }
    assert!(held.into_iter().all(|(slab, source)| stock.give_back(slab, source)));
}

#[test]
fn a_slab_comes_from_elsewhere_while_another_thread_has_the_segments() {
    let stock = Stock::new();
    let held = stock.segments.lock();
    let (slab, source) = stock.take();
    drop(held);
    assert_eq!((source, slab.addr().get() % SLAB, stock.bytes()), (Source::Alone, 0, SLAB));
    assert!(stock.give_back(slab, source));
    assert_eq!(stock.bytes(), 0);
}
