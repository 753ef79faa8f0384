//! Namespaces of bigrams: n tokens are n - 1 keys, and blocks end one token later.

use radixkv::{InsertErrorKind, Keys, Lease, NamespaceName, Token};

use crate::{Bench, sequence};

fn bench(block_size: usize, capacity: usize) -> Bench {
    let mut bench = Bench::new(block_size, capacity);
    bench.space = bench.cache.namespace(NamespaceName::new(&["draft"]).with_keys(Keys::Bigrams));
    bench
}

impl Bench {
    /// Inserts what lies beyond the lease, of bigrams.
    fn extend(&self, lease: &Lease, tokens: &[Token]) -> radixkv::Inserted {
        let size = self.cache.block_size();
        let needed = tokens.len().saturating_sub(1) / size - lease.len_tokens() / size;
        let reservation = self.session.reserve(needed).expect("enough blocks");
        self.session.insert(lease, tokens, reservation).expect("a fitting reservation")
    }

    fn put(&self, tokens: &[Token]) -> Lease {
        let lease = self.matched(tokens);
        self.extend(&lease, tokens).lease
    }
}

// Holds: MA20.
#[test]
fn four_tokens_are_three_keys() {
    let bench = bench(1, 8);
    let inserted = bench.extend(&bench.matched(&[]), &[1, 2, 3, 4]);
    assert_eq!((inserted.lease.len_tokens(), inserted.blocks.len(), inserted.dropped_tokens), (3, 3, 1));
    assert_eq!(bench.space.keys(), Keys::Bigrams);
    for (tokens, keys) in
        [(&[][..], 0), (&[1], 0), (&[1, 2], 1), (&[1, 2, 3], 2), (&[1, 2, 3, 4], 3), (&[1, 2, 3, 9], 2)]
    {
        assert_eq!((bench.matched_len(tokens), bench.peek(tokens)), (keys, keys), "{tokens:?}");
    }
    assert_eq!((bench.peek(&[1, 2, 3, 4, 5]), bench.peek(&[9, 2, 3, 4])), (3, 0));
}

#[test]
fn a_block_is_filled_with_the_token_after_it() {
    for size in [2, 4, 16] {
        for len in 0..4 * size {
            let bench = bench(size, 8);
            let tokens = sequence(1, len);
            let inserted = bench.extend(&bench.matched(&tokens), &tokens);
            let filled = len.saturating_sub(1) / size * size;
            assert_eq!((inserted.lease.len_tokens(), inserted.dropped_tokens), (filled, len - filled));
            assert_eq!((inserted.blocks.len(), bench.peek(&tokens)), (filled / size, filled), "{len} tokens");
            assert_eq!(bench.accounts(), [8 - filled / size, 0, 0, filled / size]);
        }
    }
}

// Holds: MA20.
#[test]
fn every_depth_of_divergence_matches_to_the_block() {
    const LEN: usize = 500;
    for size in [1, 4, 16, 64] {
        let bench = bench(size, LEN);
        let key = sequence(1, LEN);
        drop(bench.put(&key));
        for at in 0..LEN {
            let mut other = key.clone();
            other[at] = Token::MAX;
            let expected = at.saturating_sub(1) / size * size;
            assert_eq!(bench.matched_len(&other), expected, "block size {size}, token {at}");
        }
        let blocks = (LEN - 1) / size;
        assert_eq!(bench.accounts(), [LEN - blocks, 0, blocks, 0]);
    }
}

#[test]
fn branches_at_every_depth_are_all_found_again() {
    const LEN: usize = 48;
    for size in [1, 4, 16] {
        let bench = bench(size, 2 * LEN * LEN / size);
        let branch = |at: usize| {
            let mut tokens = sequence(1, LEN);
            tokens[at..].iter_mut().for_each(|token| *token += 1 << 20);
            tokens
        };
        (0..LEN).for_each(|at| drop(bench.put(&branch(at))));
        let whole = (LEN - 1) / size * size;
        (0..LEN).for_each(|at| assert_eq!(bench.matched_len(&branch(at)), whole, "block size {size}, token {at}"));
        let cached = bench.accounts()[2];
        assert_eq!(bench.cache.evict(usize::MAX), cached);
        assert_eq!(bench.accounts(), [2 * LEN * LEN / size, 0, 0, 0]);
    }
}

