//! Retrieval: prompts begin with passages, and share their first passages if those are the same in
//! the same order.

use super::{
    band::Band,
    rng::{Rng, Zipf},
    trace_builder::TraceBuilder,
};
use crate::request::{Segment, Trace};

const PASSAGES: usize = 1000;
const EXPONENT: f64 = 1.1;
const REQUESTS: usize = 2000;
const FEWEST: u32 = 4;
const MOST: u32 = 6;
const SHORTEST: u32 = 300;
const LONGEST: u32 = 512;
const QUESTION: u32 = 60;

/// Each prompt has 4 to 6 different passages out of 1,000, drawn by Zipf's law with exponent 1.1,
/// and a question of 60 tokens.
pub(super) fn rag(seed: u64) -> Trace {
    let (mut rng, mut builder, zipf) = (Rng::new(seed, 10), TraceBuilder::default(), Zipf::new(PASSAGES, EXPONENT));
    let passages: Vec<Segment> = (0..PASSAGES).map(|_| builder.fresh(rng.between(SHORTEST, LONGEST))).collect();
    for at in 0..REQUESTS {
        let mut prompt: Vec<Segment> = Vec::with_capacity(MOST as usize + 1);
        let retrieved = rng.between(FEWEST, MOST) as usize;
        while prompt.len() < retrieved {
            let passage = passages[zipf.draw(&mut rng)];
            if !prompt.contains(&passage) {
                prompt.push(passage);
            }
        }
        prompt.push(builder.fresh(QUESTION));
        builder.request(at as f64, &prompt, 200);
    }
    builder.build()
}

/// A request hits the first passages that it shares with an earlier one. For one and for two
/// passages the probability is a sum over all choices; three passages recur less often than two.
pub(super) fn rag_band() -> Band {
    let zipf = Zipf::new(PASSAGES, EXPONENT);
    let shares = zipf.shares();
    let one: f64 = shares.iter().map(|&first| first * seen_before(first)).sum();
    let pairs = shares.iter().enumerate().flat_map(|(at, first)| {
        let others = shares.iter().enumerate().filter(move |(other, _)| *other != at);
        others.map(move |(_, second)| first * second / (1.0 - first))
    });
    let two: f64 = pairs.map(|both| both * seen_before(both)).sum();
    let passage = f64::from(SHORTEST + LONGEST) / 2.0;
    let prompt = f64::from(FEWEST + MOST) / 2.0 * passage + f64::from(QUESTION);
    let rare = Band::of_tokens((one + two) * passage, prompt, one);
    let common = Band::of_tokens((one + 2.0 * two) * passage, prompt, one);
    // Most prompts begin with one of a few passages, whose lengths are random.
    Band { low: rare.low, high: common.high }.widened(0.06)
}

/// The probability, averaged over all requests, that a choice of probability `share` was drawn
/// before.
fn seen_before(share: f64) -> f64 {
    let draws = REQUESTS as f64;
    1.0 - (1.0 - (1.0 - share).powf(draws)) / (draws * share)
}
