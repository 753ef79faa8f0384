//! The work of one step, as flat arrays in the layout that attention kernels take.
//!
//! The sequences are concatenated; sequence `i` has the range `offsets[i]..offsets[i + 1]` of every
//! array (compressed rows):
//!
//! ```text
//! token_offsets   0        3 4          7
//! tokens          a b c    x p q r          the tokens to compute: a chunk, a decode, a chunk
//! positions       0 1 2    9 4 5 6          each token's position in its sequence
//! slot_mapping    s s s    s s s s          its slot: block * block_size + offset
//! logits_rows     2, 3                      rows to sample from: none for the middle of a prompt
//! block_offsets   0    1       4    6
//! block_tables    A    B C D   E F          all blocks of each sequence, this step's included
//! ```
//!
//! Row `r` of sequence `i` attends to positions `0..=positions[r]` of block table `i`.

use radixkv::{BlockId, Token};

use super::request::SequenceId;

/// A copy of a block's first tokens inside the KV memory: keys and values of all layers. The engine
/// makes it before the step writes anything.
///
/// # Examples
///
/// ```
/// use radixkv_scheduler::Batch;
///
/// /// `copy(from, to, n)` copies the first `n` tokens of a block.
/// fn copy_blocks(batch: &Batch, mut copy: impl FnMut(u32, u32, usize)) {
///     for pending in batch.copies() {
///         copy(pending.source, pending.destination, pending.tokens);
///     }
/// }
/// # copy_blocks(&Batch::new(16), |_, _, _| {});
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockCopy {
    /// The block to read.
    pub source: BlockId,
    /// The block to write.
    pub destination: BlockId,
    /// Number of tokens to copy, from the block's start.
    pub tokens: usize,
}

impl BlockCopy {
    /// A copy of the first `tokens` tokens of `source` to the same positions in `destination`, for
    /// a hand-made batch.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_scheduler::BlockCopy;
    ///
    /// let copy = BlockCopy::new(3, 8, 5); // the first five tokens of block 3 to block 8
    /// assert_eq!((copy.source, copy.destination, copy.tokens), (3, 8, 5));
    /// ```
    pub fn new(source: BlockId, destination: BlockId, tokens: usize) -> Self {
        Self { source, destination, tokens }
    }
}

/// The work of one step: tokens of several sequences, and the slots for their keys and values.
///
/// [`Step::batch`](super::Step::batch) lends the batch that a scheduler made. [`new`](Self::new)
/// and [`push`](Self::push) make one by hand, for a test or a warm-up.
///
/// In vLLM's words: [`token_offsets`](Self::token_offsets) are `query_start_loc`,
/// [`logits_rows`](Self::logits_rows) are `logits_indices`, and a sequence's
/// [`context_len`](Scheduled::context_len) is its `seq_len`.
///
/// # Examples
///
/// ```
/// use radixkv_scheduler::{Batch, SequenceId};
///
/// let mut batch = Batch::new(4);
/// // Three tokens from position 3 on: the last slot of block 9, and the first two of block 5.
/// batch.push(SequenceId::from(0), 0, 3, &[30, 31, 32], &[9, 5], true);
/// assert_eq!(batch.slot_mapping(), [9 * 4 + 3, 5 * 4, 5 * 4 + 1]);
/// assert_eq!(batch.logits_rows(), [2]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    block_size: usize,
    ids: Vec<SequenceId>,
    rows: Vec<u32>,
    token_offsets: Vec<u32>,
    tokens: Vec<Token>,
    positions: Vec<u32>,
    slot_mapping: Vec<u64>,
    logits_rows: Vec<u32>,
    block_offsets: Vec<u32>,
    block_tables: Vec<BlockId>,
    copies: Vec<BlockCopy>,
}

