//! Runs one operation on one layer: divides it into tasks, gives each task its queries, and writes
//! the outputs.
//!
//! `operations` calls [`AttentionCall::run`]; `ranges` and `apart` compute the ranges of a task.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::kernels::{self, Level, RowView};
use super::number::Number;
use super::prepared::{Piece, Plan};
use super::read::RowSource;
use super::scratch::{self, Scratch, columns};
use super::threads::Threads;
use crate::backend::Output;
use crate::batch::Batch;
use crate::layout::Layout;

/// The most queries, of all heads together, in a task of more than one head: with their sums they
/// fit into the L2 cache. A task reads several heads of a range in turn, since they are adjacent.
const TASK_QUERIES: usize = 1024;
/// Tasks for each thread, if there are fewer sequences than that.
const TASKS_PER_THREAD: usize = 2;

/// Bytes of a token's row that one thread should read at least, though more threads could divide
/// them.
const STRETCH_BYTES: usize = 1024;

/// One operation on one layer.
pub(super) struct AttentionCall<'a, E> {
    pub(super) level: Level,
    pub(super) threads: &'a Threads,
    pub(super) source: RowSource<'a, E>,
    pub(super) batch: Batch<'a>,
    pub(super) queries: &'a [E],
}

/// A unit of work: some heads of a piece.
pub(super) struct Task<'p> {
    pub(super) sequences: &'p [u32],
    pub(super) piece: Piece,
    pub(super) heads: Range<usize>,
}

impl<E: Number> AttentionCall<'_, E> {
    pub(super) fn run(&self, plan: &Plan, mut out: Output<&mut [E], &mut [f32]>) {
        if self.is_for_ranges(plan) {
            return self.threads.enter(|| self.run_by_ranges(plan, &mut out));
        }
        let out = Mutex::new(out);
        let heads = self.layout().kv_heads;
        let together = self.heads_together(plan.cut_pieces().max(1));
        let per_piece = |piece: &Piece| {
            let queries = (piece.sequences.len() * piece.rows.len() * self.group()).max(1);
            together.min(TASK_QUERIES / queries).max(1)
        };
        let next = AtomicUsize::new(0);
        self.threads.run(|| {
            scratch::with(|scratch| {
                let mut tasks = plan.cut().flat_map(|piece| {
                    let together = per_piece(&piece);
                    (0..heads).step_by(together).map(move |head| (piece.clone(), head..heads.min(head + together)))
                });
                let mut taken = 0;
                loop {
                    // Relaxed: it only hands out numbers; the end of the call orders the tasks'
                    // writes.
                    let task = next.fetch_add(1, Relaxed);
                    let Some((piece, heads)) = tasks.nth(task - taken) else { break };
                    taken = task + 1;
                    let sequences = &plan.sequences[piece.sequences.clone()];
                    self.compute(&Task { sequences, piece, heads }, scratch, &out);
                }
            });
        });
    }

    /// Heads of a task if there are `pieces` pieces. Heads are divided until each thread has
    /// [`TASKS_PER_THREAD`] tasks; once each thread has one task, only while the parts of a row
    /// have [`STRETCH_BYTES`].
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

    pub(super) fn layout(&self) -> &Layout {
        self.source.layout()
    }

    /// Query heads for each KV head.
    pub(super) fn group(&self) -> usize {
        self.batch.query_heads / self.layout().kv_heads
    }

    /// The rows of a task in one sequence, in the order of their queries.
    fn rows<'t>(&'t self, task: &'t Task<'_>, sequence: u32) -> Range<usize> {
        let first = self.batch.rows_of(sequence as usize).start;
        first + task.piece.rows.start..first + task.piece.rows.end
    }

    /// The tokens of its sequence that a row sees; with a tree, from the first to the last of them.
    fn seen(&self, sequence: u32, row: usize) -> Range<usize> {
        let rows = self.batch.rows_of(sequence as usize);
        let context = self.batch.contexts[sequence as usize] as usize;
        let end = context - (rows.end - 1 - row);
        self.batch.scoring.seen(self.view(sequence, row).position as usize).start..end
    }

    /// The position from which a row's slopes count, and the new tokens of a tree that it sees.
    fn view(&self, sequence: u32, row: usize) -> RowView {
        let rows = self.batch.rows_of(sequence as usize);
        let context = self.batch.contexts[sequence as usize];
        let base = context - rows.len() as u32;
        match self.batch.scoring.trees.get(row) {
            Some(&tree) => RowView { position: base + tree.count_ones(), base, tree },
            None => RowView { position: base + (row - rows.start) as u32 + 1, base, tree: u32::MAX },
        }
    }

    /// The tokens of a sequence from the first to the last that some row of the piece sees.
    pub(super) fn seen_together(&self, task: &Task<'_>, sequence: u32) -> Range<usize> {
        let rows = self.rows(task, sequence);
        let first = rows.clone().map(|row| self.seen(sequence, row).start).min().unwrap_or(0);
        first..self.seen(sequence, rows.end - 1).end
    }

    fn compute(&self, task: &Task<'_>, scratch: &mut Scratch, out: &Mutex<Output<&mut [E], &mut [f32]>>) {
        let queries = self.begin(task, scratch);
        self.attend_all(task, queries, scratch);
        self.give_outputs(task, queries, scratch, &mut out.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }

    /// Makes room for a task and copies its queries to `scratch`; returns the number of queries of
    /// each head.
    pub(super) fn begin(&self, task: &Task<'_>, scratch: &mut Scratch) -> usize {
        let queries = task.sequences.len() * task.piece.rows.len() * self.group();
        scratch.begin(self.layout(), task.heads.len(), queries);
        self.take_queries(task, scratch);
        queries
    }

    /// Whether scores depend on slopes or trees.
    fn views_count(&self) -> bool {
        let scoring = &self.batch.scoring;
        !scoring.alibi_slopes.is_empty() || !scoring.trees.is_empty()
    }

    /// Widens the queries of the task to `[heads, sequences, rows, query heads of a head]`, and
    /// notes what each of them sees.
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
            for row in self.rows(task, *sequence) {
                let seen = self.seen(*sequence, row);
                scratch.seen.extend(std::iter::repeat_n([seen.start as u32, seen.end as u32], group));
                if self.views_count() {
                    scratch.views.extend(std::iter::repeat_n(self.view(*sequence, row), group));
                }
            }
        }
    }

    /// Divides by the sums of weights, and writes outputs and log-sum-exps to the caller's buffers.
    pub(super) fn give_outputs(
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
