//! Epoch-based reclamation of the index's nodes: when a pointer may be followed, and when its
//! target is freed.
//!
//! A thread *pins* before it loads a pointer from the index and holds the [`Guard`] while it uses
//! the node. To remove a node, a thread first *unlinks* it (removes the last pointer to it from the
//! index), then *retires* it. The node is *reclaimed* when every thread that was pinned at that
//! moment has unpinned. Only the index's nodes are reclaimed this way; freed blocks never wait for
//! it.
//!
//! Real builds use `crossbeam-epoch` with one collector per cache, and `memory` for the nodes.
//! Model builds use `model`, which frees as early as allowed, poisons freed nodes and checks every
//! access.
//!
//! # Invariants
//!
//! - **I1** A pointer stored in the index comes from [`Own::publish`] and is retired once, after it
//!   was unlinked.
//! - **I2** A [`Ref`] does not outlive its protection: a guard pinned before the pointer was
//!   loaded, or a count that keeps the node from being retired (a lease or a child on a point, a
//!   child's count on its parent).
//! - **I3** `Link::get` is called only while the [`Link`]'s target is protected: as in I2, by
//!   `QUEUED`, or because only the caller, the evictor, retires it.
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

/// The total of freed bytes of index memory; the records count the allocated bytes.
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

    /// Allocated bytes that are not yet freed, garbage included.
    fn left_of(&self, records: &Records) -> usize {
        // Read before `allocated`, so that concurrent frees are not subtracted.
        let freed = self.total();
        records.allocated().saturating_sub(freed) as usize
    }
}
