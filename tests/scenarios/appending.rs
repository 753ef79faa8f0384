//! Tokens that are appended to the end of a run: a chunk of a prompt, a turn of a conversation, an
//! output.

use radixkv::{BlockId, Lease, PolicyKind, Token};

use crate::{Bench, sequence};

/// Inserts `tokens` in parts that end at these lengths, each from the lease on the one before.
fn insert_in_parts(bench: &Bench, tokens: &[Token], ends: impl IntoIterator<Item = usize>) -> (Lease, Vec<BlockId>) {
    let (mut lease, mut blocks) = (bench.session.match_prefix(&bench.space, &[]).into_lease(), Vec::new());
    for end in ends {
        let fresh = bench.session.reserve((end - lease.len_tokens()) / bench.cache.block_size()).expect("room");
        let inserted = bench.session.insert(&lease, &tokens[..end], fresh).expect("whole blocks");
        blocks.extend_from_slice(&inserted.blocks);
        lease = inserted.lease;
    }
    (lease, blocks)
}

// Holds: IN3.
#[test]
fn parts_of_any_size_are_found_at_every_length() {
    for part in [4, 8, 20, 64] {
        let bench = Bench::new(4, 256);
        let tokens = sequence(1, 960);
        let (lease, blocks) = insert_in_parts(&bench, &tokens, (part..=960 / part * part).step_by(part));
        for len in 0..=960 {
            let found = bench.session.match_prefix(&bench.space, &tokens[..len]);
            assert_eq!(found.blocks(), &blocks[..(len / 4).min(blocks.len())], "parts of {part}, {len} tokens");
        }
        drop(lease);
        assert_eq!(bench.cache.validate(), Ok(()));
        assert_eq!(bench.cache.evict(256), blocks.len());
    }
}

// Holds: IN3.
#[test]
fn a_long_conversation_is_a_few_runs() {
    let bench = Bench::new(16, 2048);
    let tokens = sequence(1, 32_768);
    drop(insert_in_parts(&bench, &tokens, (512..=32_768).step_by(512)));
    assert!(bench.stats().runs <= 16, "{}", bench.stats().runs);
    let bench = Bench::new(16, 2048);
    drop(insert_in_parts(&bench, &tokens, (16..=32_768).step_by(16)));
    assert!(bench.stats().runs <= 24, "{}", bench.stats().runs);
}

/// The first of two that part grows its run, the other one hangs there.
// Holds: IN4.
#[test]
fn forks_of_one_end_go_their_own_ways() {
    let bench = Bench::new(2, 64);
    let stem = sequence(1, 8);
    let (tip, _) = insert_in_parts(&bench, &stem, [4, 6, 8]);
    let branches: Vec<Vec<Token>> = (0..5).map(|own| [&stem[..], &[900 + own % 4, 7]].concat()).collect();
    let held: Vec<_> = branches
        .iter()
        .map(|tokens| {
            let fresh = bench.session.reserve(1).expect("room");
            bench.session.insert(&tip, tokens, fresh).expect("one block")
        })
        .collect();
    assert_eq!(held.iter().filter(|held| !held.duplicates.is_empty()).count(), 1, "two are equal");
    for (tokens, held) in branches.iter().zip(&held) {
        let found = bench.session.match_prefix(&bench.space, tokens);
        assert_eq!((found.len_tokens(), found.blocks().last()), (10, held.blocks.last()));
    }
    drop((held, tip));
    assert_eq!((bench.cache.validate(), bench.cache.evict(64)), (Ok(()), 8));
}

/// A part is ranked as if it were alone: by its own insert's time, and one level below what it
/// follows.
// Holds: IN3.
#[test]
fn each_part_goes_by_its_own_age_and_level() {
    let order = |policy| {
        let bench = Bench::with_policy(4, 16, policy);
        let chain = sequence(1, 16);
        let other = [2, 3].map(|key| sequence(key, 4));
        let mut lease = bench.session.match_prefix(&bench.space, &[]).into_lease();
        for part in 1..=4 {
            bench.cache.set_time(part);
            let fresh = bench.session.reserve(1).expect("room");
            lease = bench.session.insert(&lease, &chain[..4 * part as usize], fresh).expect("a block").lease;
            if part == 3 {
                drop(bench.insert(&other[0]));
            }
        }
        bench.cache.set_time(9);
        drop(bench.insert(&other[1]));
        drop(lease);
        assert_eq!(bench.stats().runs, 5, "one part of the chain was appended in place");
        let looks = || [bench.peek(&chain), bench.peek(&other[0]), bench.peek(&other[1])];
        let mut order = String::new();
        for _ in 0..6 {
            let before = looks();
            assert_eq!(bench.cache.evict(1), 1);
            let after = looks();
            order.extend(
                ["c", "x", "y"].into_iter().zip(0..).filter(|(_, at)| before[*at] != after[*at]).map(|(name, _)| name),
            );
        }
        order
    };
    // Times: the chain's parts 1 to 4, x 3, y 9. Levels: 1 to 4, 1, 1.
    assert_eq!(order(PolicyKind::Fifo), "xccccy");
    assert_eq!(order(PolicyKind::Filo), "yccxcc");
    assert_eq!(order(PolicyKind::Level), "cccxcy");
}

// Holds: IN3.
#[test]
fn what_was_shortened_is_not_appended_to() {
    let bench = Bench::new(2, 64);
    let tokens = sequence(1, 24);
    drop(insert_in_parts(&bench, &tokens, [8, 16, 20]));
    assert_eq!(bench.stats().runs, 2);
    assert_eq!(bench.cache.evict(1), 1);
    let instead = [&tokens[..18], &[901, 902, 903, 904]].concat();
    drop(insert_in_parts(&bench, &instead, [8, 16, 18, 22]));
    assert_eq!((bench.stats().runs, bench.peek(&tokens), bench.peek(&instead)), (3, 18, 22));
    assert_eq!(bench.cache.validate(), Ok(()));
}

/// A walk shows each insert's tokens apart, whether they were appended in place or hung, and what
/// follows what.
// Holds: IN3.
#[test]
fn a_walk_shows_what_each_insert_added() {
    let bench = Bench::new(2, 64);
    let tokens = sequence(1, 24);
    drop(insert_in_parts(&bench, &tokens, [4, 8, 12, 24]));
    let branch = [&tokens[..10], &[901, 902]].concat();
    drop(bench.insert(&branch));
    let mut seen = Vec::new();
    bench.space.walk(|run| seen.push((run.id, run.parent, run.start, run.tokens.len(), run.blocks.len())));
    assert!(bench.stats().runs < seen.len(), "a part was appended in place");
    let parts = [(0, None, 0, 4, 2), (1, Some(0), 4, 4, 2), (2, Some(1), 8, 4, 2), (3, Some(2), 12, 12, 6)];
    assert_eq!(seen, [&parts[..], &[(4, Some(2), 10, 2, 1)]].concat());
}
