//! The process slots: they record which processes have the region open, so that the entries of
//! killed ones can be recovered. `region` takes and recovers slots; `process` and `locks` detect
//! death.
//!
//! A slot is one word: [`ProcessId::NONE`], or the id of its owner. If the region is in a file, the
//! owner also locks one byte of the file, whose offset is the slot's number, from before the word
//! is written until after it is cleared. Then only the lock says whether the owner lives: a process
//! that replaced itself (`exec`) keeps its id and loses its locks. Otherwise its pid does. A forked
//! child shares its parent's locks, and a lock that this process holds can be taken again, so
//! neither a child nor the owner of a slot may try the slot's lock. The edge E5 is defined in the
//! documentation of the package.

use std::fs::File;

use crate::{
    geometry::{Geometry, SLOTS},
    locks::{Lock, try_lock, unlock},
    memory::Memory,
    process::ProcessId,
    sync::{AcqRel, Acquire, AtomicU64, Relaxed, Release},
};

/// The slots of a region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slots<'a> {
    memory: &'a Memory,
    geometry: &'a Geometry,
    /// The file, if the region is in one.
    file: Option<&'a File>,
}

impl<'a> Slots<'a> {
    pub(crate) fn of(memory: &'a Memory, geometry: &'a Geometry, file: Option<&'a File>) -> Self {
        Self { memory, geometry, file }
    }

    /// Takes a free slot.
    pub(crate) fn take(&self, own: ProcessId) -> Option<usize> {
        // Relaxed: only a hint; the compare-and-swap confirms it.
        let mut free = (0..SLOTS).filter(|slot| self.word(*slot).load(Relaxed) == ProcessId::NONE.word());
        free.find(|slot| {
            let owner = match self.lock(*slot) {
                Lock::Held => own.locked(),
                Lock::Taken => return false,
                Lock::Unsupported => own,
            };
            // Acquire: E5. Relaxed: nothing is done with a slot that is not free.
            let taken =
                self.word(*slot).compare_exchange(ProcessId::NONE.word(), owner.word(), Acquire, Relaxed).is_ok();
            if !taken {
                self.unlock(*slot);
            }
            taken
        })
    }

    /// Takes over the slot of a dead process, so that its entries can be given back. The caller
    /// then frees the slot, which is not its own. Only one thread of a process may call this at a
    /// time, and no forked child: locks do not tell them apart.
    pub(crate) fn take_over(&self, slot: usize, own: ProcessId) -> bool {
        // Relaxed: only a hint; the compare-and-swap confirms it.
        let seen = self.word(slot).load(Relaxed);
        let owner = ProcessId::from_word(seen);
        let new = if owner == ProcessId::NONE {
            return false;
        } else if owner.is_locked() {
            if self.lock(slot) != Lock::Held {
                return false;
            }
            own.recovering().locked()
        } else if !owner.is_of(own) && owner.is_dead(own) {
            own.recovering()
        } else {
            return false;
        };
        // Acquire: E5, for an interrupted recovery. Release: margin, nothing was done yet.
        let taken = self.word(slot).compare_exchange(seen, new.word(), AcqRel, Relaxed).is_ok();
        if !taken {
            self.unlock(slot);
        }
        taken
    }

    /// Frees a slot, after the caller has given back its entries.
    pub(crate) fn free(&self, slot: usize) {
        // Release: E5.
        self.word(slot).store(ProcessId::NONE.word(), Release);
        self.unlock(slot);
    }

    /// The pid of a slot's owner, and whether it is dead. `may_lock` says that the slot is not the
    /// caller's own, no other thread of this process is recovering, and the process is not a forked
    /// child; without it an owner with a lock counts as alive.
    pub(crate) fn owner(&self, slot: usize, own: ProcessId, may_lock: bool) -> Option<(u32, bool)> {
        // Relaxed: only reported.
        let owner = ProcessId::from_word(self.word(slot).load(Relaxed));
        if owner == ProcessId::NONE {
            return None;
        }
        let is_dead = if owner.is_locked() {
            let is_free = may_lock && self.lock(slot) == Lock::Held;
            if is_free {
                self.unlock(slot);
            }
            is_free
        } else {
            !owner.is_of(own) && owner.is_dead(own)
        };
        Some((owner.pid(), is_dead))
    }

    /// How many slots are in use.
    pub(crate) fn in_use(&self) -> usize {
        // Relaxed: only reported.
        (0..SLOTS).filter(|slot| self.word(*slot).load(Relaxed) != ProcessId::NONE.word()).count()
    }

    fn word(&self, slot: usize) -> &'a AtomicU64 {
        let at = self.geometry.slot(slot);
        &self.memory.words(at..at + 1)[0]
    }

    fn lock(&self, slot: usize) -> Lock {
        self.file.map_or(Lock::Unsupported, |file| try_lock(file, slot))
    }

    fn unlock(&self, slot: usize) {
        if let Some(file) = self.file {
            unlock(file, slot);
        }
    }
}
