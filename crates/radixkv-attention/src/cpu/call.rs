//! One operation on one layer, in tasks: which ranges are read for which queries, and in what order.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::RANGE_TOKENS;
use super::kernels::{self, Level, PartWork, QUERIES_AT_ONCE, Score, TOKENS_AT_ONCE, units};
use super::number::Number;
use super::prepared::{Piece, Plan};
use super::read::{RangePlace, RowSource};
use super::scratch::{self, Scratch, columns};
use super::threads::Threads;
use crate::backend::Output;
use crate::batch::Batch;
use crate::layout::{Half, Layout};

/// Queries of all heads of a task, at most, if these are more than one head: with their sums they stay in the second
/// cache. Several heads of a range are read one after another, since they lie side by side.
const TASK_QUERIES: usize = 1024;
/// Tasks for each thread, where the sequences alone are fewer.
const TASKS_PER_THREAD: usize = 2;

/// Bytes of a token that are worth to be read by one thread, where threads could have less.
const STRETCH_BYTES: usize = 1024;

/// One operation on one layer.
pub(super) struct AttentionCall<'a, E> {
    pub(super) level: Level,
    pub(super) threads: &'a Threads,
    pub(super) source: RowSource<'a, E>,
    pub(super) batch: Batch<'a>,
    pub(super) queries: &'a [E],
}

/// Some heads of a piece.
struct Task<'p> {
    sequences: &'p [u32],
    piece: &'p Piece,
    heads: Range<usize>,
}

