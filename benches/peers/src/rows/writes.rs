//! Rows that insert a tail, and rows that evict leaves.

use std::{hint::black_box, sync::Arc};

use radixkv::Token;

use super::FEW;
use crate::{
    arena::{
        BLOCK, HOT,
        contender::{Client, Clock, Contender, check},
        measure::{Spread, time},
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
/// Step between two visited leaves: visits all of them in a scattered order.
const STRIDE: usize = 7_919;

/// The row `insert`: a tail after a held prefix. `entries` are measured by [`append`].
pub(crate) fn insert(settings: &Settings, mut entries: Vec<Entry>) -> Row {
    let limit = settings.clone();
    entries.insert(0, Entry::limit("malloc + copy", move || copy(&limit)));
    Row {
        name: "insert",
        what: "256 tokens after a held prefix of 2,496: 16 blocks reserved, inserted, released".into(),
        figures: vec!["ns".into()],
        entries,
        at_once: true,
        rounds: settings.rounds,
    }
}

/// The prefix, followed by the tail of this seed.
fn with_tail(seed: u32) -> Tokens {
    let (prefix, tail) = (Tokens::sequence(1, HOT), Tokens::sequence(seed, FRESH));
    Tokens::new(HOT + FRESH, |out| {
        out[..HOT].copy_from_slice(&prefix);
        out[HOT..].copy_from_slice(&tail);
    })
}

/// Tails of one prefix, and a client that holds it in a cache with room for all of them.
struct Tails<C: Contender<Client: Writer>> {
    client: C::Client,
    held: <C::Client as Writer>::Held,
    prompts: Vec<C::Prompt>,
}

impl<C: Contender<Client: Writer>> Tails<C> {
    fn new(tails: usize) -> Self {
        let mut client = C::client(&Arc::new(C::new((HOT + tails * FRESH) / BLOCK)));
        let held = client.hold(&C::prompt(&Tokens::sequence(1, HOT)));
        Self { client, held, prompts: (0..tails as u32).map(|at| C::prompt(&with_tail(7 + at))).collect() }
    }

    /// Appends the tail with this number.
    fn append(&mut self, at: usize) {
        self.client.append(&self.held, &self.prompts[at]);
    }

    /// Checks that all tails are cached, and evicts them.
    fn end_round(&mut self) {
        let (tails, middle) = (self.prompts.len(), &self.prompts[self.prompts.len() / 2]);
        check(self.client.look_up(middle), HOT + FRESH);
        self.client.evict(tails * FRESH / BLOCK);
        self.client.settle();
        check(self.client.look_up(middle), HOT);
    }
}

pub(crate) fn append<C: Contender<Client: Writer>>(settings: &Settings) -> Round {
    let tails = settings.calls(TAILS);
    let mut all = Tails::<C>::new(tails);
    Box::new(move || {
        let mut at = 0..;
        let appended = time(tails, || all.append(at.next().expect("endless")));
        let settled = time(1, || all.client.settle()) / tails as f64;
        all.end_round();
        vec![appended + settled]
    })
}

/// A round is the median time of `tails` single appends: the median leaves out the few in which the
/// allocator calls the system.
pub(crate) fn append_singly<C: Contender<Client: Writer>>(tails: usize) -> Round {
    let mut all = Tails::<C>::new(tails);
    Box::new(move || {
        let median = Spread::of((0..tails).map(|at| time(1, || all.append(at))).collect()).median;
        all.client.settle();
        all.end_round();
        vec![median]
    })
}

/// The copy of a tail: its tokens, and its block ids.
type Copied = (Vec<Token>, Vec<u32>);

/// Copies the tokens and block ids of each tail into newly allocated memory.
fn copier(tails: usize) -> impl FnMut(&mut Vec<Copied>) {
    let prompts: Vec<Tokens> = (0..tails as u32).map(|at| with_tail(7 + at)).collect();
    let blocks = vec![0u32; FRESH / BLOCK];
    move |copies| copies.push(black_box((prompts[copies.len()][HOT..].to_vec(), blocks.clone())))
}

/// The limit of [`append`]: all tails are copied, and then all are freed.
pub(crate) fn copy(settings: &Settings) -> Round {
    let tails = settings.calls(TAILS);
    let (mut copy, mut copies) = (copier(tails), Vec::with_capacity(tails));
    Box::new(move || {
        let taken = time(tails, || copy(&mut copies));
        copies.clear();
        vec![taken]
    })
}

/// The limit of [`append_singly`].
pub(crate) fn copy_singly(tails: usize) -> Round {
    let (mut copy, mut copies) = (copier(tails), Vec::with_capacity(tails));
    Box::new(move || {
        let median = Spread::of((0..tails).map(|_| time(1, || copy(&mut copies))).collect()).median;
        copies.clear();
        vec![median]
    })
}

/// A row that evicts leaves of one block each. `entries` are measured by [`of_1k`] and the like.
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
    // Half of a small cache, many times; of a large one, so few that its size hardly changes.
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
