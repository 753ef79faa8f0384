//! Counts of blocks per namespace and per process, which are compared with quotas.
//!
//! The *charge* of an entry says which namespace and which process count its block, and in which
//! epoch. A block is counted before its entry is claimed, and its entry loses its charge before it
//! is given back. A put that has reached a quota is not counted: it evicts a block and takes over
//! its charge. So a count exceeds a quota only if the quota was lowered.
//!
//! A killed process leaves counts that are one too large or too small. The process that recovers it
//! begins an epoch, in which every count begins at 0 (`count`), and moves the charge of each entry
//! to that epoch, which counts its block again. A put that writes a charge looks at the epoch
//! afterwards, and moves the charge itself if the epoch is over: either the put or the recovering
//! process sees what the other one wrote (E8). So the new counts are exact, whatever other
//! processes do meanwhile and wherever they are stopped.

use super::{count::Count, table::Table};
use crate::{
    entry::{Claimed, Entry, PARENT},
    geometry::{NAMESPACES, SLOTS},
    layout::Keys,
    process,
    region::Region,
    state::Kind,
    sync::{AcqRel, Acquire, AtomicU64, Relaxed, Release, SeqCst, fence},
};

/// Words of a process slot after its owner: the counters.
const LIFE: usize = 1;
const BLOCKS: usize = 2;
const HITS: usize = 3;
const MISSES: usize = 4;
const STORED: usize = 5;
const OPENED: usize = 6;
const UNMOVED: usize = 7;

/// Bits of an owner that hold its slot.
const SLOT_BITS: u32 = 8;

const NAMESPACE: u64 = 0xffff;
const SLOT_AT: u32 = 16;
const SLOT: u64 = 0xff;
const EPOCH_AT: u32 = 24;
const EPOCH: u64 = 0xffff;
const LIFE_AT: u32 = 40;

/// Two answers: one for the namespace of a block, one for its process.
pub(crate) type Both = [bool; 2];

/// Which namespace and which process count a block, and in which epoch, as one word: namespace in
/// bits 0 to 15 (0: no charge), slot in 16 to 23, epoch in 24 to 39, life of the slot in 40 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Charge(u64);

/// The counts of an evicted block that a put takes over.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Kept {
    pub(crate) by: Charge,
    pub(crate) counts: Both,
}

/// The counters of a process. Only that process adds to them, except to the number of its blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account<'a>(&'a [AtomicU64]);

impl Charge {
    fn new(namespace: u64, slot: usize, epoch: u64, life: u64) -> Self {
        let slot = (slot as u64 & SLOT) << SLOT_AT;
        Self(namespace & NAMESPACE | slot | (epoch & EPOCH) << EPOCH_AT | life << LIFE_AT)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    fn namespace(self) -> u64 {
        self.0 & NAMESPACE
    }

    fn slot(self) -> usize {
        (self.0 >> SLOT_AT & SLOT) as usize
    }

    fn epoch(self) -> u64 {
        self.0 >> EPOCH_AT & EPOCH
    }

    fn life(self) -> u64 {
        self.0 >> LIFE_AT
    }

    fn in_epoch(self, epoch: u64) -> Self {
        Self::new(self.namespace(), self.slot(), epoch, self.life())
    }
}

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

    /// The charge of the next block that this process puts into a namespace.
    pub(crate) fn charge_of(&self, namespace: u64) -> Charge {
        // Acquire: as in `Count::current`.
        Charge::new(namespace, self.slot, self.epoch().load(Acquire), self.account(self.slot).life())
    }

    /// Counts a block, unless its namespace and its process have reached their quotas. Returns
    /// which have. A quota of 0 means no limit.
    pub(crate) fn charge(&self, charge: Charge, quotas: [u64; 2]) -> Both {
        let is_below = |blocks: i64, quota: u64| quota == 0 || blocks < quota.min(i64::MAX as u64) as i64;
        self.each(charge, quotas)
            .map(|(count, quota)| !count.is_some_and(|count| count.add(1, |blocks| is_below(blocks, quota))))
    }

    /// Counts one block less in a namespace or a process that exceeds its quota. The caller then
    /// evicts a block and takes over its charge.
    pub(crate) fn uncharge_excess(&self, charge: Charge, quotas: [u64; 2]) -> Both {
        let is_above = |blocks: i64, quota: u64| quota != 0 && blocks > quota.min(i64::MAX as u64) as i64;
        self.each(charge, quotas)
            .map(|(count, quota)| count.is_some_and(|count| count.add(-1, |blocks| is_above(blocks, quota))))
    }

    /// Adds to counts.
    pub(crate) fn adjust(&self, charge: Charge, which: Both, difference: i64) {
        for (count, _) in self.each(charge, which).into_iter().filter(|(_, is_meant)| *is_meant) {
            count.map(|count| count.add(difference, |_| true));
        }
    }

