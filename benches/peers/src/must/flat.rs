//! The rows `sessions`, `reserve` and `append`: the cost of an operation at one size over its cost
//! at another, where it should not depend on the size.

use super::{
    Plan,
    dimensions::{Made, appending, matching_beside, reserving},
    figure::{Asked::AtMost, Figure},
    rounds::Rounds,
};
use crate::arena::row::Round;

/// Calls in a round.
const CALLS: usize = 100;
/// Matches in a round.
const MATCHES: usize = 10_000;
const IDLE: usize = 10_000;

fn round(mut measure: impl FnMut() -> f64 + 'static) -> Round {
    Box::new(move || vec![measure()])
}

pub(crate) fn sessions(plan: &Plan) -> Vec<Figure> {
    let calls = plan.size(MATCHES);
    let beside = |idle, made| round(matching_beside(idle, made, calls));
    let contenders = vec![beside(0, Made::BeforeIdle), beside(IDLE, Made::BeforeIdle), beside(IDLE, Made::AfterIdle)];
    let rounds = Rounds::of(plan.settings.rounds, contenders);
    let over = |what, contender| rounds.over(what, AtMost(1.3, 1.05), (contender, 0), (0, 0));
    vec![
        over("match + release: 10,000 idle sessions made later, over none", 1),
        over("match + release: 10,000 idle sessions made before, over none", 2),
    ]
}

pub(crate) fn reserve(plan: &Plan) -> Vec<Figure> {
    let (few, many) = (10_000, plan.size(8_000_000));
    let figure = |len: usize, kind: &str| {
        let contenders = vec![round(reserving(few, len, CALLS)), round(reserving(many, len, CALLS))];
        let what = format!("reserve(16), full pool of {kind}: {many} blocks over {few}");
        Rounds::of(plan.few(), contenders).over(what, AtMost(2.0, 1.3), (1, 0), (0, 0))
    };
    vec![figure(16, "prompts of 16 blocks"), figure(1, "one-block prompts")]
}

pub(crate) fn append(plan: &Plan) -> Vec<Figure> {
    let rounds = Rounds::of(plan.settings.rounds, vec![round(appending(16, CALLS)), round(appending(32_768, CALLS))]);
    vec![rounds.over("append of a block, full pool: depth 32,768 over 16", AtMost(1.3, 1.1), (1, 0), (0, 0))]
}
