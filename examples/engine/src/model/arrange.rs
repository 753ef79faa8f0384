//! Reorders a step's rows for attention: first the sequences with one row (decode), then those with
//! several rows (chunks of prompts, extend).

use radixkv::{BlockId, Token};
use radixkv_attention::plan::share;
use radixkv_attention::{Layout, Output, Qkv, Scoring, Tables};
use radixkv_scheduler::{Batch, Scheduled};

use super::HostBackend;
use crate::config::Config;

/// Flat arrays of the sequences that decode, or of the sequences that extend.
#[derive(Debug)]
struct Part {
    blocks: Vec<BlockId>,
    offsets: Vec<u32>,
    contexts: Vec<u32>,
    rows: Vec<u32>,
    slots: Vec<u64>,
}

/// A step with reordered rows.
#[derive(Debug)]
pub(super) struct Arranged {
    tokens: Vec<Token>,
    positions: Vec<u32>,
    logits_rows: Vec<usize>,
    decode: Part,
    extend: Part,
}

/// An arranged step that the backend has prepared.
pub(super) struct PreparedStep<B: HostBackend> {
    /// The number of elements of all decoding rows: in queries, and in keys.
    decode_rows: (usize, usize),
    decode: B::Prepared,
    cascade: Option<B::Cascade>,
    extend: B::Prepared,
}

impl Part {
    fn new() -> Self {
        Self { blocks: Vec::new(), offsets: vec![0], contexts: Vec::new(), rows: vec![0], slots: Vec::new() }
    }

    fn push(&mut self, sequence: &Scheduled<'_>) {
        self.blocks.extend_from_slice(sequence.block_table);
        self.offsets.push(self.blocks.len() as u32);
        self.contexts.push(sequence.context_len() as u32);
        self.slots.extend_from_slice(sequence.slot_mapping);
        self.rows.push(self.slots.len() as u32);
    }

    fn batch(&self, config: &Config) -> radixkv_attention::Batch<'_> {
        radixkv_attention::Batch {
            query_heads: config.query_heads,
            scale: (config.head_dim as f32).sqrt().recip(),
            scoring: Scoring::default(),
            tables: Tables { blocks: &self.blocks, offsets: &self.offsets },
            contexts: &self.contexts,
            rows: &self.rows,
            save_kv: true,
            slots: &self.slots,
        }
    }
}

impl Arranged {
    pub(super) fn new(step: &Batch) -> Self {
        let mut arranged = Self {
            tokens: Vec::with_capacity(step.tokens().len()),
            positions: Vec::with_capacity(step.tokens().len()),
            logits_rows: Vec::new(),
            decode: Part::new(),
            extend: Part::new(),
        };
        // The new index of each sequence's last row.
        let mut last_rows = vec![0; step.len()];
        for decode in [true, false] {
            for (index, sequence) in step.sequences().enumerate().filter(|(_, s)| (s.tokens.len() == 1) == decode) {
                arranged.tokens.extend_from_slice(sequence.tokens);
                arranged.positions.extend((sequence.start..sequence.context_len()).map(|position| position as u32));
                last_rows[index] = arranged.tokens.len() - 1;
                let part = if decode { &mut arranged.decode } else { &mut arranged.extend };
                part.push(&sequence);
            }
        }
        let wanted = step.sequences().zip(last_rows).filter(|(sequence, _)| sequence.wants_logits);
        arranged.logits_rows = wanted.map(|(_, row)| row).collect();
        arranged
    }

    pub(super) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    pub(super) fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// The rows whose logits the step needs, in the order of its batch.
    pub(super) fn logits_rows(&self) -> &[usize] {
        &self.logits_rows
    }

    pub(super) fn prepare<B: HostBackend>(
        &self,
        backend: &B,
        layout: &Layout,
        config: &Config,
        cascade: bool,
    ) -> Result<PreparedStep<B>, B::Error> {
        let decode = self.decode.batch(config);
        let shared = || {
            let sharing = share(decode.tables, decode.contexts, layout.block_size, backend.rule(layout));
            (sharing.saved_tokens() > 0).then_some(sharing)
        };
        let prepared = backend.prepare(layout, &decode)?;
        let cascade = match cascade.then(shared).flatten() {
            Some(sharing) => Some(backend.prepare_cascade(layout, &decode, &sharing)?),
            None => None,
        };
        let rows = self.decode.slots.len();
        Ok(PreparedStep {
            decode_rows: (rows * config.query_heads * config.head_dim, rows * layout.row_elements()),
            decode: prepared,
            cascade,
            extend: backend.prepare(layout, &self.extend.batch(config))?,
        })
    }
}

impl<B: HostBackend> PreparedStep<B> {
    /// Computes the attention of all rows in one layer, and stores their keys and values.
    pub(super) fn attend(
        &self,
        backend: &B,
        kv: &B::Kv,
        layer: usize,
        new: Qkv<&[f32]>,
        out: &mut [f32],
    ) -> Result<(), B::Error> {
        let (of_queries, of_keys) = self.decode_rows;
        let (queries, chunk_queries) = new.queries.split_at(of_queries);
        let (keys, chunk_keys) = new.keys.split_at(of_keys);
        let (values, chunk_values) = new.values.split_at(of_keys);
        let (out, chunk_out) = out.split_at_mut(of_queries);
        if !queries.is_empty() {
            backend.append(kv, layer, &self.decode, keys, values)?;
            let out = Output { rows: out, lse: None };
            match &self.cascade {
                Some(cascade) => backend.cascade(kv, layer, &self.decode, cascade, queries, out)?,
                None => backend.decode(kv, layer, &self.decode, queries, out)?,
            }
        }
        if !chunk_queries.is_empty() {
            let new = Qkv { queries: chunk_queries, keys: chunk_keys, values: chunk_values };
            backend.extend(kv, layer, &self.extend, new, Output { rows: chunk_out, lse: None })?;
        }
        Ok(())
    }
}
