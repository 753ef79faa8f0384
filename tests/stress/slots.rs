//! The memory that block ids name: what a lease must never see rewritten.
//!
//! A slot is filled between its reservation and its insert, with a stamp that says which prefix it
//! belongs to and how often it has been filled. A lease reads the stamps of its blocks when it
//! begins and just before it ends: a block that was recycled in between, even for the same prefix,
//! shows. The payload beside the stamp is plain memory, so that ThreadSanitizer reports a reader
//! and a filler that nothing orders; the atomics are relaxed so as to order nothing.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use radixkv::{BlockId, Token};

const GENERATION: u64 = u32::MAX as u64;

/// One block's memory.
#[derive(Default)]
struct Slot {
    /// Hash of the prefix above, fillings below.
    stamp: AtomicU64,
    payload: UnsafeCell<u64>,
    /// Reservations of the test's that hold it: several if they are forks.
    holders: AtomicUsize,
}

/// The memory of a cache's blocks.
pub struct Slots(Box<[Slot]>);

// SAFETY: a payload is written by the holder of the block's reservation and read under leases on
// the block; that these exclude each other is what is being tested.
unsafe impl Sync for Slots {}

impl Slots {
    pub fn new(capacity: usize) -> Self {
        Self((0..capacity).map(|_| Slot::default()).collect())
    }

    /// Notes that a reservation has `block`; no other reservation may.
    pub fn reserve(&self, block: BlockId) {
        let before = self.0[block as usize].holders.fetch_add(1, Relaxed);
        assert!(before == 0, "block {block} is in two reservations");
    }

    /// Notes that a fork holds `block` too.
    pub fn share(&self, block: BlockId) {
        let before = self.0[block as usize].holders.fetch_add(1, Relaxed);
        assert!(before > 0, "block {block} is forked and in no reservation");
    }

    /// Notes that a reservation is about to go.
    pub fn unreserve(&self, block: BlockId) {
        self.0[block as usize].holders.fetch_sub(1, Relaxed);
    }

    /// Fills a reserved block for the prefix of this hash.
    pub fn fill(&self, block: BlockId, prefix: u64) {
        let slot = &self.0[block as usize];
        let generation = (slot.stamp.load(Relaxed) + 1) & GENERATION;
        let stamp = (prefix & !GENERATION) | generation;
        slot.stamp.store(stamp, Relaxed);
        // SAFETY: the caller's reservation holds the block, so no other thread reads or writes it.
        unsafe { slot.payload.get().write(stamp) };
    }

    /// The stamp of a leased block.
    pub fn read(&self, block: BlockId) -> u64 {
        let slot = &self.0[block as usize];
        let stamp = slot.stamp.load(Relaxed);
        // SAFETY: the caller's lease protects the block, so no thread writes it.
        let payload = unsafe { slot.payload.get().read() };
        assert!(stamp == payload, "block {block} was being filled while leased");
        stamp
    }

    /// Whether `stamp` was made for the prefix of this hash.
    pub fn is_of(stamp: u64, prefix: u64) -> bool {
        stamp & !GENERATION == prefix & !GENERATION
    }
}

/// Hashes of the prefixes that end with each whole block of `tokens`, told apart by namespace.
pub fn prefixes(name: usize, tokens: &[Token], block_size: usize) -> Vec<u64> {
    let mut hash = mix(name as u64 + 1);
    let blocks = tokens.chunks_exact(block_size).map(|block| {
        hash = block.iter().fold(hash, |hash, &token| mix(hash ^ u64::from(token) ^ 0x5bd1_e995 << 32));
        hash
    });
    blocks.collect()
}

/// Spreads every bit of `x` over the result.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
