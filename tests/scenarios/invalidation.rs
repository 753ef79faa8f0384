//! Blocks that hold wrong keys and values: no lookup finds them, whatever is held.

use std::time::Duration;

use radixkv::{InsertErrorKind, Keys, Namespace, NamespaceName, RetainError};

use crate::{Bench, sequence};

/// The blocks of a cached sequence.
fn blocks(bench: &Bench, tokens: &[u32]) -> Vec<u32> {
    bench.session.match_prefix(&bench.space, tokens).blocks().to_vec()
}

// Holds: IV1.
#[test]
fn an_idle_block_goes_with_all_beyond_it() {
    let bench = Bench::new(2, 16);
    let (trunk, mut branch) = (sequence(1, 12), sequence(1, 12));
    branch[7] = 99;
    drop(bench.insert(&trunk));
    drop(bench.insert(&branch));
    // Six blocks of one, and the last three of the other.
    assert_eq!(bench.accounts(), [7, 0, 9, 0]);
    let ids = blocks(&bench, &trunk);
    assert_eq!(bench.cache.invalidate_blocks(&[ids[4]]), 2);
    assert_eq!((bench.peek(&trunk), bench.peek(&branch), bench.accounts()), (8, 12, [9, 0, 7, 0]));
    // The branch parts inside block 3, and has a block of its own from there on.
    assert_eq!(bench.cache.invalidate_blocks(&[ids[4], ids[3], 15]), 1);
    assert_eq!((bench.peek(&trunk), bench.peek(&branch), bench.accounts()), (6, 12, [10, 0, 6, 0]));
    drop(bench.insert(&trunk));
    assert_eq!((bench.peek(&trunk), bench.peek(&branch), bench.accounts()), (12, 12, [7, 0, 9, 0]));
    assert_eq!(bench.cache.invalidate_blocks(&blocks(&bench, &branch)[3..]), 3);
    assert_eq!((bench.peek(&trunk), bench.peek(&branch), bench.accounts()), (12, 6, [10, 0, 6, 0]));
    assert_eq!(bench.cache.invalidate_blocks(&ids[..1]), 6);
    assert_eq!((bench.peek(&trunk), bench.accounts()), (0, [16, 0, 0, 0]));
    let stats = bench.stats();
    assert_eq!((stats.invalidated_blocks, stats.inserted_blocks, stats.evicted_blocks), (12, 12, 0));
}

// Holds: IV1.
#[test]
fn what_is_leased_stays_until_it_is_released_and_is_found_by_nobody() {
    let bench = Bench::new(2, 16);
    let prompt = sequence(1, 12);
    drop(bench.insert(&prompt));
    let (ids, held) = (blocks(&bench, &prompt), bench.matched(&prompt[..8]));
    assert!(!held.is_invalidated());
    // Blocks 4 and 5 are idle and go; 2 and 3 are leased and stay.
    assert_eq!(bench.cache.invalidate_blocks(&[ids[2]]), 4);
    assert_eq!((bench.peek(&prompt), bench.accounts()), (4, [12, 0, 0, 4]));
    assert!(held.is_invalidated());
    assert_eq!(bench.session.retain(&held, Duration::from_nanos(1)), Err(RetainError::Invalidated));
    let refused = bench.session.insert(&held, &prompt, bench.session.reserve(2).expect("room"));
    assert_eq!(refused.expect_err("it would never be found").kind, InsertErrorKind::Invalidated);
    // The same tokens again, beside the old blocks.
    let again = bench.insert(&prompt);
    assert_eq!((bench.peek(&prompt), bench.accounts()), (12, [8, 0, 0, 8]));
    assert!(blocks(&bench, &prompt)[2..].iter().all(|block| !ids[2..4].contains(block)));
    let resumed = bench.session.resume(held, &prompt);
    assert_eq!((resumed.len_tokens(), resumed.blocks()), (8, &ids[..4]));
    drop(resumed);
    assert_eq!((bench.peek(&prompt), bench.accounts()), (12, [10, 0, 0, 6]));
    drop(again);
    assert_eq!((bench.cache.evict(16), bench.accounts()), (6, [16, 0, 0, 0]));
}

