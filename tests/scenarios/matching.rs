//! What matches, to the token, and what an insert stores.

use radixkv::Token;

use crate::{Bench, sequence};

// Holds: MA5.
#[test]
fn an_empty_cache_matches_nothing() {
    let bench = Bench::new(4, 8);
    let found = bench.session.match_prefix(&bench.space, &[1, 2, 3, 4, 5]);
    assert_eq!((found.len_tokens(), found.blocks().len()), (0, 0));
    assert_eq!(found.lease().len_tokens(), 0);
    assert_eq!(bench.matched_len(&[]), 0);
    assert_eq!(bench.accounts(), [8, 0, 0, 0]);
}

// Holds: MA7.
#[test]
fn an_exact_match_gives_the_inserted_blocks_in_order() {
    let bench = Bench::new(4, 8);
    let tokens = sequence(1, 12);
    let lease = bench.matched(&tokens);
    let reservation = bench.session.reserve(3).expect("empty");
    let given = reservation.blocks().to_vec();
    let inserted = bench.session.insert(&lease, &tokens, reservation).expect("fitting");
    assert_eq!(inserted.blocks, given);
    assert_eq!(inserted.lease.len_tokens(), 12);
    let found = bench.session.match_prefix(&bench.space, &tokens);
    assert_eq!((found.len_tokens(), found.blocks()), (12, &given[..]));
    let mut buffer = vec![99; 7];
    let lease = bench.session.match_prefix_into(&bench.space, &tokens, &mut buffer);
    assert_eq!((lease.len_tokens(), buffer), (12, given));
}

// Holds: MA6.
#[test]
fn a_match_that_ends_at_an_odd_token_is_rounded_down() {
    let bench = Bench::new(4, 8);
    drop(bench.insert(&sequence(1, 16)));
    for len in 0..=16 {
        assert_eq!(bench.matched_len(&sequence(1, len)), len / 4 * 4, "{len} tokens");
    }
    let mut longer = sequence(1, 16);
    longer.extend([7, 7, 7]);
    assert_eq!(bench.matched_len(&longer), 16);
}

#[test]
fn a_difference_inside_a_block_gives_the_blocks_before_it() {
    let bench = Bench::new(2, 4);
    drop(bench.insert(&[1, 2, 3, 5]));
    assert_eq!(bench.matched_len(&[1, 2, 3, 99]), 2);
    assert_eq!(bench.peek(&[1, 2, 3, 99]), 2);
    assert_eq!(bench.matched_len(&[1, 99, 3, 5]), 0);
}

// Holds: IN5.
#[test]
fn sequences_that_part_inside_a_block_are_both_whole() {
    let bench = Bench::new(4, 16);
    let (one, mut other) = (sequence(1, 12), sequence(1, 12));
    other[6] = 77;
    drop(bench.insert(&one));
    drop(bench.insert(&other));
    let one_found = bench.session.match_prefix(&bench.space, &one);
    let other_found = bench.session.match_prefix(&bench.space, &other);
    assert_eq!((one_found.len_tokens(), other_found.len_tokens()), (12, 12));
    assert_eq!(one_found.blocks()[0], other_found.blocks()[0]);
    assert_ne!(one_found.blocks()[1..], other_found.blocks()[1..]);
    assert_eq!(bench.accounts(), [11, 0, 0, 5]);
}

// Holds: IN2.
#[test]
fn a_duplicate_insert_gives_the_cached_blocks_and_hands_back_the_others() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 12);
    let early = bench.matched(&tokens);
    let first = bench.insert_from(&early, &tokens);
    let reservation = bench.session.reserve(3).expect("free blocks");
    let given = reservation.blocks().to_vec();
    let second = bench.session.insert(&early, &tokens, reservation).expect("fitting");
    assert_eq!(second.blocks, first.blocks);
    assert_eq!(second.duplicates.blocks(), given);
    assert_eq!(second.lease.len_tokens(), 12);
    assert_eq!(bench.accounts(), [10, 3, 0, 3]);
    assert_eq!(bench.stats().inserted_blocks, 3);
    drop(second);
    assert_eq!(bench.accounts(), [13, 0, 0, 3]);
}

// Holds: IN1.
#[test]
fn an_insert_that_is_half_cached_uses_only_the_blocks_it_needs() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 17);
    let early = bench.matched(&tokens);
    let first = bench.insert(&tokens[..9]);
    let reservation = bench.session.reserve(4).expect("free blocks");
    let given = reservation.blocks().to_vec();
    let inserted = bench.session.insert(&early, &tokens, reservation).expect("fitting");
    assert_eq!(inserted.duplicates.blocks(), &given[..2]);
    assert_eq!(inserted.blocks[2..], given[2..]);
    let found = bench.session.match_prefix(&bench.space, &tokens[..8]);
    assert_eq!(inserted.blocks[..2], *found.blocks());
    assert_eq!((first.len_tokens(), inserted.dropped_tokens), (8, 1));
}

// Holds: IN1.
#[test]
fn a_key_shorter_than_a_block_stores_nothing_and_says_so() {
    let bench = Bench::new(16, 4);
    let tokens = sequence(1, 15);
    let lease = bench.matched(&tokens);
    let inserted = bench.insert_from(&lease, &tokens);
    assert_eq!((inserted.dropped_tokens, inserted.blocks.len()), (15, 0));
    assert_eq!((inserted.lease.len_tokens(), bench.peek(&tokens)), (0, 0));
    assert_eq!(bench.accounts(), [4, 0, 0, 0]);
}

