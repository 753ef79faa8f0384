//! Classes in which every prompt continues an earlier one.

use super::{band::Band, rng::Rng, trace_builder::TraceBuilder};
use crate::request::{Segment, Trace};

const CLIENTS: usize = 256;
const ROUNDS: u32 = 5;
const QUESTION: u32 = 512;
const ANSWER: u32 = 64;

/// 256 clients with 5 rounds of 512 new and 64 generated tokens; the order of clients is random.
pub(super) fn multi_turn(seed: u64) -> Trace {
    let (mut rng, mut builder) = (Rng::new(seed, 7), TraceBuilder::default());
    let mut turns: Vec<usize> = (0..CLIENTS * ROUNDS as usize).map(|at| at % CLIENTS).collect();
    rng.shuffle(&mut turns);
    let mut histories: Vec<Vec<Segment>> = vec![Vec::new(); CLIENTS];
    let mut now = 0.0;
    for client in turns {
        now += rng.wait(1.0);
        let (question, answer) = (builder.fresh(QUESTION), builder.fresh(ANSWER));
        histories[client].push(question);
        builder.answered(now, &histories[client], answer);
        histories[client].push(answer);
    }
    builder.build()
}

pub(super) fn multi_turn_band() -> Band {
    rounds_band(CLIENTS, ROUNDS, 0, 0, QUESTION, ANSWER)
}

const USERS: usize = 15;
const QA_ROUNDS: u32 = 20;
const SYSTEM: u32 = 1000;
const DOCUMENT: u32 = 20_000;
const FOLLOW_UP: u32 = 40;
const REPLY: u32 = 100;

/// 15 users with a document of 20,000 tokens each after a common system prompt of 1,000, and 20
/// rounds of short questions.
pub(super) fn long_qa(seed: u64) -> Trace {
    let (mut rng, mut builder) = (Rng::new(seed, 8), TraceBuilder::default());
    let system = builder.fresh(SYSTEM);
    let mut histories: Vec<Vec<Segment>> = (0..USERS).map(|_| vec![system, builder.fresh(DOCUMENT)]).collect();
    let mut now = 0.0;
    for _ in 0..QA_ROUNDS {
        let mut users: Vec<usize> = (0..USERS).collect();
        rng.shuffle(&mut users);
        for user in users {
            now += rng.wait(1.0);
            let (question, reply) = (builder.fresh(FOLLOW_UP), builder.fresh(REPLY));
            histories[user].push(question);
            builder.answered(now, &histories[user], reply);
            histories[user].push(reply);
        }
    }
    builder.build()
}

pub(super) fn long_qa_band() -> Band {
    rounds_band(USERS, QA_ROUNDS, SYSTEM, DOCUMENT, FOLLOW_UP, REPLY)
}

/// The band: every round but the first hits the whole prompt of the round before, and its answer if
/// that was cached. In the first round every request but the first hits the tokens that all clients
/// share.
fn rounds_band(clients: usize, rounds: u32, shared: u32, document: u32, question: u32, answer: u32) -> Band {
    let clients = clients as f64;
    let prompt = |round: u32| f64::from(shared + document + round * question + (round - 1) * answer);
    let prompts: f64 = clients * (1..=rounds).map(prompt).sum::<f64>();
    let repeated: f64 = clients * (1..rounds).map(prompt).sum::<f64>() + (clients - 1.0) * f64::from(shared);
    let answers = clients * f64::from((rounds - 1) * answer);
    let requests = clients * f64::from(rounds);
    Band {
        low: Band::of_tokens(repeated, prompts, requests).low,
        high: Band::of_tokens(repeated + answers, prompts, requests).high,
    }
}
