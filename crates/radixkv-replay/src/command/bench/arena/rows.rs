//! The standard rows: matching a hot prefix, on one thread and on several, and replacing blocks in
//! a full pool.

use std::{hint::black_box, sync::Arc};

use radixkv::Token;

use super::{
    BLOCK, HOT,
    contender::{Client, Clock, Contender, check},
    measure::{millions, share, time},
    row::{Entry, Round, Row, repeated},
    settings::Settings,
    team::Team,
    tokens::Tokens,
};

/// Length in tokens of a prompt that is inserted.
pub(crate) const FRESH: usize = 256;
/// Number of prompts that fit into the pool of the turnover load.
pub(crate) const CACHED: usize = 4_096;
/// Target duration of a measurement with several threads, in nanoseconds of one thread.
const LONG: f64 = 20e6;

/// Makes an [`Entry`] for each contender, measured by a function that takes the settings.
macro_rules! entries {
    ($start:ident, $settings:expr; $($contender:ty),+ $(,)?) => {
        vec![$({
            let settings = $settings.clone();
            Entry::new::<$contender>(move || $start::<$contender>(&settings))
        }),+]
    };
}
pub(crate) use entries;

/// The row that matches one hot prefix. [`look_up_hot`] measures `entries`.
pub(crate) fn hot(settings: &Settings, mut entries: Vec<Entry>) -> Row {
    let limit = settings.clone();
    entries.insert(0, Entry::limit("memcmp", move || compare_hot(&limit)));
    Row {
        name: "match",
        what: "a hot prefix of 2,496 tokens: matched, leased, its block ids taken, released".into(),
        figures: vec!["ns".into()],
        entries,
        at_once: true,
        rounds: settings.rounds,
    }
}

/// Inserts a prompt, and returns it in the form in which the contender matches it.
pub(crate) fn cached<C: Contender>(client: &mut C::Client, tokens: &Tokens) -> C::Prompt {
    let prompt = C::prompt(tokens);
    client.insert(&prompt, &mut Clock::default());
    client.settle();
    check(client.look_up(&prompt), tokens.len() / BLOCK * BLOCK);
    prompt
}

pub(crate) fn look_up_hot<C: Contender>(settings: &Settings) -> Round {
    let mut client = C::client(&Arc::new(C::new(HOT / BLOCK)));
    let prompt = cached::<C>(&mut client, &Tokens::sequence(1, HOT));
    repeated(settings, move || check(client.look_up(black_box(&prompt)), HOT))
}

fn compare_hot(settings: &Settings) -> Round {
    let prompt = Tokens::sequence(1, HOT);
    let copy = prompt.copy();
    repeated(settings, move || compare(&prompt, &copy))
}

/// Compares two equal arrays with memcmp, hidden from the optimizer.
pub(crate) fn compare(a: &[Token], b: &[Token]) {
    assert!(black_box(black_box(a) == black_box(b)));
}

/// The row in which all threads match the same prefix. [`look_up_together`] measures `entries`.
pub(crate) fn contention(settings: &Settings, entries: Vec<Entry>) -> Row {
    hot_prefixes("contention", "the same hot prefix matched by every thread", Prefixes::One, settings, entries)
}

/// A row in which threads match hot prefixes. [`look_up_each`] with the same `prefixes` measures
/// `entries`.
pub(crate) fn hot_prefixes(
    name: &'static str,
    what: &str,
    prefixes: Prefixes,
    settings: &Settings,
    mut entries: Vec<Entry>,
) -> Row {
    let limit = settings.clone();
    entries.insert(0, Entry::limit("memcmp", move || compare_each(&limit, prefixes)));
    Row {
        name,
        what: format!("{what}: millions a second, of all threads"),
        figures: settings.threads.iter().map(|&threads| per_second(threads)).collect(),
        entries,
        at_once: true,
        rounds: settings.rounds,
    }
}

pub(crate) fn per_second(threads: usize) -> String {
    match threads {
        1 => "M/s, 1 thread".into(),
        _ => format!("M/s, {threads} threads"),
    }
}

pub(crate) fn look_up_together<C: Contender>(settings: &Settings) -> Round {
    look_up_each::<C>(settings, Prefixes::One)
}

