//! Random steps on the cache and on the literal reference, compared after every one.
//!
//! A case is a block size, a capacity small enough to evict all the time, a policy and a list of
//! steps (`step`). After each step the two must agree on what matched, which blocks, what an insert
//! did and why something was refused; once settled also on where every block is (`driver`). Settled
//! cases compare the accounts after every step; the others leave the cache's queue alone between
//! `Settle` steps, and must still evict in the same order.
//!
//! The driver itself is tried on a second reference, and on references that rank wrongly, which it
//! must notice.

mod draw;
mod driver;
mod step;
mod subject;

use std::time::{Duration, Instant};

use draw::step;
use driver::Driver;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use radixkv::PolicyKind;
use radixkv_reference::Reference;
use step::{Fault, Sequence, Step};
use subject::{External, Real, Setting, Subject};

/// Long runs stop here, so that a slow machine or build does not hold up the rest.
const LONG_RUN: Duration = Duration::from_secs(30);
const LONG_RUN_STEPS: usize = 20_000;

/// Nothing, nanoseconds since 1970, and where a bit or two of a time would be lost.
const STARTS: [u64; 5] = [0, 1_800_000_000_000_000_000, (1 << 56) - 60, (1 << 62) - 60, (1 << 63) - 60];

fn setting() -> impl Strategy<Value = Setting> {
    let block_size = prop::sample::select(vec![1, 3, 16]);
    let policy = draw::policy();
    let time_to_idle = prop::option::weighted(0.3, 1..200_u64);
    let clock = (prop::sample::select(STARTS.to_vec()), any::<bool>());
    (block_size, 1..48_usize, policy, time_to_idle, clock).prop_map(
        |(block_size, capacity, policy, time_to_idle, (start, stands))| Setting {
            block_size,
            capacity,
            policy,
            time_to_idle,
            start,
            stands,
        },
    )
}

/// Runs random cases; the subject gets the setting that `alter` makes of the reference's.
fn cases<S: Subject>(cases: u32, alter: impl Fn(Setting) -> Setting) -> Result<(), String> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let steps = |appends| prop::collection::vec(step(appends), 1..120);
    let steps = prop_oneof![steps(6), steps(120)];
    let strategy = (setting(), any::<bool>(), steps);
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&strategy, |(setting, eager, steps)| {
        let subject = S::new(alter(setting));
        let outcome = Driver::new(setting, eager, subject).run(&steps);
        outcome.map_err(TestCaseError::fail)
    });
    outcome.map_err(|error| error.to_string())
}

/// `count` steps, the same for the same seed.
fn steps(seed: u8, count: usize) -> Vec<Step> {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut draw = || step(if seed % 2 == 0 { 120 } else { 6 }).new_tree(&mut runner).expect("a step").current();
    (0..count).map(|_| draw()).collect()
}

/// One seeded run for each policy and block size, each as long as the time allows.
fn long_runs<S: Subject>(count: usize) {
    let started = Instant::now();
    let (mut seed, mut done) = (0, 0);
    for policy in PolicyKind::ALL.iter().copied() {
        for block_size in [1, 3, 16] {
            seed += 1;
            let setting = Setting {
                block_size,
                capacity: 24 + usize::from(seed) * 3,
                policy,
                time_to_idle: (seed % 3 == 0).then_some(150),
                start: STARTS[usize::from(seed) % STARTS.len()],
                stands: seed % 4 == 0,
            };
            for (i, steps) in steps(seed, count).chunks(count.div_ceil(10)).enumerate() {
                if started.elapsed() > LONG_RUN {
                    println!("stopped after {done} steps");
                    return;
                }
                let outcome = Driver::new(setting, i % 2 == 0, S::new(setting)).run(steps);
                outcome.unwrap_or_else(|difference| panic!("{setting:?} {seed}.{i}: {difference}"));
                done += steps.len();
            }
        }
    }
    println!("{done} steps");
}

