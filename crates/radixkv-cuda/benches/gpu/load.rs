//! Random batches at full size, and samples of their outputs in `f64`.

use fastrand::Rng;
use radixkv_attention::{Batch, Dtype, Half, Layout, Order, Scoring, Tables};

use super::stored::{self, elements, value};

/// Block size and heads of the targets; each case sets layers and blocks.
pub const LAYOUT: Layout = Layout {
    layers: 1,
    blocks: 1,
    block_size: 16,
    kv_heads: 8,
    head_dim: 128,
    value_dim: 128,
    dtype: Dtype::Bf16,
    order: Order::Nhd,
};

const QUERY_HEADS: usize = 64;

/// Latent vectors of DeepSeek and Kimi.
const LATENT: Layout = Layout { kv_heads: 1, head_dim: 576, value_dim: 512, order: Order::Latent, ..LAYOUT };

/// The largest difference of a sampled row from `f64`, relative to its norm.
const BOUND: f64 = 1.2e-2;

/// `count` contexts of 16 to `most` tokens, `total` together.
pub fn ragged(count: usize, most: u32, total: u32) -> Vec<u32> {
    let mut random = Rng::with_seed(11);
    let mut contexts: Vec<u32> = (0..count).map(|_| random.u32(16..=most)).collect();
    while contexts.iter().sum::<u32>() != total {
        let (at, sum) = (random.usize(..count), contexts.iter().sum::<u32>());
        let off = i64::from(total) - i64::from(sum);
        contexts[at] = (i64::from(contexts[at]) + off).clamp(16, i64::from(most)) as u32;
    }
    contexts
}

pub struct Load {
    pub layout: Layout,
    pub query_heads: usize,
    pub contexts: Vec<u32>,
    pub rows: Vec<u32>,
    pub queries: Vec<u16>,
    /// Keys and values of the rows, the same as in the storage.
    pub keys: Vec<u16>,
    pub values: Vec<u16>,
    pub storage: Vec<u16>,
    blocks: Vec<u32>,
    offsets: Vec<u32>,
    slots: Vec<u64>,
    window: Option<u32>,
    /// A mask of each row, or none.
    trees: Vec<u32>,
    seed: u64,
}

impl Load {
    /// One row for each sequence; the first `shared` tokens are in the same blocks for all.
    pub fn decode(contexts: &[u32], shared: usize, seed: u64) -> Self {
        let rows: Vec<u32> = (0..=contexts.len() as u32).collect();
        Self::new(LAYOUT, QUERY_HEADS, contexts, rows, shared, seed)
    }

    /// One row for each sequence, over a storage like `layout`.
    pub fn decode_from(layout: Layout, contexts: &[u32], seed: u64) -> Self {
        let rows: Vec<u32> = (0..=contexts.len() as u32).collect();
        Self::new(layout, QUERY_HEADS, contexts, rows, 0, seed)
    }

    /// The same where a row sees so many tokens.
    pub fn within(self, window: u32) -> Self {
        Self { window: Some(window), ..self }
    }

    /// The last `rows` tokens of each sequence, drafted as a tree of two branches.
    pub fn tree(contexts: &[u32], rows: usize, seed: u64) -> Self {
        let offsets = (0..=contexts.len()).map(|sequence| (sequence * rows) as u32).collect();
        // Row 0 is the root; odd rows are one branch and even rows the other.
        let mask = |row: usize| {
            (0..=row).filter(|other| *other == 0 || (row - other).is_multiple_of(2)).map(|row| 1 << row).sum()
        };
        let trees = contexts.iter().flat_map(|_| (0..rows).map(mask)).collect();
        Self { trees, ..Self::new(LAYOUT, QUERY_HEADS, contexts, offsets, 0, seed) }
    }

    /// A chunk of `rows` after `before` tokens.
    pub fn extend(before: usize, rows: usize, seed: u64) -> Self {
        Self::new(LAYOUT, QUERY_HEADS, &[(before + rows) as u32], vec![0, rows as u32], 0, seed)
    }

    /// One row for each sequence, over latent vectors in blocks of so many tokens.
    pub fn latent(contexts: &[u32], query_heads: usize, block_size: usize, seed: u64) -> Self {
        let rows: Vec<u32> = (0..=contexts.len() as u32).collect();
        Self::new(Layout { block_size, ..LATENT }, query_heads, contexts, rows, 0, seed)
    }

    fn new(base: Layout, query_heads: usize, contexts: &[u32], rows: Vec<u32>, shared: usize, seed: u64) -> Self {
        let of = |tokens: usize| tokens.div_ceil(base.block_size);
        let own = |context: &u32| of(*context as usize) - of(shared);
        let layout = Layout { blocks: of(shared) + contexts.iter().map(own).sum::<usize>(), ..base };
        let mut order: Vec<u32> = (0..layout.blocks as u32).collect();
        Rng::with_seed(seed).shuffle(&mut order);
        let (prefix, mut rest) = order.split_at(of(shared));
        let (mut blocks, mut offsets, mut slots) = (Vec::new(), vec![0], Vec::new());
        for (sequence, context) in contexts.iter().enumerate() {
            let first = blocks.len();
            blocks.extend(prefix);
            let (mine, others) = rest.split_at(own(context));
            blocks.extend(mine);
            rest = others;
            offsets.push(blocks.len() as u32);
            let new = rows[sequence + 1] - rows[sequence];
            slots.extend((context - new..*context).map(|token| {
                let (block, at) = (token as usize / base.block_size, token as usize % base.block_size);
                u64::from(blocks[first + block]) * base.block_size as u64 + at as u64
            }));
        }
        let total = *rows.last().expect("rows") as usize;
        let queries = elements(seed + 100, total * query_heads * base.head_dim);
        let storage = stored::storage(seed + 200, &layout);
        let mut load = Self {
            layout,
            query_heads,
            contexts: contexts.to_vec(),
            rows,
            queries,
            keys: Vec::new(),
            values: Vec::new(),
            storage,
            blocks,
            offsets,
            slots,
            window: None,
            trees: Vec::new(),
            seed,
        };
        // What is appended has 16 bits; no case appends to elements of 8.
        if !layout.dtype.has_scales() {
            load.keys = load.stored(Half::Keys);
            load.values = load.stored(Half::Values);
        }
        load
    }

