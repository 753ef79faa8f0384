//! Rows that match cold prompts, and prompts that do not fit into the inner CPU caches.

use std::{hint::black_box, sync::Arc};

use crate::arena::{
    BLOCK, HOT,
    contender::{Client, Clock, Contender, check},
    measure::time,
    row::{Entry, Round, Row},
    rows::{cached, compare},
    settings::Settings,
    tokens::Tokens,
};

/// Tokens of a cold prompt.
const COLD: usize = 160;
/// Cold prompts looked up in one round.
const VISITED: usize = 5_000;
/// Distinct cold prompts looked up in all rounds: each round continues where the one before ended.
const SAMPLE: usize = 100_000;
/// Prompts matched in turn: 10 MB of tokens.
const ROTATING: usize = 1_000;
/// Step between two visited prompts: visits all of them in a scattered order.
const STRIDE: usize = 7_919;

/// The row `rotating`: matches prompts in turn. `entries` are measured by [`rotate`].
pub(crate) fn rotating(settings: &Settings, mut entries: Vec<Entry>) -> Row {
    let limit = settings.clone();
    entries.insert(0, Entry::limit("memcmp", move || compare_rotating(&limit)));
    Row {
        name: "rotating",
        what: "1,000 prompts of 2,496 tokens matched in turn: they do not fit into the inner caches".into(),
        figures: vec!["ns".into()],
        entries,
        at_once: true,
        rounds: settings.rounds,
    }
}

pub(crate) fn rotate<C: Contender>(settings: &Settings) -> Round {
    let mut client = C::client(&Arc::new(C::new(ROTATING * HOT / BLOCK)));
    let prompts = (0..ROTATING as u32).map(|seed| cached::<C>(&mut client, &Tokens::sequence(seed, HOT)));
    in_turn(settings.calls(2 * ROTATING), prompts.collect(), move |prompt| check(client.look_up(prompt), HOT))
}

pub(crate) fn compare_rotating(settings: &Settings) -> Round {
    let prompts = (0..ROTATING as u32).map(|seed| Tokens::sequence(seed, HOT));
    let pairs = prompts.map(|prompt| (prompt.copy(), prompt)).collect();
    in_turn(settings.calls(2 * ROTATING), pairs, |(copy, prompt)| compare(prompt, copy))
}

/// A round of `calls` calls of `work`, each with the next item, in a cycle.
fn in_turn<T: 'static>(calls: usize, items: Vec<T>, mut work: impl FnMut(&T) + 'static) -> Round {
    let mut at = 0;
    Box::new(move || {
        let next = || {
            at = (at + 1) % items.len();
            work(black_box(&items[at]));
        };
        vec![time(calls, next)]
    })
}

/// A row that matches short prompts among many. `entries` are measured by [`among_100k`] or
/// [`among_1m`].
pub(crate) fn cold(name: &'static str, among: usize, settings: &Settings, mut entries: Vec<Entry>) -> Row {
    let limit = settings.clone();
    entries.insert(0, Entry::limit("memcmp", move || compare_cold(&limit, among)));
    Row {
        name,
        what: format!("a prompt of 160 tokens among {among} that were inserted in another order"),
        figures: vec!["ns".into()],
        entries,
        at_once: false,
        rounds: settings.rounds,
    }
}

pub(crate) fn among_100k<C: Contender>(settings: &Settings) -> Round {
    look_up_cold::<C>(100_000, settings)
}

pub(crate) fn among_1m<C: Contender>(settings: &Settings) -> Round {
    look_up_cold::<C>(1_000_000, settings)
}

pub(crate) fn look_up_cold<C: Contender>(among: usize, settings: &Settings) -> Round {
    let mut client = C::client(&Arc::new(C::new(among * COLD / BLOCK)));
    for seed in 0..among {
        client.insert(&C::prompt(&Tokens::sequence(seed as u32, COLD)), &mut Clock::default());
    }
    client.settle();
    let prompts = sample(among).map(|tokens| C::prompt(&tokens)).collect();
    in_turn(settings.calls(VISITED), prompts, move |prompt| check(client.look_up(prompt), COLD))
}

/// The prompts to look up, in the order of the visits.
fn sample(among: usize) -> impl Iterator<Item = Tokens> {
    (0..among.min(SAMPLE)).map(move |at| Tokens::sequence((at * STRIDE % among) as u32, COLD))
}

fn compare_cold(settings: &Settings, among: usize) -> Round {
    let mut copies: Vec<(usize, Option<Tokens>)> =
        (0..among.min(SAMPLE)).map(|at| (at * STRIDE % among, None)).collect();
    // Allocated in the order of insertion, so that the visits jump in memory.
    let mut order: Vec<usize> = (0..copies.len()).collect();
    order.sort_by_key(|&at| copies[at].0);
    for at in order {
        copies[at].1 = Some(Tokens::sequence(copies[at].0 as u32, COLD));
    }
    let pairs =
        copies.into_iter().zip(sample(among)).map(|((_, copy), prompt)| (copy.expect("made"), prompt)).collect();
    in_turn(settings.calls(VISITED), pairs, |(copy, prompt)| compare(prompt, copy))
}
