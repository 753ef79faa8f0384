//! The rows that match hot prompts, cold prompts, and prompts that rotate.

use super::{
    Plan, common,
    figure::{
        Asked::{AtMost, Nothing},
        Figure,
    },
    lookups::{one_run, past_branches, turns},
    profile::instructions,
    rounds::Rounds,
};
use crate::{
    arena::{measure::Spread, mutexed::Mutexed, own::Radixkv},
    rows::lookups::{compare_rotating, look_up_cold, rotate},
};

pub(crate) fn cold(plan: &Plan) -> Vec<Figure> {
    let among = plan.size(1_000_000);
    let contenders =
        vec![look_up_cold::<Radixkv>(among, &plan.settings), look_up_cold::<Mutexed>(among, &plan.settings)];
    let rounds = Rounds::of(plan.settings.rounds, contenders);
    let what = |unit: &str| format!("match among {among} prompts of 160 tokens, {unit} (either suffices)");
    vec![
        rounds.value(what("ns"), AtMost(1_300.0, 1_300.0), (0, 0), 1.0),
        rounds.over(what("over the strawman"), AtMost(0.65, 0.4), (0, 0), (1, 0)),
    ]
}

pub(crate) fn rotating(plan: &Plan) -> Vec<Figure> {
    let rounds =
        Rounds::of(plan.settings.rounds, vec![rotate::<Radixkv>(&plan.settings), compare_rotating(&plan.settings)]);
    let what = "match rotating over 1,000 prompts of 2,496 tokens, over memcmp of them";
    vec![rounds.over(what, AtMost(1.9, 1.7), (0, 0), (1, 0)), rounds.value("  ours, ns", Nothing, (0, 0), 1.0)]
}

/// A hot figure: the prompt, the operation whose instructions are counted, and the baseline of that
/// count, which is to be kept.
struct Hot {
    what: &'static str,
    operation: &'static str,
    instructions: f64,
    ratio: f64,
    measure: fn() -> [common::Spread; 3],
}

const HOT: [Hot; 5] = [
    Hot {
        what: "2,496 tokens in one run",
        operation: "match-hot",
        instructions: 1_943.0,
        ratio: 1.35,
        measure: || one_run(2_496, true),
    },
    Hot {
        what: "2,496 tokens past 8 branches",
        operation: "match-8-branches",
        instructions: 1_985.0,
        ratio: 1.6,
        measure: || past_branches(2_496, 8),
    },
    Hot {
        what: "32,768 tokens in one run",
        operation: "match-long",
        instructions: 15_895.0,
        ratio: 1.12,
        measure: || one_run(32_768, false),
    },
    Hot {
        what: "32,768 tokens past 64 branches",
        operation: "match-64-branches",
        instructions: 15_930.0,
        ratio: 1.3,
        measure: || past_branches(32_768, 64),
    },
    Hot {
        what: "32,768 tokens in 64 turns",
        operation: "match-64-turns",
        instructions: 32_513.0,
        ratio: 2.5,
        measure: || turns(32_768, 64),
    },
];

pub(crate) fn hot() -> Vec<Figure> {
    // At most 2 % over the baseline.
    let as_today = |figure: f64| AtMost(1.02 * figure, figure);
    let counts = HOT.iter().filter_map(|row| {
        let counted = instructions(row.operation)?;
        Some(Figure::counted(format!("match {}, instructions", row.what), as_today(row.instructions), counted))
    });
    let ratios = HOT.iter().map(|row| {
        let [_, _, ratio] = (row.measure)();
        let common::Spread { low, median, high } = ratio;
        Figure::new(
            format!("match {}, over memcmp", row.what),
            AtMost(row.ratio, row.ratio),
            Spread { low, median, high },
        )
    });
    counts.chain(ratios).collect()
}
