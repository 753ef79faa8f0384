//! Memory of the index: when a pointer may be followed, and when its target is freed.
//!
//! A thread *pins* before it follows a pointer out of the index and holds the [`Guard`] while it
//! uses what it found. A node that is removed is first *unlinked* (no pointer in the index leads
//! there any more), then *retired*, and *reclaimed* when every thread that was pinned at that
//! moment has unpinned. Blocks never wait for this: only runs, points and maps go through it.
//!
//! Real builds use `crossbeam-epoch` with a collector of the cache's own, and `memory` for the
//! nodes; model builds use `model`, which frees as early as is legal, poisons what it frees and
//! checks every access.
//!
//! # Invariants
//!
//! - **I1** A pointer stored in the index comes from [`Own::publish`] and is retired once, after it
//!   was unlinked.
//! - **I2** A [`Ref`] lives as long as what protects it: a guard pinned before the pointer was
//!   loaded, or a count that keeps the node from being retired (a lease or a child on a point, a
//!   child's count on its parent).
//! - **I3** A [`Link`] is stored only where I2 names such a count; `Link::get` is called only while
//!   that count lasts.
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
use records::Records;

use crate::sync::gauge::{AtomicU64, Relaxed};

/// Bytes of index memory that were freed; what was allocated is in the records.
#[derive(Debug)]
pub(crate) struct FreedBytes(CachePadded<AtomicU64>);

impl FreedBytes {
    fn new() -> Self {
        Self(CachePadded::new(AtomicU64::new(0)))
    }

    fn add(&self, bytes: usize) {
        // Relaxed: a gauge.
        self.0.fetch_add(bytes as u64, Relaxed);
    }

    fn total(&self) -> u64 {
        // Relaxed: a gauge.
        self.0.load(Relaxed)
    }

    /// Bytes that are allocated and not yet freed, garbage included.
    fn left_of(&self, records: &Records) -> usize {
        // Read first, so that what is freed meanwhile is no part of it.
        let freed = self.total();
        records.allocated().saturating_sub(freed) as usize
    }
}
