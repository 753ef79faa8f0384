//! Tree of thought: what was thought so far is continued in several ways at once.

use super::{Band, Maker, Segment, Trace, dice::Dice};

const PROBLEMS: usize = 60;
const BRANCHES: usize = 3;
const LEVELS: usize = 3;
const PROBLEM: u32 = 400;
const SHORTEST_STEP: u32 = 64;
const LONGEST_STEP: u32 = 256;

/// 60 problems; every thought is continued by three steps of up to 256 tokens, three levels deep, siblings together.
pub(super) fn tree_of_thought(seed: u64) -> Trace {
    let (mut dice, mut maker) = (Dice::new(seed, 9), Maker::default());
    let mut now = 0.0;
    for _ in 0..PROBLEMS {
        let mut thoughts = vec![vec![maker.fresh(PROBLEM)]];
        for _ in 0..LEVELS {
            now += 1.0;
            thoughts = thoughts.iter().flat_map(|thought| think(&mut maker, &mut dice, now, thought)).collect();
        }
    }
    maker.trace
}

/// Asks for the next step as many times as there are branches.
fn think(maker: &mut Maker, dice: &mut Dice, now: f64, thought: &[Segment]) -> [Vec<Segment>; BRANCHES] {
    std::array::from_fn(|_| {
        let step = maker.fresh(dice.between(SHORTEST_STEP, LONGEST_STEP));
        maker.answered(now, thought, step);
        [thought, &[step]].concat()
    })
}

/// A level has three requests to each thought of the level before; the thoughts are seen for the first time once.
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
