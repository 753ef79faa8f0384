//! A workload that targets the weak points of a cache.

use super::{
    band::{BAND_BLOCK_SIZE, Band},
    rng::Rng,
    trace_builder::TraceBuilder,
};
use crate::request::{Segment, Trace};

const COLD_PREFIXES: usize = 8;
const COLD_COPIES: usize = 16;
const COLD: u32 = 8192;
const COLD_TAIL: u32 = 64;

const LAST_TOKEN_BASE: u32 = 1024;
const LAST_TOKEN_VARIANTS: usize = 256;
const BLOCK: u32 = BAND_BLOCK_SIZE as u32;

const NESTED_STEPS: u32 = 128;

const HOLDERS: usize = 32;
const HOLDER: u32 = 24_576;

/// Four kinds of requests: many that need the same cold prefix at once; prompts that differ in the
/// last token of a block; prompts that are prefixes of each other, in random order; and a few
/// requests far larger than the others, whose leases hold most blocks.
pub(super) fn adversarial(seed: u64) -> Trace {
    let (mut rng, mut builder) = (Rng::new(seed, 11), TraceBuilder::default());
    let mut now = 0.0;
    for _ in 0..COLD_PREFIXES {
        now += 1.0;
        let prefix = builder.fresh(COLD);
        for _ in 0..COLD_COPIES {
            let tail = builder.fresh(COLD_TAIL);
            builder.request(now, &[prefix, tail], 16);
        }
    }
    let base = builder.fresh(LAST_TOKEN_BASE + BLOCK - 1);
    for _ in 0..LAST_TOKEN_VARIANTS {
        now += 1.0;
        let last = builder.fresh(1);
        builder.request(now, &[base, last], 16);
    }
    nested(&mut builder, &mut rng, &mut now);
    for _ in 0..HOLDERS {
        now += 1.0;
        let whole = builder.fresh(HOLDER);
        builder.request(now, &[whole], 16);
    }
    builder.build()
}

/// Adds a request for every prefix of a whole number of blocks, in random order.
fn nested(builder: &mut TraceBuilder, rng: &mut Rng, now: &mut f64) {
    let id = builder.fresh_id();
    let mut lengths: Vec<u32> = (1..=NESTED_STEPS).map(|step| step * BLOCK).collect();
    rng.shuffle(&mut lengths);
    for length in lengths {
        *now += 1.0;
        builder.request(*now, &[Segment::Hashed { id, len: length }], 16);
    }
}

/// The exact rate, for any order: every block is hit, except the first time.
pub(super) fn adversarial_band() -> Band {
    let cold = (COLD_PREFIXES * COLD_COPIES) as f64;
    let variants = LAST_TOKEN_VARIANTS as f64;
    let nested = f64::from(NESTED_STEPS * (NESTED_STEPS + 1) / 2 * BLOCK);
    let prompts = cold * f64::from(COLD + COLD_TAIL)
        + variants * f64::from(LAST_TOKEN_BASE + BLOCK)
        + nested
        + HOLDERS as f64 * f64::from(HOLDER);
    let hits = (cold - COLD_PREFIXES as f64) * f64::from(COLD) + (variants - 1.0) * f64::from(LAST_TOKEN_BASE) + nested
        - f64::from(NESTED_STEPS * BLOCK);
    Band::of_tokens(hits, prompts, 0.0).widened(1e-9)
}