// Holds: MA15.
#[test]
fn a_match_resumes_from_its_lease() {
    let bench = Bench::new(4, 16);
    let tokens = sequence(1, 16);
    let short = bench.insert(&tokens[..8]);
    let found = bench.session.resume(short, &tokens);
    assert_eq!(found.len_tokens(), 8);
    drop(bench.insert(&tokens));
    let found = bench.session.resume(found.into_lease(), &tokens);
    assert_eq!((found.len_tokens(), found.blocks().len()), (16, 4));
    let whole = bench.session.match_prefix(&bench.space, &tokens);
    assert_eq!(found.blocks(), whole.blocks());
}

// Holds: MA1, MA6.
#[test]
fn every_depth_of_divergence_matches_to_the_block() {
    const LEN: usize = 2_000;
    for block_size in [1, 4, 16, 64] {
        let bench = Bench::new(block_size, LEN);
        let key = sequence(1, LEN);
        drop(bench.insert(&key));
        let whole = LEN / block_size * block_size;
        assert_eq!(bench.matched_len(&key), whole);
        for at in 0..LEN {
            let mut other = key.clone();
            other[at] = Token::MAX;
            let expected = (at / block_size * block_size).min(whole);
            assert_eq!(bench.matched_len(&other), expected, "block size {block_size}, token {at}");
        }
        let blocks = LEN / block_size;
        assert_eq!(bench.accounts(), [LEN - blocks, 0, blocks, 0]);
    }
}

// Holds: MA1.
#[test]
fn branches_at_every_depth_are_all_found_again() {
    const LEN: usize = 96;
    for block_size in [1, 4, 16] {
        let bench = Bench::new(block_size, 16 * LEN * LEN / block_size);
        let branch = |at: usize| {
            let mut tokens = sequence(1, LEN);
            tokens[at..].iter_mut().for_each(|token| *token += 1 << 20);
            tokens
        };
        (0..LEN).for_each(|at| drop(bench.insert(&branch(at))));
        for at in 0..LEN {
            assert_eq!(bench.matched_len(&branch(at)), LEN, "block size {block_size}, token {at}");
        }
        bench.stats();
    }
}

/// A request with two cached branches below a shared prompt, and what every prompt in between
/// finds.
// Holds: MA2.
#[test]
fn one_branch_and_the_four_matches_around_it() {
    let bench = Bench::new(4, 16);
    let shared = sequence(1, 8);
    let [left, right] = [2, 3].map(|key| [shared.clone(), sequence(key, 8)].concat());
    assert_eq!(bench.matched_len(&left), 0);
    drop(bench.insert(&left));
    drop(bench.insert(&right));
    assert_eq!([&left, &right].map(|branch| bench.matched_len(branch)), [16, 16]);
    assert_eq!(bench.matched_len(&[shared.clone(), sequence(4, 8)].concat()), 8);
    assert_eq!(bench.matched_len(&[&left[..13], &[0, 0, 0]].concat()), 12);
    // No false hit: the same tokens at another depth, or after another prompt.
    assert_eq!(bench.matched_len(&left[4..]), 0);
    assert_eq!(bench.matched_len(&[sequence(4, 8), left[8..].to_vec()].concat()), 0);
    assert_eq!(bench.accounts(), [10, 0, 6, 0]);
    assert_eq!(bench.cache.evict(16), 6);
    assert_eq!(bench.accounts(), [16, 0, 0, 0]);
}

/// A caller that keys by pairs of tokens passes pairs: n tokens are n - 1 of them, and the last
/// differs with the next token.
#[test]
fn keys_of_token_pairs_match_one_less() {
    let bench = Bench::new(1, 16);
    let pairs = |tokens: &[Token]| tokens.windows(2).map(|pair| pair[0] << 16 | pair[1]).collect::<Vec<_>>();
    drop(bench.insert(&pairs(&[1, 2, 3, 4])));
    assert_eq!(bench.matched_len(&pairs(&[1, 2, 3, 4])), 3);
    assert_eq!(bench.matched_len(&pairs(&[1, 2, 3, 5])), 2);
    assert_eq!(bench.matched_len(&pairs(&[2, 3, 4])), 0);
    assert_eq!(bench.matched_len(&pairs(&[1])), 0);
}

/// No hash decides, so none can be forced to collide: under one point every first token finds its
/// own branch alone.
// Holds: MA2.
#[test]
fn first_tokens_that_share_their_low_or_high_bits_never_meet() {
    let bench = Bench::new(1, 4_200);
    let shared = sequence(1, 3);
    let firsts: Vec<Token> =
        (0..32).flat_map(|bit| [1 << bit, !(1 << bit)]).chain((0..2_000).map(|i| i << 20)).collect();
    let mut distinct = firsts.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let branch = |first: Token| [&shared[..], &[first, first ^ 7]].concat();
    distinct.iter().for_each(|&first| drop(bench.insert(&branch(first))));
    for &first in &distinct {
        assert_eq!(bench.matched_len(&branch(first)), 5);
        let other = [&shared[..], &[first ^ 0x0055_0000, first ^ 7]].concat();
        let known = distinct.binary_search(&(first ^ 0x0055_0000)).is_ok();
        assert_eq!(bench.matched_len(&other), if known { 4 } else { 3 });
    }
    assert_eq!(bench.stats().evictable_blocks, 3 + 2 * distinct.len());
}
