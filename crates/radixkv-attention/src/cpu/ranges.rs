//! Computes the ranges of a task: in which order they are read and merged, and what is prefetched
//! meanwhile.
//!
//! `call` and `apart` call it; the arithmetic is in `kernels`.
//!
//! A prefix that several sequences share is merged first, then the rest of each sequence, from left
//! to right and for all heads of the task.

use std::ops::Range;

use super::RANGE_TOKENS;
use super::call::{AttentionCall, Task};
use super::kernels::{PartRows, PartWork, QUERIES_AT_ONCE, RowsInPlace, Score, TOKENS_AT_ONCE, Views, units};
use super::number::Number;
use super::read::{RangePlace, StoredAt};
use super::scratch::{Scratch, columns};
use crate::layout::Half;

/// A range of a sequence, for some queries of each head.
#[derive(Debug, Clone)]
pub(super) struct RangeWork {
    place: RangePlace,
    queries: Range<usize>,
}

/// The step that is computed with a part of a range.
#[derive(Debug, Clone, Copy)]
enum PartStep {
    /// Products with its keys.
    Keys,
    /// Products with its keys, which were transposed into columns.
    Columns,
    /// Its weighted values; with the last part the range is merged.
    Values,
    /// As `Values`, without the merge.
    ValuesAlone,
}

/// Divides a range of `tokens` tokens into parts.
fn parts(tokens: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..tokens).step_by(TOKENS_AT_ONCE).map(move |from| from..tokens.min(from + TOKENS_AT_ONCE))
}

/// The share of a place's tokens that is prefetched with head `head` of `heads`.
fn share_of(place: &RangePlace, head: usize, heads: usize) -> RangePlace {
    let token = |head: usize| place.tokens.len() * head / heads;
    place.part(&(token(head)..token(head + 1)))
}

/// The work on those of `ranges` that contain a token of `seen`, the tokens that `queries` see
/// together.
pub(super) fn works(
    sequence: u32,
    seen: Range<usize>,
    ranges: Range<usize>,
    queries: Range<usize>,
) -> impl Iterator<Item = RangeWork> + Clone {
    let first = (seen.start / RANGE_TOKENS).max(ranges.start);
    (first..seen.end.div_ceil(RANGE_TOKENS).min(ranges.end)).map(move |range| {
        let tokens = range * RANGE_TOKENS..seen.end.min((range + 1) * RANGE_TOKENS);
        RangeWork { place: RangePlace { sequence: sequence as usize, tokens }, queries: queries.clone() }
    })
}

