//! Inserting a tail, and evicting leaves.

use std::{hint::black_box, sync::Arc};

use super::FEW;
use crate::{
    arena::{
        BLOCK, HOT,
        contender::{Client, Clock, Contender, check},
        measure::time,
        row::{Entry, Round, Row},
        rows::FRESH,
        settings::Settings,
        tokens::Tokens,
    },
    writer::Writer,
};

/// Tails inserted in one round.
const TAILS: usize = 500;
/// Leaves evicted in one call.
const EACH: usize = 100;
/// Leaves evicted in one round.
const EVICTED: usize = 10_000;
/// Visits leaves in no order, and all of them.
const STRIDE: usize = 7_919;

/// A tail under a prefix that is held. `entries` are measured by [`append`].
pub(crate) fn insert(settings: &Settings, mut entries: Vec<Entry>) -> Row {
    let limit = settings.clone();
    entries.insert(0, Entry::limit("malloc + copy", move || copy(&limit)));
    Row {
        name: "insert",
        what: "256 tokens after a held prefix of 2,496: 16 blocks reserved, inserted, released".into(),
        figures: vec!["ns".into(), "ns, before settling".into()],
        entries,
        at_once: true,
        rounds: settings.rounds,
    }
}

/// The prefix with another tail for each seed.
fn with_tail(seed: u32) -> Tokens {
    let (prefix, tail) = (Tokens::sequence(1, HOT), Tokens::sequence(seed, FRESH));
    Tokens::new(HOT + FRESH, |out| {
        out[..HOT].copy_from_slice(&prefix);
        out[HOT..].copy_from_slice(&tail);
    })
}

pub(crate) fn append<C: Contender<Client: Writer>>(settings: &Settings) -> Round {
    let tails = settings.calls(TAILS);
    let mut client = C::client(&Arc::new(C::new((HOT + tails * FRESH) / BLOCK)));
    let held = client.hold(&C::prompt(&Tokens::sequence(1, HOT)));
    let prompts: Vec<C::Prompt> = (0..tails as u32).map(|at| C::prompt(&with_tail(7 + at))).collect();
    Box::new(move || {
        let mut at = 0;
        let appended = time(tails, || {
            client.append(&held, &prompts[at]);
            at += 1;
        });
        let settled = time(1, || client.settle()) / tails as f64;
        check(client.look_up(&prompts[tails / 2]), HOT + FRESH);
        client.evict(tails * FRESH / BLOCK);
        client.settle();
        check(client.look_up(&prompts[tails / 2]), HOT);
        vec![appended + settled, appended]
    })
}

/// Tokens and block ids of the tails go into memory of their own, all at once.
pub(crate) fn copy(settings: &Settings) -> Round {
    let tails = settings.calls(TAILS);
    let (prompts, blocks): (Vec<Tokens>, _) =
        ((0..tails as u32).map(|at| with_tail(7 + at)).collect(), vec![0u32; FRESH / BLOCK]);
    let mut copies = Vec::with_capacity(tails);
    Box::new(move || {
        let mut at = 0;
        let taken = time(tails, || {
            copies.push(black_box((prompts[at][HOT..].to_vec(), blocks.clone())));
            at += 1;
        });
        copies.clear();
        vec![taken; 2]
    })
}

/// Leaves of one block each. `entries` are measured by [`of_1k`] and the like.
pub(crate) fn evict(name: &'static str, leaves: usize, settings: &Settings, entries: Vec<Entry>) -> Row {
    Row {
        name,
        what: format!("100 leaves of one block evicted in a call, of {leaves} used in no order; per leaf"),
        figures: vec!["ns".into()],
        entries,
        at_once: leaves < 1_000_000,
        rounds: if leaves < 100_000 { settings.rounds } else { settings.rounds.min(FEW) },
    }
}

pub(crate) fn of_1k<C: Contender<Client: Writer>>(settings: &Settings) -> Round {
    evict_from::<C>(1_000, settings)
}

pub(crate) fn of_100k<C: Contender<Client: Writer>>(settings: &Settings) -> Round {
    evict_from::<C>(100_000, settings)
}

pub(crate) fn of_1m<C: Contender<Client: Writer>>(settings: &Settings) -> Round {
    evict_from::<C>(1_000_000, settings)
}

pub(crate) fn evict_from<C: Contender<Client: Writer>>(leaves: usize, settings: &Settings) -> Round {
    let mut client = C::client(&Arc::new(C::new(leaves)));
    let mut fresh = 0..;
    let mut insert = move |client: &mut C::Client, count: usize| {
        for seed in fresh.by_ref().take(count) {
            client.insert(&C::prompt(&Tokens::sequence(seed, BLOCK)), &mut Clock::default());
        }
        client.settle();
    };
    insert(&mut client, leaves);
    for at in 0..leaves {
        let used = C::prompt(&Tokens::sequence((at * STRIDE % leaves) as u32, BLOCK));
        check(client.look_up(&used), BLOCK);
    }
    client.settle();
    // Half of a small cache, many times; of a large one a part that does not change it.
    let evicted = EVICTED.min(leaves / 2);
    let times = settings.calls(EVICTED / evicted);
    Box::new(move || {
        let mut taken = 0.0;
        for _ in 0..times {
            taken += time(1, || {
                (0..evicted / EACH).for_each(|_| check(client.evict(EACH), EACH));
                client.settle();
            });
            insert(&mut client, evicted);
        }
        vec![taken / (times * evicted) as f64]
    })
}
