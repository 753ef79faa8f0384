//! Computes one row of one sequence on several threads, which divide the ranges of its context
//! among them.
//!
//! Reading half of a token's row takes 0.7 of the time of reading the whole row, as measured. So if
//! there are fewer sequences than threads, each thread reads whole rows of some ranges, and keeps
//! the sums of each range separate; then each thread merges all ranges for some query heads, from
//! left to right. That is the order of the definition, so no bit changes.

use std::ops::Range;
use std::sync::Mutex;

use super::RANGE_TOKENS;
use super::call::{AttentionCall, Task};
use super::kernels::{LANES, MergeWork, Softmax};
use super::number::Number;
use super::prepared::{Piece, Plan};
use super::ranges::works;
use super::scratch::{self, Merging, Scratch, columns};
use crate::backend::Output;

/// The most ranges per thread that are computed before they are merged: their sums take 2 MiB with
/// 32 heads of 128 elements.
const RANGES_AT_ONCE: usize = 128;
/// A thread divides the remaining ranges into this many parts for each thread, and takes the first
/// part. So the first parts are large and the last ones small: a thread that begins late takes
/// fewer ranges, and no thread waits long for another.
const PARTS_PER_THREAD: usize = 2;
/// The fewest ranges per thread for which dividing a context pays.
const FEWEST_RANGES: usize = 2;

impl<E: Number> AttentionCall<'_, E> {
    /// Whether there are more threads than sequences, and each sequence has one row and a context
    /// that is long enough for all threads.
    pub(super) fn is_for_ranges(&self, plan: &Plan) -> bool {
        let threads = self.threads.count();
        let long = |piece: &Piece| {
            let alone = piece.sequences.len() == 1 && piece.rows.len() == 1;
            alone && self.ranges(&self.whole(plan, piece)).len() >= threads * FEWEST_RANGES
        };
        plan.pieces.len() < threads && plan.pieces.iter().all(long)
    }

    /// Computes each sequence on all threads.
    pub(super) fn run_by_ranges(&self, plan: &Plan, out: &mut Output<&mut [E], &mut [f32]>) {
        for piece in &plan.pieces {
            let task = self.whole(plan, piece);
            scratch::with_merging(|Merging { ranges: states, weighted, merged }| {
                self.begin(&task, merged);
                let queries = self.group() * task.heads.len();
                let size = queries * columns(self.layout().value_dim);
                let (all, at_once) = (self.ranges(&task), self.threads.count() * RANGES_AT_ONCE);
                for first in all.clone().step_by(at_once) {
                    let ranges = first..all.end.min(first + at_once);
                    states.resize(ranges.len() * queries, Softmax::NONE);
                    weighted.resize(ranges.len() * size);
                    self.sum_apart(&task, LeftRanges { ranges, states, weighted });
                    self.merge_apart(states, weighted, merged);
                }
                self.give_outputs(&task, self.group(), merged, out);
            });
        }
    }

    fn whole<'p>(&self, plan: &'p Plan, piece: &Piece) -> Task<'p> {
        let sequences = &plan.sequences[piece.sequences.clone()];
        Task { sequences, piece: piece.clone(), heads: 0..self.layout().kv_heads }
    }

    /// The ranges in which the only row of a task sees a token.
    fn ranges(&self, task: &Task<'_>) -> Range<usize> {
        let seen = self.seen_together(task, task.sequences[0]);
        seen.start / RANGE_TOKENS..seen.end.div_ceil(RANGE_TOKENS)
    }

    /// Computes the sums of some ranges on all threads.
    fn sum_apart(&self, task: &Task<'_>, left: LeftRanges<'_>) {
        let [queries, size] = [left.states.len(), left.weighted.len()].map(|all| all / left.ranges.len());
        let seen = self.seen_together(task, task.sequences[0]);
        let (left, parts) = (Mutex::new(left), self.threads.count() * PARTS_PER_THREAD);
        let next = || left.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take(parts);
        self.threads.run(|| {
            let Some(mut part) = next() else { return };
            scratch::with(|scratch| {
                self.begin(task, scratch);
                // The sums of all queries are kept, also of the many that read latent vectors.
                scratch.begin_range(columns(self.layout().value_dim), queries);
                loop {
                    let LeftRanges { ranges, states, weighted } = part;
                    let works = works(task.sequences[0], seen.clone(), ranges, 0..self.group());
                    let mut sums = states.chunks_exact_mut(queries).zip(weighted.chunks_exact_mut(size));
                    self.attend_apart(task, works, scratch, |scratch| {
                        sums.next().into_iter().for_each(|(states, weighted)| {
                            states.copy_from_slice(&scratch.range);
                            weighted.copy_from_slice(&scratch.weighted);
                        });
                    });
                    let Some(another) = next() else { break };
                    part = another;
                }
            });
        });
    }

    /// Merges some ranges from left to right, from the sums that were computed separately; the
    /// threads divide the queries of all heads among them.
    fn merge_apart(&self, states: &[Softmax], weighted: &[f32], merged: &mut Scratch) {
        let columns = columns(self.layout().value_dim);
        let queries = merged.softmax.len();
        let each = queries.div_ceil(self.threads.count()).next_multiple_of(LANES);
        let of_each = merged.softmax.chunks_mut(each).zip(merged.out.chunks_mut(each * columns));
        let left = Mutex::new(of_each.zip((0..queries).step_by(each)));
        let next = || left.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
        self.threads.run(|| {
            while let Some(((softmax, out), first)) = next() {
                let some = first..first + softmax.len();
                for (range, weighted) in states.chunks_exact(queries).zip(weighted.chunks_exact(queries * columns)) {
                    let (softmax, out, range) = (&mut *softmax, &mut *out, &range[some.clone()]);
                    let weighted = &weighted[some.start * columns..some.end * columns];
                    self.level.merge(MergeWork { columns, softmax, out, range, weighted });
                }
            }
        });
    }
}

/// Ranges that no thread has taken, and room for their sums.
struct LeftRanges<'a> {
    ranges: Range<usize>,
    states: &'a mut [Softmax],
    weighted: &'a mut [f32],
}

impl<'a> LeftRanges<'a> {
    /// Divides the ranges into `parts` parts, and takes the first.
    fn take(&mut self, parts: usize) -> Option<LeftRanges<'a>> {
        let (left, first) = (self.ranges.len(), self.ranges.start);
        let some = left.div_ceil(parts);
        if left == 0 {
            return None;
        }
        self.ranges.start += some;
        let states = first_of(&mut self.states, left, some);
        let weighted = first_of(&mut self.weighted, left, some);
        Some(Self { ranges: first..first + some, states, weighted })
    }
}

/// Takes the elements of the first `some` of `left` ranges.
fn first_of<'a, T>(all: &mut &'a mut [T], left: usize, some: usize) -> &'a mut [T] {
    let each = all.len() / left;
    let (first, rest) = std::mem::take(all).split_at_mut(each * some);
    *all = rest;
    first
}
