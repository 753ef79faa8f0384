//! The rows in which blocks are inserted and evicted, compared with the strawman or with a lower
//! bound.

use super::{
    Plan,
    figure::{
        Asked::{AtLeast, AtMost, Nothing},
        Figure,
    },
    rounds::Rounds,
};
use crate::{
    arena::{mutexed::Mutexed, own::Radixkv, rows::turn_over},
    load,
    peers::background::InBackground,
    rows::{
        mixed::mix,
        replays::serve,
        writes::{append, append_singly, copy, copy_singly, evict_from},
    },
};

/// How far the hit rates of two LRU caches may differ, in percentage points.
const HITS_APART: f64 = 2.0;

pub(crate) fn replay(plan: &Plan) -> Vec<Figure> {
    let load = load(plan.trace.clone()).unwrap_or_else(|error| panic!("{error}"));
    let settings = &plan.settings;
    let contenders = vec![serve::<Radixkv>(load.clone(), settings), serve::<Mutexed>(load.clone(), settings)];
    let rounds = Rounds::of(settings.rounds, contenders);
    let hits = |contender| rounds.value("", Nothing, (contender, 2), 1.0).measured.median;
    let (ours, theirs) = (hits(0), hits(1));
    assert!((ours - theirs).abs() < HITS_APART, "hit rates differ: {ours:.1} %, the strawman's {theirs:.1} %");
    let what = |threads: &str| format!("replay of {} at 10 %, {threads}, over the strawman", load.name());
    vec![
        rounds.over(what("one thread"), AtMost(1.5, 1.0), (0, 0), (1, 0)),
        rounds.over(what("two"), AtMost(1.0, 0.6), (0, 1), (1, 1)),
        rounds.value("  ours with one thread, ms", Nothing, (0, 0), 1.0),
        rounds.value("  ours with two, ms", Nothing, (0, 1), 1.0),
    ]
}

pub(crate) fn evict(plan: &Plan) -> Vec<Figure> {
    let of = |leaves: usize, asked| {
        let contenders =
            vec![evict_from::<Radixkv>(leaves, &plan.settings), evict_from::<Mutexed>(leaves, &plan.settings)];
        let rounds = Rounds::of(if leaves < 100_000 { plan.settings.rounds } else { plan.few() }, contenders);
        let what = format!("evict a leaf of {leaves}, over the strawman");
        [rounds.over(what, asked, (0, 0), (1, 0)), rounds.value("  ours, ns", Nothing, (0, 0), 1.0)]
    };
    [of(1_000, AtMost(2.5, 1.5)), of(plan.size(100_000), AtMost(1.2, 0.8)), of(plan.size(1_000_000), AtMost(1.0, 0.7))]
        .into_iter()
        .flatten()
        .collect()
}

/// Tails in a round.
const TAILS: usize = 2_000;

pub(crate) fn insert(plan: &Plan) -> Vec<Figure> {
    let tails = plan.size(TAILS);
    let singly = Rounds::of(plan.settings.rounds, vec![append_singly::<Radixkv>(tails), copy_singly(tails)]);
    let all = Rounds::of(plan.settings.rounds, vec![append::<Radixkv>(&plan.settings), copy(&plan.settings)]);
    vec![
        singly.over(
            "reserve + insert of a 256-token tail, p50 over that of malloc + copy",
            AtMost(1.6, 1.2),
            (0, 0),
            (1, 0),
        ),
        singly.value("  ours, p50, ns", Nothing, (0, 0), 1.0),
        singly.value("  malloc + copy, p50, ns", Nothing, (1, 0), 1.0),
        all.over("  the mean over the mean, with what is left to settle", Nothing, (0, 0), (1, 0)),
    ]
}

pub(crate) fn mixed(plan: &Plan) -> Vec<Figure> {
    let rounds = Rounds::of(plan.settings.rounds, vec![mix::<Radixkv>(&plan.settings), mix::<Mutexed>(&plan.settings)]);
    vec![
        rounds.over("mixed 90/10, full pool: two threads over one", AtLeast(1.7, 1.85), (0, 1), (0, 0)),
        rounds.over("mixed 90/10, full pool: two threads over the strawman's two", AtLeast(1.8, 2.5), (0, 1), (1, 1)),
        rounds.over("  the strawman's two over its one", Nothing, (1, 1), (1, 0)),
        rounds.value("  ours with two, M/s", Nothing, (0, 1), 1.0),
    ]
}

pub(crate) fn turnover(plan: &Plan) -> Vec<Figure> {
    let settings = &plan.settings;
    let contenders =
        vec![turn_over::<Radixkv>(settings), turn_over::<InBackground>(settings), turn_over::<Mutexed>(settings)];
    let rounds = Rounds::of(settings.rounds, contenders);
    // Indices of two values of `turn_over`: the rate of two threads, and the p99.9 of reservations.
    let (two, p999) = (1, 3);
    let done = |kind: &str, contender| {
        let what = format!("turnover, two threads, full pool, {kind}: operations over the strawman's");
        rounds.over(what, AtLeast(1.0, 1.5), (contender, two), (2, two))
    };
    let slowest = |kind: &str, contender| {
        let what = format!("turnover, two threads, {kind}: p99.9 of reserve over the strawman's");
        rounds.over(what, AtMost(8.0, 2.0), (contender, p999), (2, p999))
    };
    vec![
        done("inline", 0),
        done("background", 1),
        slowest("inline", 0),
        slowest("background", 1),
        rounds.value("  p99.9, inline, us", Nothing, (0, p999), 1.0),
        rounds.value("  p99.9, background, us", Nothing, (1, p999), 1.0),
        rounds.value("  p99.9, the strawman's, us", Nothing, (2, p999), 1.0),
    ]
}
