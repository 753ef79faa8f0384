//! Decoding on a pool of threads, beside a thread that appends to other blocks of the same storage,
//! and beside one that breaks the rule and appends to those that are read: wrong numbers at worst.
//!
//! `ci/tsan.sh` runs it with ThreadSanitizer, without the pool: that waits by locks of the prebuilt
//! standard library, which ThreadSanitizer does not see. There two threads call.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use radixkv_attention::cpu::{CpuKv, Processor};
use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Scoring, Tables};

const BLOCK_SIZE: usize = 16;
const TOKENS: usize = 150;

/// A sequence in the blocks from `first` on: its last `rows` rows.
fn with_batch<R>(first: u32, rows: usize, run: impl FnOnce(&Batch<'_>) -> R) -> R {
    let blocks: Vec<u32> = (first..first + TOKENS.div_ceil(BLOCK_SIZE) as u32).collect();
    let slots: Vec<u64> =
        (TOKENS - rows..TOKENS).map(|token| u64::from(first) * BLOCK_SIZE as u64 + token as u64).collect();
    run(&Batch {
        query_heads: 4,
        scale: 0.25,
        scoring: Scoring::default(),
        tables: Tables { blocks: &blocks, offsets: &[0, blocks.len() as u32] },
        contexts: &[TOKENS as u32],
        rows: &[0, rows as u32],
        save_kv: true,
        slots: &slots,
    })
}

fn append(on: &Processor, kv: &CpuKv, first: u32, value: f32) {
    let prepared = with_batch(first, TOKENS, |batch| on.prepare(kv.layout(), batch)).expect("a good batch");
    let rows = vec![value; TOKENS * kv.layout().row_elements()];
    on.append(kv, 0, &prepared, &rows, &rows).expect("rows");
}

fn decode(on: &Processor, kv: &CpuKv, first: u32) -> Vec<f32> {
    let prepared = with_batch(first, 1, |batch| on.prepare(kv.layout(), batch)).expect("a good batch");
    let mut out = vec![0.0; 4 * 16];
    on.decode(kv, 0, &prepared, &[0.5; 4 * 16], Output { rows: &mut out, lse: None }).expect("a good step");
    out
}

// Holds: AT9.
#[test]
fn decoding_beside_appending_reads_what_was_there() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::I8, Dtype::E4m3] {
        let (block_size, kv_heads, head_dim, value_dim, order) = (BLOCK_SIZE, 2, 16, 16, Order::Nhd);
        let layout = Layout { layers: 1, blocks: 32, block_size, kv_heads, head_dim, value_dim, dtype, order };
        let one = Processor::new();
        let two = if cfg!(radixkv_tsan) { Processor::new() } else { Processor::with_threads(2).expect("threads") };
        let kv = one.allocate(layout).expect("memory");
        append(&one, &kv, 0, 1.0);
        append(&one, &kv, 10, 1.0);
        let expected = decode(&one, &kv, 0);
        // The scale of a row of zeros is one: it may stand beside the largest element of another
        // row.
        let most = if dtype == Dtype::E4m3 { 448.0 } else { 2.01 };
        let done = AtomicBool::new(false);
        let read = || {
            assert_eq!(decode(&two, &kv, 0), expected, "{dtype}");
            let torn = decode(&two, &kv, 10);
            assert!(torn.iter().all(|value| (0.0..=most).contains(value)), "{dtype}: {torn:?}");
        };
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // Blocks that no thread reads, and blocks that one reads without a lease.
                for round in 0..200 {
                    append(&one, &kv, 20, round as f32);
                    append(&one, &kv, 10, (round % 3) as f32);
                }
                done.store(true, Relaxed);
            });
            let reader = scope.spawn(|| {
                while !done.load(Relaxed) {
                    read();
                }
            });
            while !done.load(Relaxed) {
                read();
            }
            // By hand: ThreadSanitizer sees these joins, and not those of a scope.
            [writer, reader].into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
    }
}
