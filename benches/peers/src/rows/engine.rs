//! What an engine's sequences do: a prompt is matched, its blocks are acquired, it is computed in
//! chunks, grows block by block, ends.

use std::sync::Arc;

use radixkv::{BlockId, Lease, Reservation, Token};

use crate::arena::{
    BLOCK,
    contender::{Client, Contender, check},
    mutexed::MutexedClient,
    own::RadixkvClient,
    row::{Entry, Round, Row},
    rows::{compare, copy, most},
    settings::Settings,
    strawman::Pin,
    team::Team,
    tokens::Tokens,
};

/// Sequences that run at a time, in all.
const SESSIONS: [usize; 4] = [1, 4, 16, 64];
/// Tokens of the contexts that prompts begin with.
const CONTEXTS: [usize; 8] = [2 << 10, 4 << 10, 6 << 10, 8 << 10, 12 << 10, 16 << 10, 24 << 10, 32 << 10];
/// Chunks of a prompt beyond its context, and tokens of each.
const CHUNKS: usize = 8;
const CHUNK: usize = 512;
/// Blocks that are generated.
const GENERATED: usize = 64;
/// One of so many sequences is aborted.
const ABORTED: u32 = 50;
/// Blocks of a sequence beyond its context.
const FRESH: usize = CHUNKS * CHUNK / BLOCK + GENERATED;
/// Sequences that ended and are cached, for each that runs.
const KEPT: usize = 2;
/// Requests of a sequence's place in a round.
const REQUESTS: usize = 12;

/// What a thread of an engine asks of a cache.
pub(crate) trait Serves: Client {
    /// What a running sequence holds.
    type Running;

    /// Leases what is cached of a prompt, and reserves the blocks of the rest; also how many tokens
    /// matched.
    fn begin(&mut self, prompt: &[Token]) -> (Self::Running, usize);

    /// Inserts what was computed up to here, in blocks that were reserved.
    fn extend(&mut self, running: &mut Self::Running, tokens: &[Token]);

    /// Reserves one more block, and inserts it.
    fn grow(&mut self, running: &mut Self::Running, tokens: &[Token]);

    fn end(&mut self, running: Self::Running);
}

impl Serves for RadixkvClient {
    type Running = (Lease, Reservation);

    fn begin(&mut self, prompt: &[Token]) -> (Self::Running, usize) {
        let acquired = self.session.acquire(&self.space, prompt, 0).expect("the pool has room");
        let found = acquired.hit.len_tokens();
        ((acquired.hit.into_lease(), acquired.blocks), found)
    }

    fn extend(&mut self, (lease, reserved): &mut Self::Running, tokens: &[Token]) {
        let chunk = reserved.split((tokens.len() - lease.len_tokens()) / BLOCK);
        *lease = self.session.insert(lease, tokens, chunk).expect("the reservation fits").lease;
    }

    fn grow(&mut self, (lease, _): &mut Self::Running, tokens: &[Token]) {
        let block = self.session.reserve(1).expect("the pool has room");
        *lease = self.session.insert(lease, tokens, block).expect("the reservation fits").lease;
    }

    fn end(&mut self, running: Self::Running) {
        drop(running);
    }
}

impl Serves for MutexedClient {
    type Running = (Pin, Vec<BlockId>);

    fn begin(&mut self, prompt: &[Token]) -> (Self::Running, usize) {
        let pin = self.cache.tree().lease(prompt, &mut self.blocks);
        let missing = (prompt.len() - pin.len) / BLOCK;
        let reserved = self.cache.tree().reserve(missing).expect("the pool has room");
        ((pin, reserved), pin.len)
    }

    fn extend(&mut self, (pin, reserved): &mut Self::Running, tokens: &[Token]) {
        let chunk = reserved.drain(..(tokens.len() - pin.len) / BLOCK).collect();
        let mut tree = self.cache.tree();
        let inserted = tree.insert(*pin, tokens, chunk);
        tree.release(std::mem::replace(pin, inserted));
    }

    fn grow(&mut self, running: &mut Self::Running, tokens: &[Token]) {
        running.1 = self.cache.tree().reserve(1).expect("the pool has room");
        self.extend(running, tokens);
    }

    fn end(&mut self, (pin, reserved): Self::Running) {
        let mut tree = self.cache.tree();
        tree.release(pin);
        tree.give_back(reserved);
    }
}

/// A place for one sequence after another, each with the next context.
struct Place<S: Serves> {
    /// Each context, and what comes after it in the present sequence.
    prompts: [Vec<Token>; CONTEXTS.len()],
    /// Which of them the present sequence has.
    at: usize,
    running: Option<S::Running>,
    steps: usize,
    /// After so many steps it is aborted.
    last: usize,
    /// The sequences of a place are numbered, and no two places have the same numbers.
    number: u32,
}

impl<S: Serves> Place<S> {
    fn new(place: usize) -> Self {
        let prompts = CONTEXTS.map(|len| {
            let mut tokens = context_tokens(len).to_vec();
            tokens.resize(len + FRESH * BLOCK, 0);
            tokens
        });
        Self { prompts, at: place % CONTEXTS.len(), running: None, steps: 0, last: 0, number: (place as u32) << 20 }
    }

    /// The next thing that its sequence does; whether it was the last one.
    fn step(&mut self, client: &mut S) -> bool {
        let Some(running) = &mut self.running else {
            self.begin(client);
            return false;
        };
        if self.steps == self.last {
            client.end(self.running.take().expect("it runs"));
            return true;
        }
        let computed = if self.steps < CHUNKS {
            (self.steps + 1) * CHUNK
        } else {
            CHUNKS * CHUNK + (self.steps + 1 - CHUNKS) * BLOCK
        };
        let tokens = &self.prompts[self.at][..CONTEXTS[self.at] + computed];
        if self.steps < CHUNKS {
            client.extend(running, tokens)
        } else {
            client.grow(running, tokens)
        }
        self.steps += 1;
        false
    }