// Holds: MA1, MA10, MA18, EV1, PR8, PR9, QU13, IV1, IV7, NU2.
#[test]
fn the_cache_agrees_with_the_reference() {
    cases::<Real>(1_000, |setting| setting).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Found at random once: a request that its namespace's limit allows, and for which there are too
/// few blocks, was refused by both and evicted something in one of them.
#[test]
fn what_is_refused_evicts_nothing_for_a_quota_either() {
    let of = |quarters, tail| Sequence { stem: 0, quarters, tail: vec![0; tail] };
    let steps = [
        Step::Lease(0, of(0, 0)),
        Step::Reserve(5),
        Step::SetQuota(0, Some(0), Some(18), None),
        Step::Insert(0, of(5, 0)),
        Step::Match(0, of(0, 0)),
        Step::Match(1, of(0, 0)),
        Step::Insert(3, of(25, 0)),
        Step::Serve(0, of(9, 0)),
        Step::Insert(2, of(17, 11)),
        Step::SetQuota(0, None, None, None),
    ];
    let policy = PolicyKind::Lru;
    let setting = Setting { block_size: 1, capacity: 29, policy, time_to_idle: None, start: 0, stands: false };
    Driver::new(setting, false, Real::new(setting)).run(&steps).unwrap_or_else(|difference| panic!("{difference}"));
}

/// Found at random once: the start of a run, on which only invalidated blocks depended, counted as
/// a level in the cache alone.
#[test]
fn what_invalidated_blocks_keep_of_earlier_inserts_counts_as_a_level() {
    let of = |stem, quarters, tail| Sequence { stem, quarters, tail: vec![0; tail] };
    let steps = [
        Step::Match(0, of(0, 0, 0)),
        Step::Serve(0, of(0, 11, 20)),
        Step::Append(0, 8, 0),
        Step::Append(0, 1, 0),
        Step::Append(0, 1, 0),
        Step::Append(0, 3, 0),
        Step::Evict(6),
        Step::Append(0, 1, 0),
        Step::InsertWrong(3, of(0, 16, 0), Fault::OneTooFew),
        Step::Serve(0, of(0, 12, 0)),
        Step::Invalidate(23),
        Step::Evict(3),
        Step::Serve(1, of(0, 8, 0)),
        Step::SetPolicy(PolicyKind::Level),
        Step::Serve(0, of(0, 20, 0)),
        Step::Evict(1),
        Step::Append(0, 1, 0),
    ];
    let policy = PolicyKind::Lru;
    let setting = Setting { block_size: 16, capacity: 32, policy, time_to_idle: None, start: 0, stands: false };
    Driver::new(setting, false, Real::new(setting)).run(&steps).unwrap_or_else(|difference| panic!("{difference}"));
}

/// Found at random once: a prefix that was used since it was filed kept older ones from being
/// dropped for their age, where a use does not change the policy's key.
#[test]
fn what_is_too_old_goes_behind_what_was_used_since() {
    let none = || Sequence { stem: 0, quarters: 0, tail: Vec::new() };
    let append = |at, blocks, token| Step::Append(at, blocks, token);
    let steps = [
        Step::Match(0, none()),
        append(0, 1, 0),
        append(0, 1, 0),
        append(4, 2, 0),
        append(0, 1, 0),
        append(0, 1, 0),
        append(6, 1, 1),
        Step::EvictOf(1, 0),
        append(1, 1, 0),
        append(0, 1, 0),
        append(0, 1, 0),
        append(2, 1, 0),
        append(4, 1, 0),
        Step::ReleaseRetained(0),
        Step::Wait(28),
        append(0, 1, 0),
        Step::Resume(0, none()),
        Step::Resume(1, none()),
        Step::Serve(0, none()),
    ];
    let (policy, time_to_idle) = (PolicyKind::Fifo, Some(41));
    let setting = Setting { block_size: 1, capacity: 36, policy, time_to_idle, start: 0, stands: false };
    Driver::new(setting, false, Real::new(setting)).run(&steps).unwrap_or_else(|difference| panic!("{difference}"));
}

/// Found at random once: in keys that overlap, the token that a block shares with the one before
/// counted as a level of its own in the reference, where the rest was invalidated.
#[test]
fn what_overlapping_keys_carry_is_of_the_level_of_the_block_before() {
    let of = |stem, quarters, tail| Sequence { stem, quarters, tail: vec![0; tail] };
    let matched = |times| std::iter::repeat_n(Step::Match(0, of(0, 0, 0)), times);
    let served = |stem, quarters| Step::Serve(0, of(stem, quarters, 0));
    let mut steps = vec![Step::Match(4, of(0, 0, 0)), Step::Match(0, of(0, 0, 0)), Step::Insert(2, of(2, 9, 2))];
    steps.extend(matched(1).chain([Step::SetPolicy(PolicyKind::Level)]).chain(matched(2)));
    steps.extend([Step::Invalidate(1), Step::Match(4, of(0, 5, 0)), Step::Serve(4, of(0, 9, 0))]);
    steps.extend([Step::Append(6, 1, 0), Step::Resume(0, of(0, 0, 0))]);
    steps.extend(matched(5).chain([served(0, 5)]).chain(matched(1)));
    steps.extend([served(2, 9), Step::Append(1, 1, 0), served(2, 13), Step::EvictInto(1), Step::DropNamespace(0)]);
    let policy = PolicyKind::Lru;
    let setting = Setting { block_size: 1, capacity: 39, policy, time_to_idle: None, start: 0, stands: false };
    Driver::new(setting, false, Real::new(setting)).run(&steps).unwrap_or_else(|difference| panic!("{difference}"));
}

// Holds: EP1.
#[test]
fn a_cache_with_an_external_pool_agrees_with_the_reference() {
    cases::<External>(500, |setting| setting).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn the_cache_agrees_with_the_reference_for_long() {
    long_runs::<Real>(LONG_RUN_STEPS / 18);
}

#[test]
#[ignore = "20,000 steps for every policy and block size; run by ci/nightly.sh"]
fn the_cache_agrees_with_the_reference_for_very_long() {
    long_runs::<Real>(LONG_RUN_STEPS);
}

#[test]
fn the_driver_finds_nothing_between_two_references() {
    cases::<Reference>(128, |setting| setting).unwrap_or_else(|failure| panic!("{failure}"));
    long_runs::<Reference>(LONG_RUN_STEPS / 36);
}

#[test]
fn the_driver_notices_a_wrong_order_of_eviction() {
    for wrong in PolicyKind::ALL.iter().copied() {
        let alter = |setting: Setting| Setting { policy: wrong, ..setting };
        let failure = cases::<Reference>(256, alter).expect_err("two policies, one order");
        println!("{}: {}", wrong.name(), failure.lines().next().unwrap_or_default());
    }
}
