//! Tests that every contender gives the answers that the rows rely on.

use std::sync::Arc;

use crate::{
    arena::{
        BLOCK,
        contender::{Client, Clock, Contender},
        mutexed::Mutexed,
        own::Radixkv,
        tokens::Tokens,
    },
    peers::{
        chain_index::Chains, compressed::Compressed, kvbm::Managed, radix_tree::Holders, router::Routed,
        shared::Shared, token_tree::Tenants,
    },
    writer::Writer,
};

/// A prompt of `len` tokens: the first `at` of one sequence, then tokens of another.
fn parted(at: usize, len: usize) -> Tokens {
    let (first, other) = (Tokens::sequence(1, at), Tokens::sequence(2, len - at));
    Tokens::new(len, |out| {
        out[..at].copy_from_slice(&first);
        out[at..].copy_from_slice(&other);
    })
}

fn insert<C: Contender>(client: &mut C::Client, tokens: &Tokens) -> usize {
    let found = client.insert(&C::prompt(tokens), &mut Clock::default());
    client.settle();
    found
}

fn answers<C: Contender<Client: Writer>>() {
    let mut client = C::client(&Arc::new(C::new(64)));
    let long = Tokens::sequence(1, 10 * BLOCK);
    assert_eq!(client.look_up(&C::prompt(&long)), 0, "{}: nothing is there", C::NAME);
    assert_eq!(insert::<C>(&mut client, &long), 0, "{}", C::NAME);
    assert_eq!(client.look_up(&C::prompt(&long)), 10 * BLOCK, "{}: all of it", C::NAME);
    assert_eq!(
        client.look_up(&C::prompt(&parted(6 * BLOCK, 8 * BLOCK))),
        6 * BLOCK,
        "{}: what both begin with",
        C::NAME
    );
    assert_eq!(insert::<C>(&mut client, &parted(6 * BLOCK, 8 * BLOCK)), 6 * BLOCK, "{}", C::NAME);
    assert_eq!(client.look_up(&C::prompt(&parted(6 * BLOCK, 8 * BLOCK))), 8 * BLOCK, "{}: past a branch", C::NAME);
    assert_eq!(client.look_up(&C::prompt(&Tokens::sequence(3, 8 * BLOCK))), 0, "{}: something else", C::NAME);
}

fn evicts<C: Contender<Client: Writer>>() {
    let mut client = C::client(&Arc::new(C::new(6)));
    let leaves: Vec<C::Prompt> = (1..=4).map(|seed| C::prompt(&Tokens::sequence(seed, BLOCK))).collect();
    let held = client.hold(&C::prompt(&Tokens::sequence(9, 2 * BLOCK)));
    for leaf in &leaves {
        client.insert(leaf, &mut Clock::default());
    }
    client.settle();
    assert_eq!(client.evict(2), 2, "{}", C::NAME);
    client.settle();
    let left = leaves.iter().filter(|leaf| client.look_up(leaf) == BLOCK).count();
    assert_eq!(left, 2, "{}: the others remain", C::NAME);
    let tail = Tokens::new(4 * BLOCK, |out| {
        out[..2 * BLOCK].copy_from_slice(&Tokens::sequence(9, 2 * BLOCK));
        out[2 * BLOCK..].copy_from_slice(&Tokens::sequence(10, 2 * BLOCK));
    });
    client.append(&held, &C::prompt(&tail));
    client.settle();
    assert_eq!(client.look_up(&C::prompt(&tail)), 4 * BLOCK, "{}: the prefix was held", C::NAME);
}

/// In a full pool, a new prompt replaces the oldest.
fn turns_over<C: Contender<Client: Writer>>() {
    let mut client = C::client(&Arc::new(C::new(8)));
    for seed in 1..=40 {
        assert_eq!(insert::<C>(&mut client, &Tokens::sequence(seed, 2 * BLOCK)), 0, "{}", C::NAME);
    }
    let cached = (1..=40).filter(|&seed| client.look_up(&C::prompt(&Tokens::sequence(seed, 2 * BLOCK))) > 0).count();
    assert_eq!(cached, 4, "{}", C::NAME);
}

#[test]
fn everybody_matches_what_was_inserted() {
    answers::<Radixkv>();
    answers::<Mutexed>();
    answers::<Shared>();
    answers::<Tenants>();
    answers::<Routed<Chains, false>>();
    answers::<Routed<Chains, true>>();
    answers::<Routed<Compressed, false>>();
    answers::<Routed<Compressed, true>>();
    answers::<Routed<Holders, false>>();
    answers::<Routed<Holders, true>>();
    answers::<Managed<false>>();
    answers::<Managed<true>>();
}

#[test]
fn everybody_makes_room() {
    evicts::<Radixkv>();
    evicts::<Mutexed>();
    evicts::<Shared>();
    evicts::<Routed<Chains, true>>();
    evicts::<Routed<Compressed, true>>();
    evicts::<Routed<Holders, true>>();
    evicts::<Managed<true>>();
}

#[test]
fn pools_stay_full() {
    turns_over::<Radixkv>();
    turns_over::<Mutexed>();
    turns_over::<Shared>();
    turns_over::<Routed<Chains, true>>();
    turns_over::<Routed<Compressed, true>>();
    turns_over::<Routed<Holders, true>>();
    turns_over::<Managed<true>>();
}