    fn begin(&mut self, client: &mut S) {
        self.number += 1;
        self.at = (self.at + 1) % CONTEXTS.len();
        let (context, prompt) = (CONTEXTS[self.at], &mut self.prompts[self.at]);
        prompt[context..].chunks_exact_mut(BLOCK).for_each(|block| block[0] = self.number);
        let (running, found) = client.begin(&prompt[..context + CHUNKS * CHUNK]);
        check(found, context);
        self.running = Some(running);
        self.steps = 0;
        let all = CHUNKS + GENERATED;
        self.last = if self.number.is_multiple_of(ABORTED) { self.number as usize / 7 % all } else { all };
    }
}

fn context_tokens(len: usize) -> Tokens {
    Tokens::sequence(len as u32, len)
}

/// `entries` are measured by [`serve_sequences`].
pub(crate) fn engine(settings: &Settings, mut entries: Vec<Entry>) -> Row {
    let limit = settings.clone();
    entries.insert(0, Entry::limit("memcmp, malloc + copy", move || compare_and_copy(&limit)));
    let threads = |sessions: usize| sessions.min(most(settings));
    let figure = |sessions| format!("k/s, {sessions} on {} thr.", threads(sessions));
    Row {
        name: "engine",
        what: format!(
            "requests: a context of 2 k to 32 k tokens matched, {CHUNKS} chunks of {CHUNK} tokens and {GENERATED} blocks inserted, ended; \
             one of {ABORTED} aborted; so many sequences at a time"
        ),
        figures: SESSIONS.map(figure).to_vec(),
        entries,
        at_once: true,
        rounds: settings.rounds,
    }
}

pub(crate) fn serve_sequences<C: Contender<Client: Serves>>(settings: &Settings) -> Round {
    let sessions = SESSIONS[SESSIONS.len() - 1];
    let blocks = CONTEXTS.iter().sum::<usize>() / BLOCK + sessions * FRESH * (1 + KEPT);
    let cache = Arc::new(C::new(blocks));
    cache_contexts::<C>(&cache);
    let most = most(settings);
    let requests = settings.calls(REQUESTS);
    let make = move |thread: usize| {
        let places: Vec<_> = (thread..sessions.max(most)).step_by(most).map(Place::<C::Client>::new).collect();
        (C::client(&cache), places, thread)
    };
    // Place `i` is one of thread `i % most`.
    let mut team =
        Team::new(most, make, move |(client, places, thread): &mut (_, Vec<_>, usize), (sessions, requests)| {
            let own = sessions_of(*thread, sessions, most);
            serve::<C>(client, &mut places[..own], requests);
        });
    // The pool is full from here on.
    team.run(most.min(sessions), (sessions, 2 * (1 + KEPT)));
    Box::new(move || {
        let run = |&sessions: &usize| {
            let requests = requests * SESSIONS[SESSIONS.len() - 1] / sessions;
            let (taken, _) = team.run(sessions.min(most), (sessions, requests));
            (sessions * requests) as f64 / taken.as_secs_f64() / 1e3
        };
        SESSIONS.iter().map(run).collect()
    })
}

/// How many of the first `sessions` places are a thread's, of so many threads.
fn sessions_of(thread: usize, sessions: usize, threads: usize) -> usize {
    sessions.saturating_sub(thread).div_ceil(threads)
}

fn cache_contexts<C: Contender<Client: Serves>>(cache: &Arc<C>) {
    let mut client = C::client(cache);
    for context in CONTEXTS {
        let tokens = context_tokens(context);
        let (mut running, _) = client.begin(&tokens);
        client.extend(&mut running, &tokens);
        client.end(running);
    }
    client.settle();
}

/// Steps each place's sequence in turn, until each place has served so many.
fn serve<C: Contender<Client: Serves>>(client: &mut C::Client, places: &mut [Place<C::Client>], requests: usize) {
    let mut left = places.len() * requests;
    while left > 0 {
        for place in places.iter_mut() {
            left = left.saturating_sub(usize::from(place.step(client)));
        }
    }
}

fn compare_and_copy(settings: &Settings) -> Round {
    let contexts = CONTEXTS.map(context_tokens);
    let copies = contexts.each_ref().map(Tokens::copy);
    let (fresh, blocks) = (Tokens::sequence(1, FRESH * BLOCK), vec![0u32; FRESH]);
    let (most, requests) = (most(settings), settings.calls(100 * REQUESTS));
    let mut team = Team::new(
        most,
        |_| (),
        move |(), requests: usize| {
            for at in 0..requests {
                compare(&contexts[at % CONTEXTS.len()], &copies[at % CONTEXTS.len()]);
                copy(&fresh, &blocks);
            }
        },
    );
    Box::new(move || {
        let run = |&sessions: &usize| {
            let threads = sessions.min(most);
            (threads * requests) as f64 / team.run(threads, requests).0.as_secs_f64() / 1e3
        };
        SESSIONS.iter().map(run).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_one_threads() {
        for threads in 1..=80 {
            for sessions in SESSIONS {
                let own = |thread| sessions_of(thread, sessions, threads);
                assert_eq!((0..threads).map(own).sum::<usize>(), sessions);
                let places = |thread: usize| (thread..64.max(threads)).step_by(threads).count();
                assert!(
                    (0..threads).all(|thread| own(thread) <= places(thread)),
                    "{threads} threads, {sessions} at a time"
                );
            }
        }
    }
}
