//! Classes in which every prompt is the one before it and more.

use super::{Band, Maker, Segment, Trace, dice::Dice};

const CLIENTS: usize = 256;
const ROUNDS: u32 = 5;
const QUESTION: u32 = 512;
const ANSWER: u32 = 64;

/// 256 clients, 5 rounds of 512 new tokens and 64 generated ones; whose turn it is, is a matter of chance.
pub(super) fn multi_turn(seed: u64) -> Trace {
    let (mut dice, mut maker) = (Dice::new(seed, 7), Maker::default());
    let mut turns: Vec<usize> = (0..CLIENTS * ROUNDS as usize).map(|at| at % CLIENTS).collect();
    dice.shuffle(&mut turns);
    let mut histories: Vec<Vec<Segment>> = vec![Vec::new(); CLIENTS];
    let mut now = 0.0;
    for client in turns {
        now += dice.wait(1.0);
        let (question, answer) = (maker.fresh(QUESTION), maker.fresh(ANSWER));
        histories[client].push(question);
        maker.answered(now, &histories[client], answer);
        histories[client].push(answer);
    }
    maker.trace
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

/// 15 users with a document of 20,000 tokens each under one system prompt of 1,000, 20 rounds of short questions.
pub(super) fn long_qa(seed: u64) -> Trace {
    let (mut dice, mut maker) = (Dice::new(seed, 8), Maker::default());
    let system = maker.fresh(SYSTEM);
    let mut histories: Vec<Vec<Segment>> = (0..USERS).map(|_| vec![system, maker.fresh(DOCUMENT)]).collect();
    let mut now = 0.0;
    for _ in 0..QA_ROUNDS {
        let mut users: Vec<usize> = (0..USERS).collect();
        dice.shuffle(&mut users);
        for user in users {
            now += dice.wait(1.0);
            let (question, reply) = (maker.fresh(FOLLOW_UP), maker.fresh(REPLY));
            histories[user].push(question);
            maker.answered(now, &histories[user], reply);
            histories[user].push(reply);
        }
    }
    maker.trace
}

pub(super) fn long_qa_band() -> Band {
    rounds_band(USERS, QA_ROUNDS, SYSTEM, DOCUMENT, FOLLOW_UP, REPLY)
}

/// Every round but the first hits all of the last one's prompt, and its answer if that was cached; the first round
/// hits what all clients share, but for the very first request.
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