/// The hot prefixes that threads look up.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Prefixes {
    /// The same prefix for all threads.
    One,
    /// This number of prefixes, all of which each thread looks up in turn.
    #[allow(dead_code, reason = "for the peers' rows")]
    Many(usize),
    /// A separate prefix for each thread.
    #[allow(dead_code, reason = "for the peers' rows")]
    Own,
}

impl Prefixes {
    fn tokens(self, threads: usize) -> impl Iterator<Item = Tokens> {
        let count = match self {
            Self::One => 1,
            Self::Many(count) => count,
            Self::Own => threads,
        };
        (1..=count).map(|seed| Tokens::sequence(seed as u32, HOT))
    }

    /// The index of a thread's `turn`-th lookup among `count` prefixes. Threads start at different
    /// ones.
    fn at(self, thread: usize, turn: usize, count: usize) -> usize {
        match self {
            Self::Own => thread,
            Self::One | Self::Many(_) => (7 * thread + turn) % count,
        }
    }
}

pub(crate) fn look_up_each<C: Contender>(settings: &Settings, prefixes: Prefixes) -> Round {
    let tokens: Vec<Tokens> = prefixes.tokens(most(settings)).collect();
    let cache = Arc::new(C::new(tokens.len() * HOT / BLOCK));
    let mut first = C::client(&cache);
    let prompts: Vec<C::Prompt> = tokens.iter().map(|tokens| cached::<C>(&mut first, tokens)).collect();
    let calls = calls(settings, time(64, || check(first.look_up(&prompts[0]), HOT)));
    let look_up = move |(client, thread): &mut (C::Client, usize), ()| {
        for turn in 0..calls {
            let prompt = &prompts[prefixes.at(*thread, turn, prompts.len())];
            check(client.look_up(black_box(prompt)), HOT);
        }
    };
    let mut round = each_count(settings, calls, move |thread| (C::client(&cache), thread), look_up);
    Box::new(move || {
        // With some contenders, inserted prompts belong to the client that inserted them.
        let _ = &first;
        round()
    })
}

fn compare_each(settings: &Settings, prefixes: Prefixes) -> Round {
    let prompts: Vec<Tokens> = prefixes.tokens(most(settings)).collect();
    let copies: Vec<_> = prompts.iter().map(Tokens::copy).collect();
    let calls = calls(settings, time(1_000, || compare(&prompts[0], &copies[0])));
    let work = move |thread: &mut usize, ()| {
        for turn in 0..calls {
            let at = prefixes.at(*thread, turn, prompts.len());
            compare(&prompts[at], &copies[at]);
        }
    };
    each_count(settings, calls, |thread| thread, work)
}

/// The largest number of threads.
pub(crate) fn most(settings: &Settings) -> usize {
    settings.threads.iter().copied().max().unwrap_or(1)
}

/// The number of calls of a thread, if each takes `once` nanoseconds.
pub(crate) fn calls(settings: &Settings, once: f64) -> usize {
    settings.calls((LONG / once) as usize).clamp(64, 200_000)
}

/// A round in which each number of threads does `work` once, which makes `calls` calls; the values
/// are millions of calls per second.
pub(crate) fn each_count<T>(
    settings: &Settings,
    calls: usize,
    make: impl Fn(usize) -> T + Send + Sync + 'static,
    work: impl Fn(&mut T, ()) + Send + Sync + 'static,
) -> Round {
    let counts = settings.threads.clone();
    let mut team = Team::new(most(settings), make, work);
    Box::new(move || counts.iter().map(|&count| millions(count * calls, team.run(count, ()).0)).collect())
}

/// The row that only inserts new prompts into a full pool. [`turn_over`] measures `entries`.
pub(crate) fn turnover(settings: &Settings, mut entries: Vec<Entry>) -> Row {
    let limit = settings.clone();
    entries.insert(0, Entry::limit("malloc + copy", move || copy_together(&limit)));
    let threads = most(settings);
    let tail = |which: &str| format!("reserve {which}, us, {threads} thr.");
    Row {
        name: "turnover",
        what: "new prompts of 256 tokens, the pool full: matched in vain, 16 blocks reserved (16 others evicted), inserted, released"
            .into(),
        figures: settings.threads.iter().map(|&threads| per_second(threads)).chain([tail("p99"), tail("p99.9")]).collect(),
        entries,
        at_once: true,
        rounds: settings.rounds,
    }
}