impl<E: Number> AttentionCall<'_, E> {
    pub(super) fn run(&self, plan: &Plan, out: Output<&mut [E], &mut [f32]>) {
        let out = Mutex::new(out);
        let heads = self.layout().kv_heads;
        let together = self.heads_together(plan.pieces.len().max(1));
        let per_piece = |piece: &Piece| {
            let queries = (piece.sequences.len() * piece.rows.len() * self.group()).max(1);
            together.min(TASK_QUERIES / queries).max(1)
        };
        let next = AtomicUsize::new(0);
        self.threads.run(|| {
            scratch::with(|scratch| {
                let mut tasks = plan.pieces.iter().flat_map(|piece| {
                    let together = per_piece(piece);
                    (0..heads).step_by(together).map(move |head| (piece, head..heads.min(head + together)))
                });
                let mut taken = 0;
                loop {
                    // Relaxed: it hands out numbers; the end of the call orders what the tasks wrote.
                    let task = next.fetch_add(1, Relaxed);
                    let Some((piece, heads)) = tasks.nth(task - taken) else { break };
                    taken = task + 1;
                    let sequences = &plan.sequences[piece.sequences.clone()];
                    self.compute(&Task { sequences, piece, heads }, scratch, &out);
                }
            });
        });
    }

    /// Heads of a task, of so many pieces: all that the threads leave together. Parts of rows that are too short to be read
    /// one after another are left together too, if each thread has a task.
    fn heads_together(&self, pieces: usize) -> usize {
        let (heads, threads) = (self.layout().kv_heads, self.threads.count());
        let splits = |tasks: usize| tasks.div_ceil(pieces).clamp(1, heads);
        if threads == 1 {
            return heads;
        }
        let (one, several) = (splits(threads), splits(threads * TASKS_PER_THREAD));
        let long_enough = self.layout().row_elements() * self.layout().dtype.bytes() / STRETCH_BYTES;
        heads.div_ceil(several.min(one.max(long_enough)))
    }

    fn layout(&self) -> &Layout {
        self.source.layout()
    }

    /// Query heads for each head of keys and values.
    fn group(&self) -> usize {
        self.batch.query_heads / self.layout().kv_heads
    }

    /// The rows of a piece, in the order of their queries.
    fn rows<'t>(&'t self, task: &'t Task<'_>, sequence: u32) -> Range<usize> {
        let first = self.batch.rows_of(sequence as usize).start;
        first + task.piece.rows.start..first + task.piece.rows.end
    }

    fn compute(&self, task: &Task<'_>, scratch: &mut Scratch, out: &Mutex<Output<&mut [E], &mut [f32]>>) {
        let queries = task.sequences.len() * task.piece.rows.len() * self.group();
        scratch.begin(self.layout(), task.heads.len(), queries);
        self.take_queries(task, scratch);
        let shared = task.piece.shared_ranges;
        if let Some(&first) = task.sequences.first() {
            self.attend(task, [first, first], 0..shared, 0..queries, scratch);
        }
        let each = task.piece.rows.len() * self.group();
        for (index, sequence) in task.sequences.iter().enumerate() {
            let then = task.sequences.get(index + 1).unwrap_or(sequence);
            self.attend(task, [*sequence, *then], shared..usize::MAX, index * each..(index + 1) * each, scratch);
        }
        self.give_outputs(task, queries, scratch, &mut out.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }

    /// Widens the queries of the task: `[heads, sequences, rows, query heads of a head]`; and what each of them sees.
    fn take_queries(&self, task: &Task<'_>, scratch: &mut Scratch) {
        let (elements, group) = (self.layout().head_dim, self.group());
        let mut queries = scratch.queries.chunks_exact_mut(columns(elements));
        for head in task.heads.clone() {
            for row in task.sequences.iter().flat_map(|sequence| self.rows(task, *sequence)) {
                let first = (row * self.batch.query_heads + head * group) * elements;
                for (from, to) in self.queries[first..].chunks_exact(elements).zip(queries.by_ref().take(group)) {
                    to.iter_mut().zip(from).for_each(|(to, element)| *to = element.widen());
                }
            }
        }
        for sequence in task.sequences {
            let end = self.batch.rows_of(*sequence as usize).end;
            for row in self.rows(task, *sequence) {
                let visible = self.batch.contexts[*sequence as usize] as usize - (end - 1 - row);
                let seen = self.batch.scoring.seen(visible);
                scratch.seen.extend(std::iter::repeat_n([seen.start as u32, seen.end as u32], group));
            }
        }
    }

    /// Merges ranges of a sequence into some queries of each head: those of `ranges` in which a query sees a token. The
    /// ranges of `then` are read next.
    fn attend(
        &self,
        task: &Task<'_>,
        [sequence, then]: [u32; 2],
        ranges: Range<usize>,
        queries: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let seen = &scratch.seen[queries.clone()];
        let first = seen.iter().map(|seen| seen[0] as usize / RANGE_TOKENS).min().unwrap_or(0).max(ranges.start);
        let end = seen.iter().map(|seen| (seen[1] as usize).div_ceil(RANGE_TOKENS)).max().unwrap_or(0).min(ranges.end);
        let context = seen.iter().map(|seen| seen[1] as usize).max().unwrap_or(0);
        for range in first..end {
            // After a shared prefix, what follows it.
            let after = if then == sequence { end } else { ranges.start };
            let (sequence_ahead, ahead) = if range + 1 < end { (sequence, range + 1) } else { (then, after) };
            let tokens = range * RANGE_TOKENS..context.min((range + 1) * RANGE_TOKENS);
            let place = RangePlace { sequence: sequence as usize, tokens };
            let next = RangePlace {
                sequence: sequence_ahead as usize,
                tokens: ahead * RANGE_TOKENS..(ahead + 1) * RANGE_TOKENS,
            };
            if queries.len() <= QUERIES_AT_ONCE {
                self.attend_few(task, &place, &next, queries.clone(), scratch);
            } else {
                self.attend_many(task, &place, &next, queries.clone(), scratch);
            }
        }
    }

    /// Merges a range into some queries of each head. What all heads have for a few tokens is read before that for the
    /// next ones: it lies side by side.
    fn attend_few(
        &self,
        task: &Task<'_>,
        place: &RangePlace,
        next: &RangePlace,
        queries: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let tokens = place.tokens.len();
        let parts = (0..tokens).step_by(TOKENS_AT_ONCE).map(|from| from..tokens.min(from + TOKENS_AT_ONCE));
        let parts = [Half::Keys, Half::Values].into_iter().flat_map(|half| parts.clone().map(move |part| (half, part)));
        let heads = task.heads.len();
        for (index, (half, part)) in parts.clone().enumerate() {
            let (place_ahead, (half_ahead, ahead)) = match parts.clone().nth(index + 1) {
                Some(ahead) => (place, ahead),
                None => (next, (Half::Keys, 0..TOKENS_AT_ONCE)),
            };
            let within = place.part(&part);
            for (index, head) in task.heads.clone().enumerate() {
                let token = |index: usize| ahead.start + ahead.len() * index / heads;
                let ahead = place_ahead.part(&(token(index)..token(index + 1)));
                self.source.collect_hints(&self.batch, half_ahead, &ahead, task.heads.clone(), &mut scratch.hints);
                scratch.hints.begin(self.units(half, part.len(), queries.len()));
                self.source.load(self.level, &self.batch, half, &within, head, scratch);
                let slots = index * queries.len();
                self.attend_part([index, slots], place, half, part.clone(), queries.clone(), scratch);
            }
        }
    }

    /// As `attend_few`, but a head has its whole range at once, and all of it for some queries after the others.
    fn attend_many(
        &self,
        task: &Task<'_>,
        place: &RangePlace,
        next: &RangePlace,
        queries: Range<usize>,
        scratch: &mut Scratch,
    ) {
        let (tokens, heads) = (place.tokens.len(), task.heads.len());
        for (index, head) in task.heads.clone().enumerate() {
            for half in [Half::Keys, Half::Values] {
                let token = |index: usize| RANGE_TOKENS * index / heads;
                let ahead = next.part(&(token(index)..token(index + 1)));
                self.source.collect_hints(&self.batch, half, &ahead, task.heads.clone(), &mut scratch.hints);
                scratch.hints.begin(self.units(half, tokens, 0));
                self.source.load(self.level, &self.batch, half, place, head, scratch);
            }
            for from in queries.clone().step_by(QUERIES_AT_ONCE) {
                for half in [Half::Keys, Half::Values] {
                    let some = from..queries.end.min(from + QUERIES_AT_ONCE);
                    self.attend_part([index, 0], place, half, 0..tokens, some, scratch);
                }
            }
        }
    }

    /// Work on some keys or values for some queries, in units of that to read a row.
    fn units(&self, half: Half, tokens: usize, queries: usize) -> usize {
        let layout = self.layout().of(half);
        units(half, [tokens, queries], [layout.head_dim * layout.dtype.bytes(), columns(layout.head_dim)])
    }

    /// The keys or values of a part of a range, for some queries, whose weights are those from `slots` on.
    fn attend_part(
        &self,
        [head, slots]: [usize; 2],
        place: &RangePlace,
        half: Half,
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
            rows: match half {
                Half::Keys => &scratch.keys,
                Half::Values => &scratch.values,
            },
            key_columns,
            columns,
            score: Score { scale: self.batch.scale, soft_cap: self.batch.scoring.soft_cap },
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
        match half {
            Half::Keys => self.level.add_keys(work),
            Half::Values => self.level.add_values(work, last),
        }
    }

    /// Divides, and writes outputs and log-sum-exps to the rows of the caller.
    fn give_outputs(
        &self,
        task: &Task<'_>,
        queries: usize,
        scratch: &mut Scratch,
        to: &mut Output<&mut [E], &mut [f32]>,
    ) {
        let (elements, columns, group) = (self.layout().value_dim, columns(self.layout().value_dim), self.group());
        let sinks = self.batch.scoring.sinks.chunks_exact(self.batch.query_heads).nth(self.source.layer);
        let mut states = scratch.softmax.iter().zip(scratch.out.chunks_exact_mut(columns));
        debug_assert_eq!(states.len(), task.heads.len() * queries);
        for head in task.heads.clone() {
            for row in task.sequences.iter().flat_map(|sequence| self.rows(task, *sequence)) {
                for query_head in head * group..(head + 1) * group {
                    let Some((softmax, out)) = states.next() else { return };
                    let lse = kernels::finish(*softmax, sinks.map(|sinks| sinks[query_head]), &mut out[..elements]);
                    let place = row * self.batch.query_heads + query_head;
                    let rows = &mut to.rows[place * elements..][..elements];
                    rows.iter_mut().zip(out).for_each(|(to, out)| *to = E::narrow(*out));
                    if let Some(to) = &mut to.lse {
                        to[place] = lse;
                    }
                }
            }
        }
    }
}
