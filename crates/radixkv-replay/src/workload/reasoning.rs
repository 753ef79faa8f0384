//! Tree of thought: several continuations of every thought are requested at once.

use super::{band::Band, rng::Rng, trace_builder::TraceBuilder};
use crate::request::{Segment, Trace};

const PROBLEMS: usize = 60;
const BRANCHES: usize = 3;
const LEVELS: usize = 3;
const PROBLEM: u32 = 400;
const SHORTEST_STEP: u32 = 64;
const LONGEST_STEP: u32 = 256;

/// 60 problems; every thought is continued by three steps of up to 256 tokens, three levels deep.
/// Siblings are requested at the same time.
pub(super) fn tree_of_thought(seed: u64) -> Trace {
    let (mut rng, mut builder) = (Rng::new(seed, 9), TraceBuilder::default());
    let mut now = 0.0;
    for _ in 0..PROBLEMS {
        let mut thoughts = vec![vec![builder.fresh(PROBLEM)]];
        for _ in 0..LEVELS {
            now += 1.0;
            thoughts = thoughts.iter().flat_map(|thought| think(&mut builder, &mut rng, now, thought)).collect();
        }
    }
    builder.build()
}

/// Requests the next step of a thought, once for each branch.
fn think(builder: &mut TraceBuilder, rng: &mut Rng, now: f64, thought: &[Segment]) -> [Vec<Segment>; BRANCHES] {
    std::array::from_fn(|_| {
        let step = builder.fresh(rng.between(SHORTEST_STEP, LONGEST_STEP));
        builder.answered(now, thought, step);
        [thought, &[step]].concat()
    })
}

/// The band: a level has three requests for each thought of the level before; the first of the
/// three does not hit the thought's last step.
pub(super) fn tree_of_thought_band() -> Band {
    let step = f64::from(SHORTEST_STEP + LONGEST_STEP) / 2.0;
    let (mut prompts, mut distinct, mut requests) = (0.0, f64::from(PROBLEM), 0.0);
    for level in 0..LEVELS as i32 {
        let thoughts = (BRANCHES as f64).powi(level);
        if level > 0 {
            distinct += thoughts * step;
        }
        requests += thoughts * BRANCHES as f64;
        prompts += thoughts * BRANCHES as f64 * (f64::from(PROBLEM) + f64::from(level) * step);
    }
    Band::of_tokens(prompts - distinct, prompts, requests).widened(0.005)
}
