//! Rows that mix lookups of a hot prefix with inserts of new prompts, in a full pool.

use std::{hint::black_box, sync::Arc};

use crate::{
    arena::{
        BLOCK, HOT,
        contender::{Client, Clock, Contender, check},
        measure::{millions, time},
        row::{Entry, Round, Row},
        rows::{CACHED, FRESH, Inserter, calls, compare, copy, each_count, most, per_second},
        settings::Settings,
        team::Team,
        tokens::Tokens,
    },
    writer::Writer,
};

/// Lookups per insert in the row `mixed`.
const MANY: usize = 9;
/// Lookups per insert in the row `half`.
const ONE: usize = 1;

/// The row `mixed`. `entries` are measured by [`mix`].
pub(crate) fn mixed(settings: &Settings, entries: Vec<Entry>) -> Row {
    lookups_to_one("mixed", "nine matches", MANY, settings, entries)
}

/// The row `half`. `entries` are measured by [`mix_half`].
pub(crate) fn half(settings: &Settings, entries: Vec<Entry>) -> Row {
    lookups_to_one("half", "one match", ONE, settings, entries)
}

fn lookups_to_one(
    name: &'static str,
    matches: &str,
    lookups: usize,
    settings: &Settings,
    mut entries: Vec<Entry>,
) -> Row {
    let limit = settings.clone();
    entries.insert(0, Entry::limit("memcmp, malloc + copy", move || compare_and_copy(&limit, lookups)));
    Row {
        name,
        what: format!(
            "{matches} of a hot prefix of 2,496 tokens to one new prompt of 256, the pool full: millions of both a second"
        ),
        figures: settings.threads.iter().map(|&threads| per_second(threads)).collect(),
        entries,
        at_once: true,
        rounds: settings.rounds,
    }
}

struct Mixer<C: Contender> {
    inserter: Inserter<C>,
    hot: C::Prompt,
}

impl<C: Contender> Mixer<C> {
    fn mix(&mut self, lookups: usize, inserts: usize) {
        for _ in 0..inserts {
            for _ in 0..lookups {
                check(self.inserter.client.look_up(black_box(&self.hot)), HOT);
            }
            self.inserter.insert(&mut Clock::default());
        }
        self.inserter.client.settle();
    }
}

pub(crate) fn mix<C: Contender<Client: Writer>>(settings: &Settings) -> Round {
    mix_each::<C>(settings, MANY)
}

pub(crate) fn mix_half<C: Contender<Client: Writer>>(settings: &Settings) -> Round {
    mix_each::<C>(settings, ONE)
}

fn mix_each<C: Contender<Client: Writer>>(settings: &Settings, lookups: usize) -> Round {
    let cache = pool::<C>();
    let (counts, most) = (settings.threads.clone(), most(settings));
    let mut team =
        Team::new(most, move |thread| holding(&cache, thread), move |(mixer, _), inserts| mixer.mix(lookups, inserts));
    team.run(most, CACHED);
    let sample = team.run(1, CACHED).0;
    let inserts = calls(settings, sample.as_nanos() as f64 / CACHED as f64);
    let mut run = move |&count: &usize| millions(count * inserts * (lookups + 1), team.run(count, inserts).0);
    Box::new(move || counts.iter().map(&mut run).collect())
}

/// Fills the pool. The returned function makes a given number of inserts on this thread, with
/// `lookups` lookups before each.
pub(crate) fn mix_alone<C: Contender<Client: Writer>>(lookups: usize) -> impl FnMut(usize) {
    let (mut mixer, held) = holding::<C>(&pool(), 0);
    mixer.mix(lookups, CACHED);
    move |inserts| {
        let _ = &held;
        mixer.mix(lookups, inserts);
    }
}

/// A cache with room for the hot prefix and `CACHED` prompts.
fn pool<C: Contender>() -> Arc<C> {
    Arc::new(C::new((HOT + CACHED * FRESH) / BLOCK))
}

/// A thread's mixer, and the lease that keeps the hot prefix.
fn holding<C: Contender<Client: Writer>>(cache: &Arc<C>, thread: usize) -> (Mixer<C>, <C::Client as Writer>::Held) {
    let mut mixer = Mixer { inserter: Inserter::<C>::new(cache, thread), hot: C::prompt(&Tokens::sequence(1, HOT)) };
    let held = mixer.inserter.client.hold(&mixer.hot);
    (mixer, held)
}

fn compare_and_copy(settings: &Settings, lookups: usize) -> Round {
    let (hot, fresh, blocks) = (Tokens::sequence(1, HOT), Tokens::sequence(2, FRESH), vec![0u32; FRESH / BLOCK]);
    let same = hot.copy();
    let work = move || {
        (0..lookups).for_each(|_| compare(&hot, &same));
        copy(&fresh, &blocks);
    };
    let calls = calls(settings, time(100, &work));
    let mut rates = each_count(settings, calls, |_| (), move |(), ()| (0..calls).for_each(|_| work()));
    Box::new(move || rates().into_iter().map(|rate| rate * (lookups + 1) as f64).collect())
}
