//! Counts of blocks per namespace and per process, which are compared with quotas.
//!
//! A block is charged before its entry is claimed, and uncharged before its entry is given back. A
//! put that has reached a quota is not charged: it evicts a block and takes over its charge. So a
//! count exceeds a quota only if the quota was lowered. A process that is killed in between leaves a count that is one too large or too small; the process
//! that recovers it counts again. This recount misses a put in flight that is charged but has no
//! entry yet: the count is then one too small until the next recount.

use super::table::Table;
use crate::{
    entry::{Claimed, Entry, NAMESPACE, PARENT},
    geometry::{NAMESPACES, SLOTS},
    layout::Keys,
    process,
    region::Region,
    state::Kind,
    sync::{AtomicU64, Relaxed},
};

/// Words of a process slot after its owner: the counters.
const LIFE: usize = 1;
const BLOCKS: usize = 2;
const HITS: usize = 3;
const MISSES: usize = 4;
const STORED: usize = 5;
const OPENED: usize = 6;

/// Bits of an owner that hold its slot.
const SLOT_BITS: u32 = 8;

/// Two answers: one for the namespace of a block, one for its process.
pub(crate) type Both = [bool; 2];

/// The counters of a process. Only that process adds to them, except to the number of its blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account<'a>(&'a [AtomicU64]);

impl Region {
    /// The table of namespaces.
    pub(crate) fn table(&self) -> Table<'_> {
        Table::of(&self.memory, &self.geometry)
    }

    /// The counters of the process in a slot.
    pub(crate) fn account(&self, slot: usize) -> Account<'_> {
        Account(self.memory.words(self.geometry.slot_line(slot)))
    }

    /// The owner of the blocks that this process stores.
    pub(crate) fn owner(&self) -> u64 {
        self.account(self.slot).owner(self.slot)
    }

    /// Charges a block to its namespace and to this process, unless they have reached their quotas.
    /// Returns which have. A quota of 0 means no limit.
    pub(crate) fn charge(&self, namespace: u64, quotas: [u64; 2]) -> Both {
        let is_below = |blocks: i64, quota: u64| quota == 0 || blocks < quota.min(i64::MAX as u64) as i64;
        self.counters(namespace, quotas).map(|(blocks, quota)| !add_if(blocks, 1, |blocks| is_below(blocks, quota)))
    }

    /// Uncharges a block from its namespace or from this process if that exceeds its quota. The
    /// caller then evicts a block and keeps its charge.
    pub(crate) fn uncharge_excess(&self, namespace: u64, quotas: [u64; 2]) -> Both {
        let is_above = |blocks: i64, quota: u64| quota != 0 && blocks > quota.min(i64::MAX as u64) as i64;
        self.counters(namespace, quotas).map(|(blocks, quota)| add_if(blocks, -1, |blocks| is_above(blocks, quota)))
    }

    /// Adds to the counts of a namespace and of this process without a block that got an entry.
    pub(crate) fn adjust(&self, namespace: u64, which: Both, difference: i64) {
        for (blocks, _) in self.counters(namespace, which).into_iter().filter(|(_, is_meant)| *is_meant) {
            add_if(blocks, difference, |_| true);
        }
    }

    /// Uncharges the block of an entry that this process has claimed, if it was charged, except for
    /// the charges in `kept`, which the caller takes over.
    pub(crate) fn uncharge(&self, claimed: &Claimed<'_>, kept: Both) {
        let entry = claimed.entry();
        if self.layout.keys == Keys::Digests && entry.namespace() != 0 {
            let of_process = self.slot_of(entry.read(PARENT)).map(|slot| self.account(slot).blocks());
            let counters = [self.table().blocks(entry.namespace()), of_process];
            for (blocks, _) in counters.into_iter().zip(kept).filter(|(_, is_kept)| !is_kept) {
                add_if(blocks, -1, |_| true);
            }
            entry.field(NAMESPACE).store(0, Relaxed);
        }
    }

    /// Counts the blocks of namespaces and processes again, after a process was killed.
    pub(crate) fn recount(&self) {
        if self.layout.keys != Keys::Digests {
            return;
        }
        let counters = || {
            let namespaces = (1..=NAMESPACES as u64).filter_map(|number| self.table().blocks(number));
            namespaces.chain((0..SLOTS).map(|slot| self.account(slot).0.get(BLOCKS).expect("a line")))
        };
        let lives = || (0..SLOTS).map(|slot| self.account(slot).0[LIFE].load(Relaxed));
        let lived: Vec<u64> = lives().collect();
        let before: Vec<u64> = counters().map(|blocks| blocks.load(Relaxed)).collect();
        let mut counted = vec![0_u64; before.len()];
        for entry in (0..self.geometry.entries).map(|number| self.entry(number)) {
            if let Some((namespace, slot)) = self.charged(&entry) {
                counted[namespace - 1] += 1;
                if let Some(slot) = slot {
                    counted[NAMESPACES + slot] += 1;
                }
            }
        }
        // Only the difference is added: blocks that others charge meanwhile stay charged.
        let changed: Vec<bool> = lives().zip(lived).map(|(now, before)| now != before).collect();
        for (at, (blocks, (before, counted))) in counters().zip(before.into_iter().zip(counted)).enumerate() {
            // Another process has taken the slot, and its count began at 0.
            if at.checked_sub(NAMESPACES).is_some_and(|slot| changed[slot]) {
                continue;
            }
            blocks.fetch_add(counted.wrapping_sub(before), Relaxed);
        }
    }

    /// The namespace of an entry with a block, and the slot of its owner, if that process still
    /// owns the slot.
    pub(crate) fn charged(&self, entry: &Entry<'_>) -> Option<(usize, Option<usize>)> {
        if !matches!(entry.look().kind(), Kind::Ready | Kind::Writing) {
            return None;
        }
        let namespace = usize::try_from(entry.namespace()).ok().filter(|number| (1..=NAMESPACES).contains(number))?;
        Some((namespace, self.slot_of(entry.read(PARENT))))
    }

    /// The slot of an owner, if the same process still owns the slot.
    fn slot_of(&self, owner: u64) -> Option<usize> {
        let slot = (owner & ((1 << SLOT_BITS) - 1)) as usize;
        (slot < SLOTS && self.account(slot).owner(slot) == owner).then_some(slot)
    }

    /// The counts of a namespace and of this process, each with its part of `with`.
    fn counters<T>(&self, namespace: u64, [of_namespace, of_process]: [T; 2]) -> [(Option<&AtomicU64>, T); 2] {
        let blocks = self.account(self.slot).blocks();
        [(self.table().blocks(namespace), of_namespace), (Some(blocks), of_process)]
    }
}

