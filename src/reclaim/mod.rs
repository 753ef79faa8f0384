//! Memory of the index: when a pointer may be followed, and when its target is freed.
//!
//! A thread *pins* before it follows a pointer out of the index and holds the [`Guard`] while it uses what it found.
//! A node that is removed is first *unlinked* (no pointer in the index leads there any more), then *retired*, and
//! *reclaimed* when every thread that was pinned at that moment has unpinned. Blocks never wait for this: only runs, points and
//! maps go through it.
//!
//! Real builds use `crossbeam-epoch` with a collector of the cache's own, and `memory` for the nodes; model builds use `model`,
//! which frees as early as is legal, poisons what it frees and checks every access.
//!
//! # Invariants
//!
//! - **I1** A pointer stored in the index comes from [`Own::publish`] and is retired once, after it was unlinked.
//! - **I2** A [`Ref`] lives as long as what protects it: a guard pinned before the pointer was loaded, or a count that
//!   keeps the node from being retired (a lease or a child on a point, a child's count on its parent).
//! - **I3** A [`Link`] is stored only where I2 names such a count; `Link::get` is called only while that count lasts.
#![allow(unsafe_code)]

#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
mod epoch;
mod idle;
#[cfg_attr(any(radixkv_loom, radixkv_shuttle), allow(dead_code, reason = "one model uses it"))]
mod memory;
#[cfg(any(radixkv_loom, radixkv_shuttle))]
mod model;
mod node;
mod records;
mod rows;

#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
pub(crate) use epoch::{Domain, Guard, Local};
pub(crate) use idle::{Idle, Lent};
#[cfg(radixkv_loom)]
pub(crate) use memory::{Freed, Magazines, Memory};
#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub use model::track;
#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub(crate) use model::{Domain, Guard, Local};
pub(crate) use node::{Canary, Link, Node, Own, Ref, free_owned};
pub(crate) use records::{COUNTS, Record};
pub(crate) use rows::{ROW_COUNTS, Row, RowId};

use crossbeam_utils::CachePadded;

use crate::sync::gauge::{AtomicI64, Relaxed};

/// Counters that threads add to without contention.
const STRIPES: usize = 16;

/// Bytes of index memory allocated and not yet freed, garbage included.
#[derive(Debug)]
pub(crate) struct Bytes([CachePadded<AtomicI64>; STRIPES]);

impl Bytes {
    fn new() -> Self {
        Self(std::array::from_fn(|_| CachePadded::new(AtomicI64::new(0))))
    }

    fn add(&self, stripe: usize, bytes: usize) {
        // Relaxed: a gauge.
        self.0[stripe % STRIPES].fetch_add(bytes as i64, Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        // Relaxed: a gauge.
        self.0[0].fetch_sub(bytes as i64, Relaxed);
    }

    pub(crate) fn total(&self) -> usize {
        // Relaxed: a gauge.
        let sum: i64 = self.0.iter().map(|stripe| stripe.load(Relaxed)).sum();
        usize::try_from(sum).unwrap_or(0)
    }
}