/// One sequence of a [`Batch`].
///
/// # Examples
///
/// ```
/// # use radixkv::PrefixCache;
/// # use radixkv_scheduler::{QueueConfig, Request, Scheduler, SchedulerConfig, WaitingQueue};
/// # let cache = PrefixCache::builder(4, 64).build()?;
/// # let queue = WaitingQueue::new(&cache, QueueConfig::default());
/// # let mut scheduler = Scheduler::new(&queue, SchedulerConfig::default())?;
/// queue.submit(Request::new(cache.default_namespace(), vec![1, 2, 3, 4, 5], 8))?;
/// let step = scheduler.schedule();
/// for scheduled in step.batch().sequences() {
///     assert_eq!((scheduled.start, scheduled.tokens), (0, &[1, 2, 3, 4, 5][..]));
///     assert_eq!((scheduled.context_len(), scheduled.block_table.len()), (5, 2));
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheduled<'b> {
    /// The sequence.
    pub id: SequenceId,
    /// The request slot of the sequence: below `max_running`, and unique among the running
    /// sequences of its scheduler.
    pub slot: u32,
    /// Position of the first token to compute; earlier tokens already have keys and values.
    pub start: usize,
    /// The tokens to compute; at least one.
    pub tokens: &'b [Token],
    /// For each of these tokens, the slot for its keys and values.
    pub slot_mapping: &'b [u64],
    /// The blocks of the sequence, from its first token to the last one of this step.
    pub block_table: &'b [BlockId],
    /// Whether to sample a token from the logits of the last token.
    pub wants_logits: bool,
}

impl Scheduled<'_> {
    /// Number of the sequence's tokens that have keys and values after the step.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(4);
    /// batch.push(SequenceId::from(8), 0, 9, &[4, 5], &[6, 2, 3], true);
    /// assert_eq!(batch.sequence(0).context_len(), 11); // nine before the step, and two in it
    /// ```
    pub fn context_len(&self) -> usize {
        self.start + self.tokens.len()
    }
}

impl Batch {
    /// Creates an empty batch for blocks of `block_size` tokens.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_scheduler::Batch;
    ///
    /// let batch = Batch::new(16);
    /// assert!(batch.is_empty() && batch.block_size() == 16);
    /// ```
    pub fn new(block_size: usize) -> Self {
        Self {
            block_size,
            ids: Vec::new(),
            rows: Vec::new(),
            token_offsets: vec![0],
            tokens: Vec::new(),
            positions: Vec::new(),
            slot_mapping: Vec::new(),
            logits_rows: Vec::new(),
            block_offsets: vec![0],
            block_tables: Vec::new(),
            copies: Vec::new(),
        }
    }

    /// Empties the batch and keeps its memory.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(4);
    /// batch.push(SequenceId::from(7), 0, 0, &[1, 2, 3], &[5], true);
    /// batch.clear(); // for the next step
    /// assert!(batch.is_empty());
    /// ```
    pub fn clear(&mut self) {
        self.ids.clear();
        self.rows.clear();
        self.token_offsets.truncate(1);
        self.tokens.clear();
        self.positions.clear();
        self.slot_mapping.clear();
        self.logits_rows.clear();
        self.block_offsets.truncate(1);
        self.block_tables.clear();
        self.copies.clear();
    }

    /// Adds `tokens` of a sequence with request slot `slot`; the first of them is at position
    /// `start`.
    ///
    /// `block_table` is the sequence's blocks from its first token to at least the last of
    /// `tokens`; later blocks are left out. `wants_logits` says whether to sample from the logits
    /// of the last token.
    ///
    /// # Panics
    ///
    /// If there are no tokens, or the block table is too short for them.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_scheduler::{Batch, SequenceId};
    ///
    /// let mut batch = Batch::new(16);
    /// batch.push(SequenceId::from(0), 0, 0, &[1, 2, 3], &[5], false);
    /// assert_eq!((batch.len(), batch.tokens()), (1, &[1, 2, 3][..]));
    /// ```
    pub fn push(
        &mut self,
        id: SequenceId,
        slot: u32,
        start: usize,
        tokens: &[Token],
        block_table: &[BlockId],
        wants_logits: bool,
    ) {
        assert!(!tokens.is_empty(), "no tokens to compute for {id:?}");
        let end = start + tokens.len();
        let table = &block_table[..end.div_ceil(self.block_size)];
        self.ids.push(id);
        self.rows.push(slot);
        self.tokens.extend_from_slice(tokens);
        self.positions.extend((start..end).map(|position| position as u32));
        let size = self.block_size;
        let slot = |position: usize| u64::from(table[position / size]) * size as u64 + (position % size) as u64;
        self.slot_mapping.extend((start..end).map(slot));
        self.block_tables.extend_from_slice(table);
        self.token_offsets.push(self.tokens.len() as u32);
        self.block_offsets.push(self.block_tables.len() as u32);
        if wants_logits {
            self.logits_rows.push(self.tokens.len() as u32 - 1);
        }
    }