// Holds: MA20, NS1.
#[test]
fn names_with_other_keys_are_other_namespaces() {
    let mut bench = bench(1, 32);
    drop(bench.put(&[1, 2, 3, 4]));
    let draft = bench.space.clone();
    for (parts, keys) in [(&["draft"][..], Keys::Tokens), (&[], Keys::Bigrams), (&[], Keys::Tokens)] {
        bench.space = bench.cache.namespace(NamespaceName::new(parts).with_keys(keys));
        assert_eq!((bench.peek(&[1, 2, 3, 4]), bench.space.keys()), (0, keys));
    }
    bench.cache.namespace(&["draft"]).remove();
    bench.space = bench.cache.namespace(NamespaceName::new(&["draft"]).with_keys(Keys::Bigrams));
    assert_eq!((bench.peek(&[1, 2, 3, 4]), bench.session.peek(&draft, &[1, 2, 3, 4])), (3, 3));
    // Cleared, it compares bigrams still.
    draft.clear();
    drop(bench.put(&[1, 2, 3, 4]));
    assert_eq!(bench.peek(&[1, 2, 3, 9]), 2);
}

#[test]
fn a_sequence_grows_chunk_by_chunk() {
    let bench = bench(4, 16);
    let tokens = sequence(1, 30);
    let mut lease = bench.matched(&[]);
    let mut filled = 0;
    for end in [3, 5, 8, 9, 10, 13, 25, 30] {
        let inserted = bench.extend(&lease, &tokens[..end]);
        assert_eq!(inserted.blocks.len(), (end - 1) / 4 - filled / 4, "{end} tokens");
        lease = bench.session.resume(inserted.lease, &tokens).into_lease();
        filled = (end - 1) / 4 * 4;
        assert_eq!(lease.len_tokens(), filled);
    }
    assert_eq!(bench.accounts(), [9, 0, 0, 7]);
    // A second copy finds everything; its blocks come back.
    let reservation = bench.session.reserve(7).expect("free blocks");
    let again = bench.session.insert(&bench.matched(&[]), &tokens, reservation).expect("fitting");
    assert_eq!((again.duplicates.len(), again.lease.len_tokens()), (7, 28));
    // One block from the tail.
    drop((lease, again));
    assert_eq!((bench.cache.evict(1), bench.peek(&tokens)), (1, 24));
    assert_eq!(bench.accounts(), [10, 0, 6, 0]);
}

// Holds: MA21.
#[test]
fn a_lease_is_extended_only_by_all_that_it_was_matched_by() {
    let bench = bench(4, 16);
    let tokens = sequence(1, 9);
    let lease = bench.put(&tokens);
    assert_eq!(lease.len_tokens(), 8);
    let nothing = bench.session.reserve(0).expect("nothing asked");
    let short = std::panic::AssertUnwindSafe(|| bench.session.insert(&lease, &tokens[..8], nothing));
    assert!(std::panic::catch_unwind(short).is_err(), "the ninth token is missing");
    let one = bench.session.reserve(1).expect("free blocks");
    let error = bench.session.insert(&lease, &tokens, one).expect_err("no block is missing");
    assert_eq!(error.kind, InsertErrorKind::BlockCount { needed: 0, given: 1 });
}

#[test]
fn a_partial_hit_counts_pairs() {
    let bench = bench(4, 16);
    drop(bench.put(&sequence(1, 13)));
    let agreed = |at: usize, least: usize| {
        let mut prompt = sequence(1, 13);
        prompt[at] = Token::MAX;
        let lease = bench.matched(&prompt);
        let hit = bench.session.match_partial(&lease, &prompt, least);
        (lease.len_tokens(), hit.map(|hit| hit.len_tokens()))
    };
    // The token that differs is in the pair before it, too.
    let expected =
        [(0, None), (0, None), (0, Some(1)), (0, Some(2)), (0, Some(3)), (4, None), (4, Some(1)), (4, Some(2))];
    for (at, expected) in expected.into_iter().enumerate() {
        assert_eq!(agreed(at, 1), expected, "token {at}");
    }
    assert_eq!((agreed(7, 2), agreed(7, 3)), ((4, Some(2)), (4, None)));
}