impl<E: Number> AttentionCall<'_, E> {
    /// Computes and merges all ranges of a task with `queries` queries of each head.
    pub(super) fn attend_all(&self, task: &Task<'_>, queries: usize, scratch: &mut Scratch) {
        let shared = task.piece.shared_ranges;
        let each = task.piece.rows.len() * self.group();
        let following = task.sequences.iter().enumerate().flat_map(move |(index, sequence)| {
            let seen = self.seen_together(task, *sequence);
            works(*sequence, seen, shared..usize::MAX, index * each..(index + 1) * each)
        });
        let seen = task.sequences.iter().map(|sequence| self.seen_together(task, *sequence));
        let seen = seen.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
        let first = task.sequences.first().copied().unwrap_or(0);
        let prefix = works(first, seen, 0..shared, 0..queries);
        self.attend(task, prefix.chain(following), scratch);
    }

    /// Computes and merges some ranges in turn; the next range is prefetched meanwhile.
    ///
    /// Reading the prefix head by head, with the rest of the previous head's sequences between its
    /// ranges, took 1.5 times as long: parts of a token's row are slow to read.
    fn attend(&self, task: &Task<'_>, works: impl Iterator<Item = RangeWork>, scratch: &mut Scratch) {
        let mut works = works.peekable();
        while let Some(work) = works.next() {
            let next = works.peek();
            if work.queries.len() <= QUERIES_AT_ONCE {
                self.attend_few(task, &work, next, PartStep::Values, scratch);
                continue;
            }
            for head in 0..task.heads.len() {
                scratch.hints.clear();
                next.into_iter().for_each(|next| self.ask_for(task, next, head, scratch));
                self.attend_many(task, head, &work, scratch);
            }
        }
    }

    /// Computes some ranges for few queries without merging them. Calls `done` after each range,
    /// with the memory that has the range's sums.
    pub(super) fn attend_apart(
        &self,
        task: &Task<'_>,
        works: impl Iterator<Item = RangeWork>,
        scratch: &mut Scratch,
        mut done: impl FnMut(&Scratch),
    ) {
        let mut works = works.peekable();
        while let Some(work) = works.next() {
            self.attend_few(task, &work, works.peek(), PartStep::ValuesAlone, scratch);
            done(scratch);
        }
    }

    /// Adds keys and values of a range to the prefetch hints: the share of the range's tokens for
    /// one head of the task.
    fn ask_for(&self, task: &Task<'_>, RangeWork { place, .. }: &RangeWork, head: usize, scratch: &mut Scratch) {
        let ahead = share_of(place, head, task.heads.len());
        for half in [Half::Keys, Half::Values] {
            self.source.collect_hints(&self.batch, half, &ahead, task.heads.clone(), &mut scratch.hints);
        }
    }

    /// Computes a range for some queries of each head, and merges it if `values` is
    /// [`PartStep::Values`]. The rows of all heads for a few tokens are read before those for the
    /// next tokens, since they are adjacent. The next rows are prefetched meanwhile, in memory
    /// order and without gaps: if lines are left out, processors do not read ahead on their own.
    fn attend_few(
        &self,
        task: &Task<'_>,
        RangeWork { place, queries }: &RangeWork,
        next: Option<&RangeWork>,
        values: PartStep,
        scratch: &mut Scratch,
    ) {
        let steps = [(Half::Keys, PartStep::Keys), (Half::Values, values)];
        let steps = steps.into_iter().flat_map(|step| parts(place.tokens.len()).map(move |part| (step, part)));
        let mut steps = steps.peekable();
        let heads = task.heads.len();
        while let Some(((half, step), part)) = steps.next() {
            let ahead = match steps.peek() {
                Some(((half, _), part)) => Some((*half, place.part(part))),
                None => next.map(|RangeWork { place, .. }| {
                    (Half::Keys, place.part(&(0..TOKENS_AT_ONCE.min(place.tokens.len()))))
                }),
            };
            let within = place.part(&part);
            let in_place = self.level.computes_in_place(self.layout().dtype, queries.len())
                && self.source.is_good_in_place(&self.batch, half, &within);
            let [reading, computing] = self.units(half, part.len(), queries.len());
            let units = if in_place { computing } else { reading + computing };
            scratch.hints.clear();
            if let Some((half, ahead)) = &ahead {
                let hints = &mut scratch.hints;
                self.source.collect_hints(&self.batch, *half, ahead, task.heads.clone(), hints);
            }
            scratch.hints.begin(units * heads);
            for head in 0..heads {
                let of = task.heads.start + head;
                let stored =
                    in_place.then(|| self.source.in_place(&self.batch, half, &within, of, &mut scratch.scales));
                if stored.is_none() {
                    self.source.load(self.level, &self.batch, half, &within, of, scratch);
                }
                let slots = head * queries.len();
                self.attend_part([head, slots, of], place, (step, stored), part.clone(), queries.clone(), scratch);
            }
        }
    }

    /// Computes and merges a range for many queries of one head: reads the whole range, its keys as
    /// columns, and then uses it for some queries at a time.
    fn attend_many(
        &self,
        task: &Task<'_>,
        head: usize,
        RangeWork { place, queries }: &RangeWork,
        scratch: &mut Scratch,
    ) {
        let tokens = place.tokens.len();
        let units = [Half::Keys, Half::Values].map(|half| self.units(half, tokens, queries.len()));
        scratch.hints.begin(units.as_flattened().iter().sum());
        for part in parts(tokens) {
            let within = place.part(&part);
            self.source.load(self.level, &self.batch, Half::Keys, &within, task.heads.start + head, scratch);
            self.level.turn(&scratch.keys, [part.start, columns(self.layout().head_dim)], &mut scratch.turned);
        }
        self.source.load(self.level, &self.batch, Half::Values, place, task.heads.start + head, scratch);
        for from in queries.clone().step_by(QUERIES_AT_ONCE) {
            let some = from..queries.end.min(from + QUERIES_AT_ONCE);
            for step in [PartStep::Columns, PartStep::Values] {
                self.attend_part(
                    [head, 0, task.heads.start + head],
                    place,
                    (step, None),
                    0..tokens,
                    some.clone(),
                    scratch,
                );
            }
        }
    }

    /// Units of work (see `Hints::step`) on some keys or values: to read them, and to compute with
    /// them for some queries.
    fn units(&self, half: Half, tokens: usize, queries: usize) -> [usize; 2] {
        let layout = self.layout().of(half);
        units(half, [tokens, queries], [layout.head_dim * layout.dtype.bytes(), columns(layout.head_dim)])
    }

    /// The slopes of the query heads that read `head`, or none.
    fn slopes(&self, head: usize) -> &[f32] {
        self.batch.scoring.alibi_slopes.chunks_exact(self.group()).nth(head).unwrap_or(&[])
    }

    /// Computes `step` with a part of a range for some queries, whose weights begin at `slots`. The
    /// rows are `stored` in place, or were widened. `head` counts from the task's first head,
    /// `kv_head` from the layout's.
    fn attend_part(
        &self,
        [head, slots, kv_head]: [usize; 3],
        place: &RangePlace,
        (step, stored): (PartStep, Option<StoredAt<'_>>),
        part: Range<usize>,
        queries: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let (key_columns, columns) = (columns(self.layout().head_dim), columns(self.layout().value_dim));
        let all = scratch.seen.len();
        let of = head * all + queries.start..head * all + queries.end;
        let last = part.end == place.tokens.len();
        let work = PartWork {
            queries: &scratch.queries[of.start * key_columns..of.end * key_columns],
            rows: match (stored, step) {
                (Some(StoredAt { dtype, words, stride }), _) => {
                    PartRows::InPlace(RowsInPlace { dtype, words, stride, scales: &scratch.scales })
                }
                (None, PartStep::Keys) => PartRows::Widened(&scratch.keys),
                (None, PartStep::Columns) => PartRows::Widened(&scratch.turned),
                (None, PartStep::Values | PartStep::ValuesAlone) => PartRows::Widened(&scratch.values),
            },
            key_columns,
            columns,
            score: Score { scale: self.batch.scale, soft_cap: self.batch.scoring.soft_cap },
            views: Views {
                rows: if scratch.views.is_empty() { &[] } else { &scratch.views[queries.clone()] },
                slopes: self.slopes(kv_head),
                first_query: queries.start,
            },
            seen: &scratch.seen[queries],
            first: place.tokens.start as u32,
            part,
            softmax: &mut scratch.softmax[of.clone()],
            out: &mut scratch.out[of.start * columns..of.end * columns],
            range: &mut scratch.range[slots..],
            weights: &mut scratch.weights[slots * RANGE_TOKENS..],
            weighted: &mut scratch.weighted[slots * columns..],
            hints: &mut scratch.hints,
        };
        match step {
            PartStep::Keys => self.level.add_keys(work),
            PartStep::Columns => self.level.add_columns(work),
            PartStep::Values => self.level.add_values(work, last),
            PartStep::ValuesAlone => self.level.add_values(work, false),
        }
    }
}
