use super::*;

#[test]
fn tokens_of_any_run_lie_within_its_allocation() {
    for (tokens, blocks) in [(0, 0), (1, 0), (1, 1), (3, 2), (5, 3), (255, 7), (256, 0), (257, 1), (1000, 999)] {
        for pieces in [0, 1, 128] {
            let room = Room { tokens: tokens as u32, blocks: blocks as u32, pieces };
            let parts = Parts::of(room);
            for address in (0..=2 * CACHE_LINE).step_by(align_of::<Arrays>()) {
                let begin = parts.tokens_at(address) as usize * size_of::<Token>();
                let end = begin + tokens * size_of::<Token>();
                assert!(begin >= size_of::<Arrays>() + blocks * size_of::<BlockId>(), "{room:?} at {address}");
                assert!(end + room.bytes_to_grow() <= parts.layout.size(), "{room:?} at {address}");
            }
        }
    }
}

#[test]
fn what_a_run_knows_of_its_growth_is_there_only_where_it_may_grow() {
    let [full, growing] = [0, 4].map(|pieces| Parts::of(Room { tokens: 64, blocks: 4, pieces }).layout.size());
    assert_eq!(full, size_of::<Arrays>() + 64 * size_of::<Token>() + 4 * size_of::<BlockId>());
    assert_eq!(growing, full + size_of::<Growth>() + 4 * Piece::BYTES);
}

#[test]
fn no_more_is_shown_than_there_is() {
    let domain = crate::reclaim::Domain::new();
    let local = domain.register();
    let guard = local.pin();
    let arrays = Arrays::allocate(&[7, 8, 9], &[1], &guard).publish();
    for (asked, shown) in [(3, 3), (4, 3), (u32::MAX, 3), (1, 1), (0, 0), (2, 2)] {
        arrays.show(asked);
        assert_eq!((arrays.shown(), arrays.shown_tokens(9).len(), arrays.tokens().len()), (shown, shown as usize, 3));
    }
    guard.retire(arrays);
}

/// Nothing is allocated: the longest sequence would take eight gigabytes.
// Holds: IN10.
#[test]
fn the_longest_run_of_the_smallest_blocks_has_a_layout() {
    let longest = crate::cache::MAX_TOKENS;
    for len in [1 << 28, (1 << 30) - 6, (1 << 30) - 4, longest - 1, longest] {
        let parts = Parts::of(Room { tokens: len as u32, blocks: len as u32, pieces: 0 });
        for address in (0..=CACHE_LINE).step_by(align_of::<Arrays>()) {
            let tokens_at = parts.tokens_at(address) as usize * size_of::<Token>();
            assert!((parts.tokens_from..=parts.layout.size() - len * size_of::<Token>()).contains(&tokens_at), "{len}");
            assert_eq!((address + tokens_at) % CACHE_LINE, 0, "{len} at {address}");
        }
    }
}
