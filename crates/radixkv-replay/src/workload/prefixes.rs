//! Classes whose prompts are a shared prefix followed by unique tokens.

use super::{
    band::Band,
    rng::{Rng, Zipf},
    trace_builder::TraceBuilder,
};
use crate::request::{Segment, Trace};

const GROUPS: usize = 64;
const PROMPTS_PER_GROUP: usize = 16;
const SYSTEM: u32 = 2048;
const QUESTION: u32 = 128;

/// 64 system prompts of 2,048 tokens, with 16 questions of 128 tokens each, shuffled.
pub(super) fn shared_system(seed: u64) -> Trace {
    let mut groups: Vec<usize> = (0..GROUPS * PROMPTS_PER_GROUP).map(|at| at % GROUPS).collect();
    Rng::new(seed, 1).shuffle(&mut groups);
    questions(&groups, GROUPS, SYSTEM, QUESTION, 256)
}

pub(super) fn shared_system_band() -> Band {
    questions_band(GROUPS * PROMPTS_PER_GROUP, GROUPS as f64, SYSTEM, QUESTION)
}

/// As [`shared_system`], but the group of every question is drawn by Zipf's law.
pub(super) fn shared_system_zipf(seed: u64) -> Trace {
    let (mut rng, zipf) = (Rng::new(seed, 2), Zipf::new(GROUPS, 1.0));
    let groups: Vec<usize> = (0..GROUPS * PROMPTS_PER_GROUP).map(|_| zipf.draw(&mut rng)).collect();
    questions(&groups, GROUPS, SYSTEM, QUESTION, 256)
}

pub(super) fn shared_system_zipf_band() -> Band {
    let requests = GROUPS * PROMPTS_PER_GROUP;
    questions_band(requests, Zipf::new(GROUPS, 1.0).expected_distinct(requests), SYSTEM, QUESTION).widened(0.005)
}

const REPEATED: usize = 10;
const REPETITIONS: usize = 1000;
const HALF: u32 = 256;

/// 10 prefixes of 256 tokens; each prompt is one of them followed by 256 unique tokens.
pub(super) fn prefix_repetition(seed: u64) -> Trace {
    let mut groups: Vec<usize> = (0..REPETITIONS).map(|at| at % REPEATED).collect();
    Rng::new(seed, 3).shuffle(&mut groups);
    questions(&groups, REPEATED, HALF, HALF, 128)
}

pub(super) fn prefix_repetition_band() -> Band {
    questions_band(REPETITIONS, REPEATED as f64, HALF, HALF)
}

const TASKS: usize = 8;
const SHOTS: usize = 1319;
const EXAMPLES: u32 = 900;
const PROBLEM: u32 = 100;

/// 8 sets of worked examples of 900 tokens, drawn by Zipf's law; a problem of 100 tokens follows.
pub(super) fn few_shot(seed: u64) -> Trace {
    let (mut rng, zipf) = (Rng::new(seed, 4), Zipf::new(TASKS, 1.0));
    let groups: Vec<usize> = (0..SHOTS).map(|_| zipf.draw(&mut rng)).collect();
    questions(&groups, TASKS, EXAMPLES, PROBLEM, 150)
}

pub(super) fn few_shot_band() -> Band {
    questions_band(SHOTS, TASKS as f64, EXAMPLES, PROBLEM)
}

/// Makes a request for each of `groups`: the group's prefix, then a unique question.
fn questions(groups: &[usize], shared: usize, prefix: u32, question: u32, output: u32) -> Trace {
    let mut builder = TraceBuilder::default();
    let prefixes: Vec<Segment> = (0..shared).map(|_| builder.fresh(prefix)).collect();
    for (at, &group) in groups.iter().enumerate() {
        let question = builder.fresh(question);
        builder.request(at as f64, &[prefixes[group], question], output);
    }
    builder.build()
}

/// The band: every request but the first of each group hits the group's prefix.
fn questions_band(requests: usize, groups_met: f64, prefix: u32, question: u32) -> Band {
    let (requests, hitting) = (requests as f64, requests as f64 - groups_met);
    Band::of_tokens(hitting * f64::from(prefix), requests * f64::from(prefix + question), hitting)
}

const AGENT_REQUESTS: usize = 1000;
/// Share of the requests, shared tokens, minimum and maximum of private tokens.
const AGENTS: [(f64, u32, u32, u32); 3] =
    [(0.486, 512, 1000, 16_000), (0.361, 6144, 400, 800), (0.153, 2560, 500, 1000)];

/// Chats with a short system prompt and long private prompts, and two tools with long system
/// prompts.
pub(super) fn agents(seed: u64) -> Trace {
    let (mut rng, mut builder) = (Rng::new(seed, 5), TraceBuilder::default());
    let roots = AGENTS.map(|(_, shared, ..)| builder.fresh(shared));
    for at in 0..AGENT_REQUESTS {
        let drawn = rng.unit();
        let agent = if drawn < AGENTS[0].0 { 0 } else { 1 + usize::from(drawn >= AGENTS[0].0 + AGENTS[1].0) };
        let (_, _, least, most) = AGENTS[agent];
        let private = builder.fresh(rng.between(least, most));
        builder.request(at as f64, &[roots[agent], private], 200);
    }
    builder.build()
}

pub(super) fn agents_band() -> Band {
    let mean =
        |tokens: fn(&(f64, u32, u32, u32)) -> f64| AGENTS.iter().map(|agent| agent.0 * tokens(agent)).sum::<f64>();
    let shared = mean(|&(_, shared, ..)| f64::from(shared));
    let private = mean(|&(_, _, least, most)| f64::from(least + most) / 2.0);
    Band::of_tokens(shared, shared + private, 1.0).widened(0.1)
}

const DIVERSE_REQUESTS: usize = 2000;
const LENGTHS: [u32; 2] = [1155, 2048];
const COMMON_SHARE: f64 = 0.1;
const COMMON: u32 = 512;

/// Nine in ten prompts share nothing; one in ten begins with 512 common tokens.
pub(super) fn diverse(seed: u64) -> Trace {
    let (mut rng, mut builder) = (Rng::new(seed, 6), TraceBuilder::default());
    let common = builder.fresh(COMMON);
    for at in 0..DIVERSE_REQUESTS {
        let private = builder.fresh(LENGTHS[rng.below(LENGTHS.len())]);
        let prompt = [common, private];
        let from = usize::from(rng.unit() >= COMMON_SHARE);
        builder.request(at as f64, &prompt[from..], 200);
    }
    builder.build()
}

pub(super) fn diverse_band() -> Band {
    let private = LENGTHS.iter().sum::<u32>() as f64 / LENGTHS.len() as f64;
    let common = COMMON_SHARE * f64::from(COMMON);
    Band::of_tokens(common, common + private, COMMON_SHARE).widened(0.25)
}
