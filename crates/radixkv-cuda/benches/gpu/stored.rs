//! Random keys and values as a storage holds them, and what they are worth.

use fastrand::Rng;
use radixkv_attention::{Dtype, Half, Layout, element};

/// Scales of elements of 8 bits.
const SCALES: [f32; 4] = [0.75, 1.0, 1.25, 1.5];

/// Random `bf16` of magnitudes 1/8 to 2. Zeros would be read faster.
pub fn elements(seed: u64, len: usize) -> Vec<u16> {
    let mut random = Rng::with_seed(seed);
    let mut elements = Vec::with_capacity(len + 3);
    while elements.len() < len {
        let bits = random.u64(..);
        let element = |bits: u64| (bits as u16 & 0x807f) | (0x3f80 - ((bits >> 7) as u16 & 3) * 0x80);
        elements.extend([0, 16, 32, 48].map(|at| element(bits >> at)));
    }
    elements.truncate(len);
    elements
}

/// The memory of a storage, in words of 16 bits: elements, or two of 8 bits in a word; each block's
/// own scales follow it.
pub fn storage(seed: u64, layout: &Layout) -> Vec<u16> {
    if !layout.dtype.has_scales() {
        return elements(seed, layout.elements());
    }
    let mut random = Rng::with_seed(seed);
    let blocks = layout.halves().len() * layout.layers * layout.blocks;
    let mut words = Vec::with_capacity(blocks * block_words(layout));
    for block in 1..=blocks {
        for _ in 0..layout.block_elements() / 8 {
            // Without the second highest bit: there is no NaN, and magnitudes are below 2, of
            // integers up to 128.
            let bits = random.u64(..) & 0xbfbf_bfbf_bfbf_bfbf;
            words.extend([0, 16, 32, 48].map(|at| (bits >> at) as u16));
        }
        if has_block_scales(layout) {
            for _ in 0..layout.kv_heads * layout.block_size {
                let bits = (SCALES[random.usize(..SCALES.len())] / unit(layout.dtype)).to_bits();
                words.extend([bits as u16, (bits >> 16) as u16]);
            }
        }
        words.resize(block * block_words(layout), 0);
    }
    words
}

/// Bytes of keys and values of one layer, with their scales.
pub fn layer_bytes(layout: &Layout) -> usize {
    layout.halves().len() * layout.blocks * block_words(layout) * 2
}

/// The numbers of a row of the first layer: a block, a token in it, a head of keys and values.
pub fn row(storage: &[u16], layout: &Layout, half: Half, (block, token, head): (u32, usize, usize)) -> Vec<f64> {
    let of = layout.of(half);
    if !layout.dtype.has_scales() {
        let first = layout.index(0, half, block, token, head);
        return storage[first..first + of.head_dim].iter().map(|bits| value(*bits)).collect();
    }
    let first = (half as usize * layout.blocks + block as usize) * block_words(layout);
    let at = token * of.token_stride() + head * of.head_stride();
    let scale = if has_block_scales(layout) {
        let at = first + layout.block_elements() / 2 + (head * layout.block_size + token) * 2;
        f32::from_bits(u32::from(storage[at]) | u32::from(storage[at + 1]) << 16)
    } else {
        1.0
    };
    let byte = |at: usize| storage[first + at / 2].to_le_bytes()[at % 2];
    (at..at + of.head_dim)
        .map(|at| f64::from(element::from_bits(layout.dtype, byte(at).into())) * f64::from(scale))
        .collect()
}

/// The number that a `bf16` is.
pub fn value(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

fn has_block_scales(layout: &Layout) -> bool {
    layout.dtype.has_scales() && !layout.dtype.has_static_scales()
}

/// What brings an element near 1.
fn unit(dtype: Dtype) -> f32 {
    if dtype == Dtype::I8 { 32.0 } else { 1.0 }
}

/// Words of 16 bits from a block to the next one of its plane.
fn block_words(layout: &Layout) -> usize {
    let scales = if has_block_scales(layout) { layout.kv_heads * layout.block_size * 2 } else { 0 };
    layout.block_elements() * layout.dtype.bytes() / 2 + scales.next_multiple_of(8)
}