    /// The elements in the slots of the rows.
    fn stored(&self, half: Half) -> Vec<u16> {
        let size = self.layout.block_size as u64;
        let row = |slot: &u64| {
            let first = self.layout.index(0, half, (slot / size) as u32, (slot % size) as usize, 0);
            &self.storage[first..first + self.layout.appended_elements(half)]
        };
        self.slots.iter().flat_map(row).copied().collect()
    }

    /// The same load with so many layers, at most `most`, that they exceed four times the
    /// second-level cache. Outputs are checked in the first layer.
    pub fn cold(self, l2_bytes: usize, most: usize) -> Self {
        let layers = (4 * l2_bytes).div_ceil(self.seen_bytes()).clamp(1, most);
        let layout = Layout { layers, ..self.layout };
        let mut storage = self.storage;
        if layers > 1 {
            storage.extend(stored::storage(self.seed + 300, &Layout { layers: layers - 1, ..layout }));
        }
        Self { layout, storage, ..self }
    }

    pub fn batch(&self) -> Batch<'_> {
        Batch {
            query_heads: self.query_heads,
            scale: self.scale(),
            scoring: Scoring { window: self.window, trees: &self.trees, ..Scoring::default() },
            tables: Tables { blocks: &self.blocks, offsets: &self.offsets },
            contexts: &self.contexts,
            rows: &self.rows,
            save_kv: true,
            slots: &self.slots,
        }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.layout.head_dim as f32).sqrt()
    }

    /// Bytes of keys and values of all blocks of one layer, shared ones once.
    pub fn kv_bytes(&self) -> usize {
        stored::layer_bytes(&self.layout)
    }

    /// Bytes of keys and values of all contexts of one layer, shared ones for each.
    pub fn context_bytes(&self) -> usize {
        self.bytes_of(self.contexts.iter().sum::<u32>())
    }

    /// Bytes of keys and values that one row of each sequence sees, or of all blocks without a
    /// window.
    pub fn seen_bytes(&self) -> usize {
        let seen = |window| self.contexts.iter().map(|context| u32::min(*context, window)).sum::<u32>();
        self.window.map_or(self.kv_bytes(), |window| self.bytes_of(seen(window)))
    }

    fn bytes_of(&self, tokens: u32) -> usize {
        self.kv_bytes() / self.layout.slots() as usize * tokens as usize
    }

    /// Elements of all outputs.
    pub fn out_elements(&self) -> usize {
        self.rows.last().map_or(0, |rows| *rows as usize) * self.query_heads * self.layout.value_dim
    }

    /// Compares some rows and heads with `f64`.
    pub fn check(&self, out: &[u16]) {
        let mut random = Rng::with_seed(self.seed + 400);
        for _ in 0..24 {
            let sequence = random.usize(..self.contexts.len());
            let rows = self.rows[sequence] as usize..self.rows[sequence + 1] as usize;
            let row = random.usize(rows.clone());
            let head = random.usize(..self.query_heads);
            let before = self.contexts[sequence] as usize - rows.len();
            let tree = self.trees.get(row).copied();
            let sees = |token: usize| match tree {
                Some(tree) if token >= before => tree >> (token - before) & 1 == 1,
                _ => token <= before + row - rows.start,
            };
            let first = self.window.map_or(0, |window| (before + row - rows.start + 1).saturating_sub(window as usize));
            let tokens: Vec<usize> = (first..self.contexts[sequence] as usize).filter(|token| sees(*token)).collect();
            let expected = self.attend(sequence, row, head, &tokens);
            let at = (row * self.query_heads + head) * self.layout.value_dim;
            let got = out[at..at + self.layout.value_dim].iter().map(|element| value(*element));
            let wrong: f64 = got.zip(&expected).map(|(got, expected)| (got - expected).powi(2)).sum();
            let error = (wrong / expected.iter().map(|x| x * x).sum::<f64>()).sqrt();
            assert!(error <= BOUND, "sequence {sequence}, row {row}, head {head}: relative error {error:.2e}");
        }
    }

    fn attend(&self, sequence: usize, row: usize, head: usize, tokens: &[usize]) -> Vec<f64> {
        let (layout, dim) = (&self.layout, self.layout.head_dim);
        let at = (row * self.query_heads + head) * dim;
        let query: Vec<f64> = self.queries[at..at + dim].iter().map(|element| value(*element)).collect();
        let kv_head = head / (self.query_heads / layout.kv_heads);
        let stored = |half: Half, token: usize| {
            let block = self.blocks[self.offsets[sequence] as usize + token / layout.block_size];
            stored::row(&self.storage, layout, half, (block, token % layout.block_size, kv_head))
        };
        let score = |token: &usize| {
            let key = stored(Half::Keys, *token);
            key.iter().zip(&query).map(|(k, q)| k * q).sum::<f64>() * f64::from(self.scale())
        };
        let scores: Vec<f64> = tokens.iter().map(score).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - most).exp()).sum();
        let mut out = vec![0.0; layout.value_dim];
        for (token, score) in tokens.iter().zip(&scores) {
            let weight = (score - most).exp() / sum;
            out.iter_mut().zip(stored(Half::Values, *token)).for_each(|(sum, v)| *sum += weight * v);
        }
        out
    }
}