    /// Removes the charge of an entry that this process has claimed, and counts its block no more,
    /// except where the caller takes over the charge.
    pub(crate) fn uncharge(&self, claimed: &Claimed<'_>, kept: Kept) {
        if self.layout.keys != Keys::Digests {
            return;
        }
        let entry = claimed.entry();
        let word = entry.charge();
        // Acquire: as in `move_charge`, which may change it meanwhile.
        let mut charge = Charge(word.load(Acquire));
        while charge.word() != 0 {
            match word.compare_exchange(charge.word(), 0, AcqRel, Acquire) {
                Ok(_) => break,
                Err(now) => charge = Charge(now),
            }
        }
        let is_same = charge.namespace() != 0 && charge.epoch() == kept.by.epoch();
        self.adjust(charge, kept.counts.map(|is_kept| !(is_kept && is_same)), -1);
        if !is_same {
            self.adjust(kept.by, kept.counts, 1);
        }
    }

    /// Counts the blocks of namespaces and processes again, after a process was killed.
    pub(crate) fn recount(&self) {
        if self.layout.keys != Keys::Digests {
            return;
        }
        // Release: a process that sees the epoch in a count or a charge sees it here. Acquire:
        // margin.
        let epoch = self.epoch().fetch_add(1, AcqRel).wrapping_add(1);
        // SeqCst: E8.
        fence(SeqCst);
        for entry in (0..self.geometry.entries).map(|number| self.entry(number)) {
            self.move_charge(&entry);
        }
        let namespaces = (1..=NAMESPACES as u64).filter_map(|number| self.count_of_namespace(number, epoch));
        let processes = (0..SLOTS).map(|slot| self.count_of_process(slot, epoch, self.account(slot).life()));
        namespaces.chain(processes).for_each(|count| count.finish());
    }

    /// Begins the count of this process's blocks. A count stores only 14 bits of a life: it must not
    /// stay as it is until a later life has the same bits.
    pub(crate) fn begin_count(&self) {
        self.count_of_process(self.slot, self.epoch().load(Acquire), self.account(self.slot).life()).finish();
    }

    /// Moves the charge of an entry to the current epoch, if a process has begun one since.
    pub(crate) fn moved_since_charged(&self, entry: &Entry<'_>) {
        // SeqCst: E8.
        fence(SeqCst);
        self.move_charge(entry);
    }

    fn move_charge(&self, entry: &Entry<'_>) {
        let word = entry.charge();
        loop {
            // Acquire: the epoch that is loaded next is not older than that of the charge.
            let seen = Charge(word.load(Acquire));
            let charge = seen.in_epoch(self.epoch().load(Acquire));
            if seen.namespace() == 0 || charge == seen {
                return;
            }
            // Release: as above. Acquire: margin. If it fails, another process has moved or removed it.
            if word.compare_exchange(seen.word(), charge.word(), AcqRel, Relaxed).is_ok() {
                for (count, _) in self.each(charge, [(); 2]) {
                    if let Some(count) = count {
                        count.add_moved();
                    }
                }
                return;
            }
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

    /// The two counts of a charge, each with its part of `with`.
    fn each<T>(&self, charge: Charge, [of_namespace, of_process]: [T; 2]) -> [(Option<Count<'_>>, T); 2] {
        let is_charged = charge.namespace() != 0 && charge.slot() < SLOTS && self.is_of_life(charge);
        let process = is_charged.then(|| self.count_of_process(charge.slot(), charge.epoch(), charge.life()));
        [(self.count_of_namespace(charge.namespace(), charge.epoch()), of_namespace), (process, of_process)]
    }

    /// Whether the process that stored the block still owns its slot. A count has too few bits to
    /// tell all lives apart.
    fn is_of_life(&self, charge: Charge) -> bool {
        Charge::new(0, 0, 0, self.account(charge.slot()).life()).life() == charge.life()
    }

    /// The number of a namespace's blocks, in an epoch.
    pub(crate) fn count_of_namespace(&self, number: u64, epoch: u64) -> Option<Count<'_>> {
        let [blocks, unmoved] = self.table().blocks(number)?;
        Some(Count { blocks, unmoved, epoch: self.epoch(), life: None, of: [epoch, 0] })
    }

    /// The number of blocks of the process that has a slot in one of its lives, in an epoch.
    pub(crate) fn count_of_process(&self, slot: usize, epoch: u64, life: u64) -> Count<'_> {
        let account = self.account(slot).0;
        let [blocks, unmoved] = [&account[BLOCKS], &account[UNMOVED]];
        Count { blocks, unmoved, epoch: self.epoch(), life: Some(&account[LIFE]), of: [epoch, life] }
    }
}

impl<'a> Account<'a> {
    /// Resets the counters for the process that has taken the slot. The new life number separates
    /// its blocks, and their count, from those of the slot's previous owner.
    pub(crate) fn begin(&self) {
        // Release: as in `recount`.
        self.0[LIFE].store(self.life().wrapping_add(1), Release);
        for (field, value) in [(HITS, 0), (MISSES, 0), (STORED, 0), (OPENED, process::now())] {
            self.0[field].store(value, Relaxed);
        }
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

    /// How many processes have had the slot.
    pub(crate) fn life(&self) -> u64 {
        // Acquire: as in `Count::current`.
        self.0[LIFE].load(Acquire)
    }

    fn owner(&self, slot: usize) -> u64 {
        self.life() << SLOT_BITS | slot as u64
    }
}
