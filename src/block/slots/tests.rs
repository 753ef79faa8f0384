use super::*;

// Holds: QU16.
#[test]
fn slots_are_those_of_each_token_alone() {
    let blocks = [9, 0, u32::MAX, 4];
    for size in 1..6 {
        for start in 0..4 * size {
            for end in start..=4 * size {
                let mut slots = vec![-1; end - start];
                write_slots(&blocks, size, start..end, &mut slots);
                let each = (start..end).map(|at| i64::from(blocks[at / size]) * size as i64 + (at % size) as i64);
                assert_eq!(slots, each.collect::<Vec<_>>());
            }
        }
    }
}

#[test]
#[should_panic(expected = "tokens end at 9, but the blocks have room for 8")]
fn tokens_beyond_the_blocks_have_no_slots() {
    write_slots(&[1, 2], 4, 8..9, &mut [0]);
}
