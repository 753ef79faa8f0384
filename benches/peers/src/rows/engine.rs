//! The row `engine`: the calls of an engine's sequences. A prompt is matched and blocks for the
//! rest are acquired; the sequence is inserted in chunks, grows block by block, and ends.

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

/// Numbers of concurrent sequences, over all threads.
const SESSIONS: [usize; 4] = [1, 4, 16, 64];
/// Tokens of the contexts that prompts begin with.
const CONTEXTS: [usize; 8] = [2 << 10, 4 << 10, 6 << 10, 8 << 10, 12 << 10, 16 << 10, 24 << 10, 32 << 10];
/// Chunks of a prompt beyond its context, and tokens per chunk.
const CHUNKS: usize = 8;
const CHUNK: usize = 512;
/// Blocks that a sequence generates.
const GENERATED: usize = 64;
/// One in this many sequences is aborted.
const ABORTED: u32 = 50;
/// Blocks of a sequence beyond its context.
const FRESH: usize = CHUNKS * CHUNK / BLOCK + GENERATED;
/// Ended sequences that stay cached, per running sequence.
const KEPT: usize = 2;
/// Requests that one place serves in a round.
const REQUESTS: usize = 12;

/// The operations of a cache that a thread of an engine uses.
pub(crate) trait Serves: Client {
    /// The lease and the blocks of a running sequence.
    type Running;

    /// Leases the cached prefix of a prompt, and reserves blocks for the rest. Also returns the
    /// number of matched tokens.
    fn begin(&mut self, prompt: &[Token]) -> (Self::Running, usize);

    /// Inserts the sequence up to the end of `tokens`, in blocks that were reserved.
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

/// A place in the batch: serves one sequence after another, each with the next context.
struct Place<S: Serves> {
    /// Each context, followed by the tokens of the current sequence.
    prompts: [Vec<Token>; CONTEXTS.len()],
    /// Index of the current sequence's prompt.
    at: usize,
    running: Option<S::Running>,
    steps: usize,
    /// The sequence ends after this many steps; an aborted one has fewer.
    last: usize,
    /// Number of the current sequence, unique across places.
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

    /// Takes the next step of its sequence; true if that ended it.
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
    // Place `i` belongs to thread `i % most`.
    let mut team =
        Team::new(most, make, move |(client, places, thread): &mut (_, Vec<_>, usize), (sessions, requests)| {
            let own = sessions_of(*thread, sessions, most);
            serve::<C>(client, &mut places[..own], requests);
        });
    // Warm-up: the pool is full afterwards.
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

/// The number of the first `sessions` places that belong to a thread.
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

/// Steps the places' sequences in turn, until they have served `requests` per place.
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