/// A thread that inserts its own prompts in turn. They are twice as many as the pool holds, so each
/// was evicted long before it is inserted again.
pub(crate) struct Inserter<C: Contender> {
    pub(crate) client: C::Client,
    prompts: Vec<C::Prompt>,
    next: usize,
}

impl<C: Contender> Inserter<C> {
    /// Each `thread` has other prompts.
    pub(crate) fn new(cache: &Arc<C>, thread: usize) -> Self {
        let seeds = (0..2 * CACHED).map(|at| (2 + thread * 2 * CACHED + at) as u32);
        let prompts = seeds.map(|seed| C::prompt(&Tokens::sequence(seed, FRESH))).collect();
        Self { client: C::client(cache), prompts, next: 0 }
    }

    pub(crate) fn insert(&mut self, clock: &mut Clock) {
        check(self.client.insert(&self.prompts[self.next], clock), 0);
        self.next = (self.next + 1) % self.prompts.len();
    }

    /// Inserts `prompts` prompts. Returns the time of each reservation if `timed` is set, and how
    /// many tokens of the last prompt match afterwards.
    fn turn_over(&mut self, (prompts, timed): (usize, bool)) -> (Vec<f64>, usize) {
        let mut clock = if timed { Clock::running() } else { Clock::default() };
        (0..prompts).for_each(|_| self.insert(&mut clock));
        self.client.settle();
        let last = self.next.checked_sub(1).unwrap_or(self.prompts.len() - 1);
        (clock.nanoseconds, self.client.look_up(&self.prompts[last]))
    }
}

/// The times of the threads' reservations. The last prompt of a thread must match whole, unless
/// other threads filled the pool before its lookup; that cannot happen to all threads.
fn checked(turned: Vec<(Vec<f64>, usize)>) -> Vec<f64> {
    let found = turned.iter().map(|(_, found)| *found);
    found.clone().filter(|&found| found > 0).for_each(|found| check(found, FRESH));
    check(found.max().unwrap_or(0), FRESH);
    turned.into_iter().flat_map(|(waits, _)| waits).collect()
}

pub(crate) fn turn_over<C: Contender>(settings: &Settings) -> Round {
    let cache = Arc::new(C::new(CACHED * FRESH / BLOCK));
    let (counts, most) = (settings.threads.clone(), most(settings));
    let mut team = Team::new(most, move |thread| Inserter::new(&cache, thread), Inserter::<C>::turn_over);
    // Each thread fills the pool with the first half of its prompts.
    checked(team.run(most, (CACHED, false)).1);
    let (sample, turned) = team.run(1, (CACHED, false));
    checked(turned);
    let calls = calls(settings, sample.as_nanos() as f64 / CACHED as f64);
    Box::new(move || {
        let run = |&count: &usize| {
            let (taken, turned) = team.run(count, (calls, false));
            checked(turned);
            millions(count * calls, taken)
        };
        let mut figures: Vec<f64> = counts.iter().map(run).collect();
        let mut waits = checked(team.run(most, (calls, true)).1);
        waits.sort_by(f64::total_cmp);
        let tail = |of| if waits.is_empty() { f64::NAN } else { share(&waits, of) / 1e3 };
        figures.extend([tail(0.99), tail(0.999)]);
        figures
    })
}

/// The limit of turnover: copies the tokens and block ids of a prompt to new memory, and frees it.
fn copy_together(settings: &Settings) -> Round {
    let (prompt, blocks) = (Tokens::sequence(1, FRESH), vec![0u32; FRESH / BLOCK]);
    let calls = calls(settings, time(1_000, || copy(&prompt, &blocks)));
    let work = move |_: &mut (), ()| (0..calls).for_each(|_| copy(&prompt, &blocks));
    let mut rates = each_count(settings, calls, |_| (), work);
    Box::new(move || rates().into_iter().chain([f64::NAN; 2]).collect())
}

pub(crate) fn copy(tokens: &[Token], blocks: &[u32]) {
    drop(black_box((tokens.to_vec(), blocks.to_vec())));
}
