//! Partial hits: which block, how many of its tokens, and how long it stays.

use radixkv::{PartialHit, Token};

use crate::{Bench, sequence};

/// `sequence(1, len)` with other tokens from `at` on.
fn parting(at: usize, len: usize, other: u32) -> Vec<Token> {
    let mut tokens = sequence(1, len);
    tokens[at..].copy_from_slice(&sequence(other, len)[at..]);
    tokens
}

impl Bench {
    /// Matched tokens, and the partial hit beyond them.
    fn partial(&self, tokens: &[Token], least: usize) -> (usize, Option<PartialHit>) {
        let lease = self.matched(tokens);
        (lease.len_tokens(), self.session.match_partial(&lease, tokens, least))
    }

    fn agreed(&self, tokens: &[Token], least: usize) -> Option<usize> {
        self.partial(tokens, least).1.map(|hit| hit.len_tokens())
    }

    fn block_of(&self, tokens: &[Token], at: usize) -> u32 {
        self.session.match_prefix_untouched(&self.space, tokens).blocks()[at]
    }
}

#[test]
fn an_odd_token_is_reached_inside_a_block() {
    let bench = Bench::new(2, 4);
    drop(bench.insert(&[1, 2, 3, 5]));
    let prompt = [1, 2, 3, 99];
    let (matched, hit) = bench.partial(&prompt, 1);
    let hit = hit.expect("one token agrees");
    assert_eq!((matched, hit.len_tokens(), hit.block()), (2, 1, bench.block_of(&[1, 2, 3, 5], 1)));
    assert!(bench.partial(&[1, 2, 99, 5], 1).1.is_none());
}

// Holds: PH1.
#[test]
fn a_partial_hit_has_at_least_the_tokens_asked_for() {
    let bench = Bench::new(8, 8);
    drop(bench.insert(&sequence(1, 24)));
    let prompt = parting(13, 24, 2);
    assert_eq!(bench.partial(&prompt, 5).0, 8);
    assert_eq!(bench.agreed(&prompt, 0), Some(5));
    assert_eq!(bench.agreed(&prompt, 5), Some(5));
    assert_eq!(bench.agreed(&prompt, 6), None);
    // Nothing agrees beyond the match, or nothing is asked for beyond it.
    assert_eq!(bench.agreed(&parting(8, 24, 2), 0), None);
    assert_eq!(bench.agreed(&prompt[..8], 0), None);
    // A prompt that ends inside a block that is cached.
    assert_eq!(bench.agreed(&sequence(1, 23), 1), Some(7));
}

// Holds: PH1.
#[test]
fn a_prompt_that_parts_in_its_first_block_hits_it() {
    let bench = Bench::new(16, 4);
    drop(bench.insert(&sequence(1, 16)));
    let (matched, hit) = bench.partial(&parting(9, 16, 2), 1);
    assert_eq!((matched, hit.map(|hit| hit.len_tokens())), (0, Some(9)));
}

// Holds: PH1.
#[test]
fn of_several_blocks_the_one_that_agrees_longest_is_hit() {
    let bench = Bench::new(8, 16);
    drop(bench.insert(&sequence(1, 16)));
    for at in [9, 11, 14] {
        drop(bench.insert(&parting(at, 16, at as u32)));
    }
    for (at, other) in [(9, 11), (11, 14), (14, 11)] {
        let mut prompt = parting(at, 16, at as u32);
        prompt[15] = 77;
        let (_, hit) = bench.partial(&prompt, 1);
        let hit = hit.expect("seven tokens agree");
        assert_eq!((hit.len_tokens(), hit.block()), (7, bench.block_of(&parting(at, 16, at as u32), 1)));
        assert_ne!(hit.block(), bench.block_of(&parting(other, 16, other as u32), 1));
    }
    // Parts from all of them at token 12: two agree in four tokens.
    let (_, hit) = bench.partial(&parting(12, 16, 50), 1);
    let hit = hit.expect("four tokens agree");
    let candidates = [bench.block_of(&sequence(1, 16), 1), bench.block_of(&parting(14, 16, 14), 1)];
    assert!(hit.len_tokens() == 4 && candidates.contains(&hit.block()), "{hit:?} is none of {candidates:?}");
}

// Holds: PH2.
#[test]
fn a_block_is_found_where_the_run_it_branched_from_was_evicted() {
    let bench = Bench::new(8, 8);
    drop(bench.insert(&sequence(1, 16)));
    let branch = bench.insert(&parting(11, 16, 2));
    assert_eq!(bench.cache.evict(8), 1);
    assert_eq!(bench.peek(&sequence(1, 16)), 8);
    // Three tokens of the evicted block are still those of the branch.
    assert_eq!(bench.agreed(&sequence(1, 16), 1), Some(3));
    drop(branch);
    assert_eq!(bench.cache.evict(1), 1);
    assert_eq!(bench.agreed(&sequence(1, 16), 1), None);
}

// Holds: PH2.
#[test]
fn what_was_evicted_a_moment_ago_does_not_hide_a_shorter_hit() {
    let bench = Bench::new(8, 8);
    bench.serve_at(1, &sequence(1, 16));
    bench.serve_at(2, &parting(13, 16, 3));
    bench.serve_at(3, &parting(11, 16, 2));
    // Both blocks that go on to token 13 are evicted; the index still has the tokens up to there.
    assert_eq!((bench.cache.evict(1), bench.cache.evict(1)), (1, 1));
    assert_eq!(bench.agreed(&sequence(1, 16), 1), Some(3));
}

// Holds: PH3.
#[test]
fn the_source_stays_until_the_hit_is_dropped() {
    let bench = Bench::new(4, 4);
    drop(bench.insert(&sequence(1, 12)));
    let (_, hit) = bench.partial(&parting(6, 12, 2), 1);
    let hit = hit.expect("two tokens agree");
    // The third block goes; the second, and the first on its path, are protected.
    assert_eq!(bench.accounts(), [1, 0, 1, 2]);
    assert_eq!((bench.cache.evict(4), bench.peek(&sequence(1, 12))), (1, 8));
    assert_eq!(
        bench.session.reserve(3).expect_err("two are leased").to_string(),
        "3 blocks requested, 2 free or evictable: retry once leases or reservations are dropped"
    );
    bench.cache.clear();
    assert_eq!(bench.accounts(), [2, 0, 0, 2]);
    drop(hit);
    assert_eq!(bench.accounts(), [4, 0, 0, 0]);
}

// Holds: MA9.
#[test]
fn a_partial_hit_is_no_use_of_its_source() {
    let bench = Bench::new(4, 4);
    bench.serve_at(1, &sequence(1, 8));
    bench.serve_at(2, &sequence(3, 8));
    bench.cache.set_time(3);
    let cold = bench.session.match_prefix_untouched(&bench.space, &parting(6, 8, 2)).into_lease();
    drop(bench.session.match_partial(&cold, &parting(6, 8, 2), 1));
    drop(cold);
    assert_eq!(bench.cache.evict(1), 1);
    assert_eq!((bench.peek(&sequence(1, 8)), bench.peek(&sequence(3, 8))), (4, 8));
}

// Holds: MA19.
#[test]
#[should_panic(expected = "belongs to another cache")]
fn a_lease_of_another_cache_has_no_partial_hit() {
    let (bench, other) = (Bench::new(4, 4), Bench::new(4, 4));
    let lease = other.matched(&[]);
    drop(bench.session.match_partial(&lease, &[], 1));
}
