//! Values that a caller keeps in vector registers survive a comparison of tokens.
//!
//! The test is meaningful only if the compiler keeps vectors of 32 bytes or more in registers:
//! `ci/processors.sh` builds it for processors that have them.

use std::hint::black_box;

use radixkv::key::common_prefix;
use radixkv::{Lease, Namespace, PrefixCache, Session, Token};

type Vectors<const N: usize> = [[f64; 4]; N];

/// Runs of all lengths that are compared in different ways.
const LENGTHS: [u32; 8] = [1, 7, 8, 63, 64, 65, 200, 1024];

/// A number of its own in every place.
fn vectors<const N: usize>() -> Vectors<N> {
    std::array::from_fn(|vector| std::array::from_fn(|lane| (7 * vector + lane) as f64 + 0.5))
}

/// Computes vectors, calls, and goes on with them: `by` times as much, and `by` more.
#[inline(always)]
fn across<const N: usize, T>(from: &Vectors<N>, by: f64, call: impl FnOnce() -> T) -> (T, Vectors<N>) {
    let mut kept = *from;
    kept.as_flattened_mut().iter_mut().for_each(|number| *number *= by);
    let called = call();
    kept.as_flattened_mut().iter_mut().for_each(|number| *number += by);
    (called, kept)
}

#[inline(never)]
fn across_a_comparison<const N: usize>(a: &[Token], b: &[Token], from: &Vectors<N>, by: f64) -> (usize, Vectors<N>) {
    across(from, by, || common_prefix(a, b))
}

/// Sums vectors up while runs are compared.
#[inline(never)]
fn along_comparisons<const N: usize>(runs: &[Vec<Token>], from: &Vectors<N>, by: f64) -> (usize, Vectors<N>) {
    let (mut sums, mut agreed) = (*from, 0);
    for run in runs {
        sums.as_flattened_mut().iter_mut().for_each(|sum| *sum += by);
        agreed += common_prefix(run, run);
    }
    (agreed, sums)
}

#[inline(never)]
fn across_a_match<const N: usize>(
    session: &Session,
    space: &Namespace,
    prompt: &[Token],
    from: &Vectors<N>,
    by: f64,
) -> (usize, Vectors<N>) {
    let (matched, after) = across(from, by, || session.match_prefix(space, prompt));
    (matched.len_tokens(), after)
}

/// A cache that holds a prompt.
fn cached(prompt: &[Token]) -> (PrefixCache, Lease) {
    let cache = PrefixCache::builder(1, prompt.len()).build().expect("a sound configuration");
    let (session, space) = (cache.session(), cache.default_namespace());
    let fill = session.reserve(prompt.len()).expect("free blocks");
    let inserted = session.insert(session.match_prefix(&space, prompt).lease(), prompt, fill).expect("inserted");
    (cache, inserted.lease)
}

fn check<const N: usize>() {
    let (from, by) = (vectors::<N>(), black_box(3.0));
    let all = |change: fn(f64) -> f64| from.map(|vector| vector.map(change));
    for len in LENGTHS {
        let run: Vec<Token> = (0..len).collect();
        let expected = (run.len(), all(|number| number * 3.0 + 3.0));
        assert_eq!(across_a_comparison(&run, &run, &from, by), expected, "{len} tokens");
        let (cache, _lease) = cached(&run);
        let (session, space) = (cache.session(), cache.default_namespace());
        assert_eq!(across_a_match(&session, &space, &run, &from, by), expected, "a match of {len} tokens");
        let five = [(); 5].map(|()| run.clone());
        let expected = (5 * run.len(), all(|number| number + 15.0));
        assert_eq!(along_comparisons(&five, &from, by), expected, "five times {len} tokens");
    }
}

// Holds: MA4.
#[test]
fn vectors_are_kept_across_comparisons_and_matches() {
    check::<1>();
    check::<4>();
    check::<8>();
    check::<14>();
    check::<16>();
}