// Holds: IV2.
#[test]
fn a_run_that_goes_whole_leaves_its_place_to_another() {
    for keys in [Keys::Tokens, Keys::Bigrams] {
        let mut bench = Bench::new(2, 32);
        bench.space = bench.cache.namespace(NamespaceName::new(&["it"]).with_keys(keys));
        let (prompt, longer) = (sequence(1, 9), sequence(1, 13));
        let below = bench.insert(&prompt[..5]);
        let (first, second) = (bench.insert(&prompt), bench.insert(&longer));
        let ids = blocks(&bench, &longer);
        assert_eq!(ids.len(), 6, "{keys:?}");
        // The second insert's first block.
        assert_eq!(bench.cache.invalidate_blocks(&[ids[2]]), 4);
        assert_eq!((bench.peek(&longer), bench.accounts()), (4, [26, 0, 0, 6]), "{keys:?}");
        let partial = bench.session.match_partial(&below, &longer, 1);
        assert!(partial.is_none(), "{keys:?}: nothing of a block that is wrong");
        let held = [&below, &first, &second].map(|lease| lease.is_invalidated());
        assert_eq!(held, [false, true, true]);
        let again = bench.insert(&longer);
        assert_eq!((bench.peek(&longer), bench.accounts()), (12, [22, 0, 0, 10]), "{keys:?}");
        drop(first);
        assert_eq!(bench.accounts(), [22, 0, 0, 10], "the longer one holds it");
        drop(second);
        assert_eq!(bench.accounts(), [26, 0, 0, 6], "{keys:?}");
        // The first block of all, while all is held.
        assert_eq!(bench.cache.invalidate_blocks(&[ids[0]]), 6);
        assert_eq!((bench.peek(&longer), bench.accounts()), (0, [26, 0, 0, 6]), "{keys:?}");
        drop((below, again));
        assert_eq!(bench.accounts(), [32, 0, 0, 0], "{keys:?}");
    }
}

// Holds: IV1.
#[test]
fn retentions_of_what_is_wrong_end() {
    let bench = Bench::new(1, 8);
    let prompt = sequence(1, 4);
    let lease = bench.insert(&prompt);
    bench.session.retain(&lease, Duration::from_secs(9)).expect("it can be");
    drop(lease);
    assert_eq!(bench.accounts(), [4, 0, 0, 4]);
    let kept = bench.matched(&prompt[..1]);
    bench.session.retain(&kept, Duration::from_secs(9)).expect("it can be");
    drop(kept);
    let ids = blocks(&bench, &prompt);
    assert_eq!(bench.cache.invalidate_blocks(&[ids[1]]), 3);
    assert_eq!((bench.peek(&prompt), bench.accounts()), (1, [7, 0, 0, 1]));
}

// Holds: IV6.
#[test]
fn a_cleared_and_a_dropped_namespace_end_with_what_was_hidden_in_them() {
    let bench = Bench::new(1, 16);
    for end in [Namespace::clear, Namespace::remove] {
        let tenant = Bench {
            space: bench.cache.namespace(&["tenant"]),
            session: bench.cache.session(),
            cache: bench.cache.clone(),
        };
        let prompt = sequence(1, 6);
        let (early, late) = (tenant.insert(&prompt[..2]), tenant.insert(&prompt));
        let ids = blocks(&tenant, &prompt);
        assert_eq!(bench.cache.invalidate_blocks(&[ids[2]]), 4);
        assert_eq!(tenant.accounts(), [10, 0, 0, 6]);
        end(&tenant.space);
        assert_eq!(tenant.accounts(), [10, 0, 0, 6]);
        drop(late);
        assert_eq!(tenant.accounts(), [14, 0, 0, 2]);
        drop(early);
        assert_eq!(tenant.accounts(), [16, 0, 0, 0]);
    }
}

