//! Load that aims at the cache's weak points.

use super::{Band, Maker, Segment, Trace, dice::Dice};

const COLD_PREFIXES: usize = 8;
const COLD_COPIES: usize = 16;
const COLD: u32 = 8192;
const COLD_TAIL: u32 = 64;

const LAST_TOKEN_BASE: u32 = 1024;
const LAST_TOKEN_VARIANTS: usize = 256;
const BLOCK: u32 = super::BAND_BLOCK_SIZE as u32;

const NESTED_STEPS: u32 = 128;

const HOLDERS: usize = 32;
const HOLDER: u32 = 24_576;

/// Cold prefixes that many ask for at once, prompts that differ in a block's last token, prompts that are prefixes of
/// each other in random order, and a few requests that are far larger than the others: their leases hold most blocks.
pub(super) fn adversarial(seed: u64) -> Trace {
    let (mut dice, mut maker) = (Dice::new(seed, 11), Maker::default());
    let mut now = 0.0;
    for _ in 0..COLD_PREFIXES {
        now += 1.0;
        let prefix = maker.fresh(COLD);
        for _ in 0..COLD_COPIES {
            let tail = maker.fresh(COLD_TAIL);
            maker.request(now, &[prefix, tail], 16);
        }
    }
    let base = maker.fresh(LAST_TOKEN_BASE + BLOCK - 1);
    for _ in 0..LAST_TOKEN_VARIANTS {
        now += 1.0;
        let last = maker.fresh(1);
        maker.request(now, &[base, last], 16);
    }
    nested(&mut maker, &mut dice, &mut now);
    for _ in 0..HOLDERS {
        now += 1.0;
        let whole = maker.fresh(HOLDER);
        maker.request(now, &[whole], 16);
    }
    maker.trace
}

/// Every prefix of a whole number of blocks, in random order.
fn nested(maker: &mut Maker, dice: &mut Dice, now: &mut f64) {
    let id = maker.fresh_id();
    let mut lengths: Vec<u32> = (1..=NESTED_STEPS).map(|step| step * BLOCK).collect();
    dice.shuffle(&mut lengths);
    for length in lengths {
        *now += 1.0;
        maker.request(*now, &[Segment::Hashed { id, len: length }], 16);
    }
}

/// Exact whatever the order: every block but the first sight of it is hit.
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
