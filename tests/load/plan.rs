//! What is asked for, and when: the same for the engine and the ideal.

use std::sync::Arc;

use fastrand::Rng;
use radixkv::Token;

pub const BLOCK_SIZE: usize = 4;
pub const BLOCKS: usize = 96;
pub const SCHEDULERS: usize = 4;
pub const CLIENTS: usize = 64;

/// Time from one step of a scheduler to its next.
pub const STEP: u64 = 4000;
/// From the step of a scheduler to that of the next one.
pub const PHASE: u64 = STEP / SCHEDULERS as u64;
/// Tokens of a prompt that one step computes.
pub const CHUNK: usize = 16;

/// Requests of each client.
const REQUESTS: usize = 64;
/// Prompts begin with one of these.
const BEGINNINGS: u32 = 6;

/// A request.
#[derive(Debug)]
pub struct Request {
    /// By arrival.
    pub number: usize,
    pub client: usize,
    pub arrives: u64,
    /// When its client leaves, unless it is complete.
    pub leaves: u64,
    /// The prompt and the answer.
    pub tokens: Vec<Token>,
    pub prompt: usize,
}

impl Request {
    pub fn scheduler(&self) -> usize {
        self.client % SCHEDULERS
    }
}

/// The requests of a load, in the order of their arrival.
pub struct Plan {
    pub requests: Vec<Arc<Request>>,
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut dice = Rng::with_seed(seed);
        let mut requests: Vec<_> = (0..CLIENTS).flat_map(|client| of_client(client, &mut dice)).collect();
        requests.sort_by_key(|request| request.arrives);
        for (number, request) in requests.iter_mut().enumerate() {
            request.number = number;
        }
        Self { requests: requests.into_iter().map(Into::into).collect() }
    }

    /// When the last client has left.
    pub fn end(&self) -> u64 {
        self.requests.iter().map(|request| request.leaves).max().unwrap_or(0)
    }

    /// The requests of one client.
    pub fn of(&self, client: usize) -> Vec<Arc<Request>> {
        self.requests.iter().filter(|request| request.client == client).cloned().collect()
    }
}

/// Each client has one request at a time: it leaves before the next one arrives.
fn of_client(client: usize, dice: &mut Rng) -> Vec<Request> {
    let mut time = dice.u64(..20 * STEP);
    let requests = (0..REQUESTS).map(|_| {
        // Of all clients one alone does something at a time, and none at the time of a step.
        let odd = |time: u64| time / PHASE * PHASE + 1 + 2 * client as u64;
        let arrives = odd(time);
        // Some leave soon, others wait for long.
        let patience = if dice.u8(..4) == 0 { dice.u64(STEP..12 * STEP) } else { dice.u64(30 * STEP..90 * STEP) };
        let leaves = odd(arrives + patience);
        time = leaves + PHASE + dice.u64(..8 * STEP);
        let beginning = sequence(dice.u32(..BEGINNINGS), dice.usize(4..=12) * BLOCK_SIZE);
        let own = sequence(BEGINNINGS + dice.u32(..1 << 12), dice.usize(1..=40));
        let tokens = [beginning, own].concat();
        let prompt = tokens.len();
        let answer = sequence(1 << 15 | dice.u32(..1 << 12), dice.usize(1..=24));
        Request { number: 0, client, arrives, leaves, tokens: [tokens, answer].concat(), prompt }
    });
    requests.collect()
}

/// `len` tokens that share nothing with those of another `key`.
fn sequence(key: u32, len: usize) -> Vec<Token> {
    (0..len as u32).map(|i| key << 16 | i).collect()
}