/// Adds to a count if it satisfies a condition. A count is negative only after a kill.
fn add_if(blocks: Option<&AtomicU64>, difference: i64, is_meant: impl Fn(i64) -> bool) -> bool {
    let Some(blocks) = blocks else { return false };
    // Relaxed, both: numbers that are only compared with a quota.
    let mut seen = blocks.load(Relaxed);
    while is_meant(seen as i64) {
        match blocks.compare_exchange(seen, seen.wrapping_add_signed(difference), Relaxed, Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

impl<'a> Account<'a> {
    /// Resets the counters for the process that has taken the slot. The new life number separates
    /// its blocks from those of the slot's previous owner.
    pub(crate) fn begin(&self) {
        let life = self.0[LIFE].load(Relaxed).wrapping_add(1);
        self.0[LIFE].store(life, Relaxed);
        for (field, value) in [(BLOCKS, 0), (HITS, 0), (MISSES, 0), (STORED, 0), (OPENED, process::now())] {
            self.0[field].store(value, Relaxed);
        }
    }

    pub(crate) fn blocks(&self) -> &'a AtomicU64 {
        &self.0[BLOCKS]
    }

    /// Adds hits, misses and stored blocks.
    pub(crate) fn add(&self, hits: u64, misses: u64, stored: u64) {
        for (field, more) in [(HITS, hits), (MISSES, misses), (STORED, stored)] {
            if more > 0 {
                self.0[field].fetch_add(more, Relaxed);
            }
        }
    }

    /// Hits, misses, stored blocks, and when the process opened the region, in milliseconds since
    /// the boot.
    pub(crate) fn read(&self) -> [u64; 4] {
        [HITS, MISSES, STORED, OPENED].map(|field| self.0[field].load(Relaxed))
    }

    fn owner(&self, slot: usize) -> u64 {
        self.0[LIFE].load(Relaxed) << SLOT_BITS | slot as u64
    }
}