    /// Adds a copy, which the engine makes before it writes anything.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_scheduler::{Batch, BlockCopy};
    ///
    /// let mut batch = Batch::new(16);
    /// batch.push_copy(BlockCopy::new(3, 8, 5));
    /// assert!(batch.len() == 0 && !batch.is_empty());
    /// ```
    pub fn push_copy(&mut self, copy: BlockCopy) {
        self.copies.push(copy);
    }

    /// Removes the copies, which the engine has made.
    pub(super) fn clear_copies(&mut self) {
        self.copies.clear();
    }

    /// Number of sequences.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(4);
    /// batch.push(SequenceId::from(7), 0, 0, &[1, 2, 3], &[5], false); // a chunk of a prompt
    /// batch.push(SequenceId::from(8), 1, 9, &[4], &[6, 2, 3], true); // a sequence that decodes
    /// assert_eq!((batch.len(), batch.tokens().len()), (2, 4));
    /// ```
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is nothing to do: no token and no copy.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, BlockCopy};
    /// # let mut batch = Batch::new(4);
    /// assert!(batch.is_empty());
    /// batch.push_copy(BlockCopy::new(3, 8, 2)); // a copy is also work
    /// assert!(!batch.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.copies.is_empty()
    }

    /// Number of tokens in a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Sequence `i`.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`len`](Self::len).
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(16);
    /// batch.push(SequenceId::from(8), 1, 9, &[4], &[6], true);
    /// let scheduled = batch.sequence(0);
    /// assert_eq!((scheduled.slot, scheduled.start, scheduled.context_len()), (1, 9, 10));
    /// ```
    pub fn sequence(&self, i: usize) -> Scheduled<'_> {
        let rows = self.token_offsets[i] as usize..self.token_offsets[i + 1] as usize;
        let blocks = self.block_offsets[i] as usize..self.block_offsets[i + 1] as usize;
        Scheduled {
            id: self.ids[i],
            slot: self.rows[i],
            start: self.positions[rows.start] as usize,
            tokens: &self.tokens[rows.clone()],
            slot_mapping: &self.slot_mapping[rows.clone()],
            block_table: &self.block_tables[blocks],
            wants_logits: self.logits_rows.binary_search(&(rows.end as u32 - 1)).is_ok(),
        }
    }

    /// The sequences, in the order of the arrays.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::Batch;
    /// /// Splits a batch for a backend with two kernels: sequences that decode, and chunks of prompts.
    /// fn decodes(batch: &Batch) -> usize {
    ///     batch.sequences().filter(|scheduled| scheduled.tokens.len() == 1).count()
    /// }
    /// # assert_eq!(decodes(&Batch::new(16)), 0);
    /// ```
    pub fn sequences(&self) -> impl ExactSizeIterator<Item = Scheduled<'_>> {
        (0..self.len()).map(|i| self.sequence(i))
    }

    /// The sequences to sample a token for: one for each of [`logits_rows`](Self::logits_rows), in
    /// the same order.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(16);
    /// // The middle of a prompt, then a sequence that decodes.
    /// batch.push(SequenceId::from(7), 0, 0, &[1, 2, 3], &[5], false);
    /// batch.push(SequenceId::from(8), 1, 9, &[4], &[6], true);
    /// assert!(batch.sampling().eq([SequenceId::from(8)]));
    /// ```
    pub fn sampling(&self) -> impl Iterator<Item = SequenceId> {
        self.sequences().filter(|scheduled| scheduled.wants_logits).map(|scheduled| scheduled.id)
    }

    /// The tokens to compute, for all sequences.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(4);
    /// batch.push(SequenceId::from(7), 0, 0, &[1, 2, 3], &[5], false); // a chunk of a prompt
    /// batch.push(SequenceId::from(8), 1, 9, &[4], &[6, 2, 3], true); // a sequence that decodes
    /// assert_eq!(batch.tokens(), [1, 2, 3, 4]);
    /// ```
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// For each token, its position in its sequence.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(4);
    /// batch.push(SequenceId::from(7), 0, 0, &[1, 2, 3], &[5], false); // a chunk of a prompt
    /// batch.push(SequenceId::from(8), 1, 9, &[4], &[6, 2, 3], true); // a sequence that decodes
    /// assert_eq!(batch.positions(), [0, 1, 2, 9]);
    /// ```
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// For each token, the slot for its keys and values: block id times block size plus the offset
    /// in the block.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(16);
    /// batch.push(SequenceId::from(8), 0, 15, &[4, 5], &[6, 2], true);
    /// assert_eq!(batch.slot_mapping(), [6 * 16 + 15, 2 * 16]);
    /// ```
    pub fn slot_mapping(&self) -> &[u64] {
        &self.slot_mapping
    }

    /// The start of each sequence in [`tokens`](Self::tokens), then the end of the last one: one
    /// entry more than there are sequences.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(4);
    /// batch.push(SequenceId::from(7), 0, 0, &[1, 2, 3], &[5], false); // a chunk of a prompt
    /// batch.push(SequenceId::from(8), 1, 9, &[4], &[6, 2, 3], true); // a sequence that decodes
    /// assert_eq!(batch.token_offsets(), [0, 3, 4]);
    /// ```
    pub fn token_offsets(&self) -> &[u32] {
        &self.token_offsets
    }

    /// The rows (indices into [`tokens`](Self::tokens)) whose logits are wanted, ascending.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(4);
    /// batch.push(SequenceId::from(7), 0, 0, &[1, 2, 3], &[5], false); // a chunk of a prompt
    /// batch.push(SequenceId::from(8), 1, 9, &[4], &[6, 2, 3], true); // a sequence that decodes
    /// assert_eq!(batch.logits_rows(), [3]); // only the second sequence gets a token sampled
    /// ```
    pub fn logits_rows(&self) -> &[u32] {
        &self.logits_rows
    }

    /// The block tables of all sequences, concatenated.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(4);
    /// batch.push(SequenceId::from(7), 0, 0, &[1, 2, 3], &[5], false); // a chunk of a prompt
    /// batch.push(SequenceId::from(8), 1, 9, &[4], &[6, 2, 3], true); // a sequence that decodes
    /// assert_eq!(batch.block_tables(), [5, 6, 2, 3]);
    /// ```
    pub fn block_tables(&self) -> &[BlockId] {
        &self.block_tables
    }

    /// The start of each sequence's table in [`block_tables`](Self::block_tables), then the end of
    /// the last one: one entry more than there are sequences.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, SequenceId};
    /// # let mut batch = Batch::new(4);
    /// batch.push(SequenceId::from(7), 0, 0, &[1, 2, 3], &[5], false); // a chunk of a prompt
    /// batch.push(SequenceId::from(8), 1, 9, &[4], &[6, 2, 3], true); // a sequence that decodes
    /// assert_eq!(batch.block_offsets(), [0, 1, 4]);
    /// ```
    pub fn block_offsets(&self) -> &[u32] {
        &self.block_offsets
    }

    /// The copies that the engine makes before it writes anything. [`BlockCopy`] has an example.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv_scheduler::{Batch, BlockCopy};
    /// # let mut batch = Batch::new(4);
    /// batch.push_copy(BlockCopy::new(3, 8, 2));
    /// assert_eq!(batch.copies(), [BlockCopy::new(3, 8, 2)]);
    /// ```
    pub fn copies(&self) -> &[BlockCopy] {
        &self.copies
    }
}

#[cfg(test)]
mod tests;
