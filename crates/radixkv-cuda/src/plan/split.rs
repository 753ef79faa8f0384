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
mod tests;