/// A cache that is dropped while blocks are hidden frees them with all else: the leak checkers see
/// to it.
// Holds: IV6.
#[test]
fn a_cache_ends_while_something_is_hidden() {
    let bench = Bench::new(1, 16);
    let prompt = sequence(1, 6);
    let (early, late) = (bench.insert(&prompt[..2]), bench.insert(&prompt));
    let ids = blocks(&bench, &prompt);
    assert_eq!(bench.cache.invalidate_blocks(&[ids[1], ids[3]]), 5);
    drop(bench);
    drop((late, early));
}

/// A branch inside a block keeps the block's beginning shown; a partial hit there is the branch's
/// own copy.
// Holds: IV1.
#[test]
fn no_partial_hit_is_of_a_block_that_is_wrong_and_held() {
    let bench = Bench::new(4, 64);
    let (prompt, mut branch) = (sequence(1, 16), sequence(1, 8));
    branch[6] = 99;
    let (held, beside) = (bench.insert(&prompt), bench.insert(&branch));
    let (of_prompt, of_branch) = (blocks(&bench, &prompt), blocks(&bench, &branch));
    let below = bench.matched(&prompt[..4]);
    assert_eq!(bench.cache.invalidate_blocks(&[of_prompt[1]]), 3);
    let hit = bench.session.match_partial(&below, &prompt[..7], 1).expect("the branch agrees in two tokens");
    assert_eq!((hit.block(), hit.len_tokens()), (of_branch[1], 2));
    drop((held, beside));
}

// Holds: IV3.
#[test]
fn leases_of_namespaces_that_were_cleared_learn_of_it_too() {
    for end in [Namespace::clear, Namespace::remove] {
        let bench = Bench::new(2, 16);
        let bench = Bench { space: bench.cache.namespace(&["tenant"]), ..bench };
        let prompt = sequence(1, 8);
        let (short, long) = (bench.insert(&prompt[..4]), bench.insert(&prompt));
        let ids = blocks(&bench, &prompt);
        end(&bench.space);
        assert_eq!(bench.cache.invalidate_blocks(&[ids[2]]), 0, "lookups found none of it");
        assert_eq!([&short, &long].map(|lease| lease.is_invalidated()), [false, true]);
        assert_eq!(bench.accounts(), [12, 0, 0, 4]);
        drop(long);
        assert_eq!(bench.accounts(), [14, 0, 0, 2]);
        assert_eq!(bench.cache.invalidate_blocks(&ids), 0);
        assert!(short.is_invalidated());
        drop(short);
        assert_eq!(bench.accounts(), [16, 0, 0, 0]);
    }
}

/// Wide, deep, and with many branches on one run: in slices.
// Holds: IV4.
#[test]
fn many_runs_go_in_slices() {
    let bench = Bench::new(1, 4_096);
    let trunk = sequence(1, 1_000);
    let held = bench.insert(&trunk);
    for at in 0..1_000 {
        let branch: Vec<u32> = trunk[..at].iter().copied().chain([1 << 30]).collect();
        drop(bench.insert(&branch));
    }
    let mut chain = vec![7];
    for token in 0..500 {
        chain.push(token);
        drop(bench.insert(&chain));
    }
    let found = blocks(&bench, &trunk);
    assert_eq!(bench.cache.invalidate_blocks(&[found[10]]), 990 + 989);
    assert_eq!((bench.peek(&trunk), bench.accounts()[3]), (10, 1_000));
    let first = blocks(&bench, &chain)[0];
    assert_eq!(bench.cache.invalidate_blocks(&[first]), 501);
    drop(held);
    assert_eq!(bench.accounts(), [4_096 - 21, 0, 21, 0]);
}
