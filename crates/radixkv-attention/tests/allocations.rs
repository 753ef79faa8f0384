//! What a call allocates once its threads have computed one of its size.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use radixkv_attention::cpu::rayon_core::ThreadPoolBuilder;
use radixkv_attention::cpu::{Processor, Weights};
use radixkv_attention::{Backend, Batch, Dtype, Layout, Order, Output, Qkv, Scoring, Tables};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promises.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, at: *mut u8, memory: Memory) {
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(at, memory) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of 100 rounds after ten.
fn allocations(mut round: impl FnMut()) -> usize {
    (0..10).for_each(|_| round());
    let before = ALLOCATIONS.load(Relaxed);
    (0..100).for_each(|_| round());
    ALLOCATIONS.load(Relaxed) - before
}

// Holds: AT8.
#[test]
fn calls_allocate_nothing_after_the_first_ones() {
    let (kv_heads, head_dim, value_dim, dtype) = (2, 16, 16, Dtype::Bf16);
    let layout =
        Layout { layers: 1, blocks: 32, block_size: 16, kv_heads, head_dim, value_dim, dtype, order: Order::Nhd };
    // Long enough for threads to divide the context of one row among them.
    let slots: Vec<u64> = (490..500).collect();
    let blocks: Vec<u32> = (0..32).collect();
    let batch = Batch {
        query_heads: 4,
        scale: 0.25,
        scoring: Scoring::default(),
        tables: Tables { blocks: &blocks, offsets: &[0, 32] },
        contexts: &[500],
        rows: &[0, 10],
        save_kv: true,
        slots: &slots,
    };
    let one = Batch { rows: &[0, 1], slots: &slots[9..], ..batch };
    let (queries, keys, mut out) = ([0.5; 640], [0.5; 320], [0.0; 640]);
    let weights = Weights::from_f32(64, 100, &[0.5; 6400]);
    let mut products = [0.0; 300];
    // A pool's queue of calls grows by a block of memory now and then, more often while other
    // programs have the processors: the best of a few tries counts.
    for (threads, most, tries) in [(1, 0, 1), (2, 30, 5)] {
        let pool = Arc::new(ThreadPoolBuilder::new().num_threads(threads).build().expect("threads"));
        // All of them have begun: that allocates too.
        pool.broadcast(|_| ());
        let processor = Processor::with_pool(pool);
        let kv = processor.allocate(layout).expect("memory");
        let (chunk, decode) = (processor.prepare(&layout, &batch).expect("a batch"), processor.prepare(&layout, &one));
        let decode = decode.expect("a batch");
        let mut round = || {
            let new = Qkv { queries: &queries[..], keys: &keys[..], values: &keys[..] };
            processor.extend(&kv, 0, &chunk, new, Output { rows: &mut out, lse: None }).expect("a step");
            let rows = Output { rows: &mut out[..64], lse: None };
            processor.decode(&kv, 0, &decode, &queries[..64], rows).expect("a step");
            processor.multiply(&weights, &queries[..192], &mut products);
        };
        let counted = (0..tries).map(|_| allocations(&mut round)).min().expect("one try at least");
        assert!(counted <= most, "{counted} allocations in 300 calls on {threads} threads");
    }
}
