//! The process slots: which processes have the region open, so that what a killed one held is given back.
//!
//! A slot is a word: [`ProcessId::NONE`], or its owner. Edges: E5 in the documentation of the package.

use crate::{
    geometry::{Geometry, SLOTS},
    memory::Memory,
    process::ProcessId,
    sync::{AcqRel, Acquire, AtomicU64, Relaxed, Release},
};

/// The slots of a region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slots<'a> {
    memory: &'a Memory,
    geometry: &'a Geometry,
}

impl<'a> Slots<'a> {
    pub(crate) fn of(memory: &'a Memory, geometry: &'a Geometry) -> Self {
        Self { memory, geometry }
    }

    /// Takes a free slot.
    pub(crate) fn take(&self, own: ProcessId) -> Option<usize> {
        // Acquire: E5. Relaxed: a slot that is not free is left alone.
        (0..SLOTS).find(|slot| {
            self.word(*slot).compare_exchange(ProcessId::NONE.word(), own.word(), Acquire, Relaxed).is_ok()
        })
    }

    /// Takes over the slot of a dead process, so that what it held can be given back. Then it is the caller's to free.
    pub(crate) fn take_over(&self, slot: usize, own: ProcessId) -> bool {
        // Relaxed: a look, to be confirmed.
        let seen = self.word(slot).load(Relaxed);
        ProcessId::from_word(seen).is_dead(own)
            // Acquire: E5, for a recovery that was cut off. Release: margin, nothing was done yet.
            && self.word(slot).compare_exchange(seen, own.recovering().word(), AcqRel, Relaxed).is_ok()
    }

    /// Gives a slot back. What its owner held was given back before.
    pub(crate) fn free(&self, slot: usize) {
        // Release: E5.
        self.word(slot).store(ProcessId::NONE.word(), Release);
    }

    /// How many are taken.
    pub(crate) fn in_use(&self) -> usize {
        // Relaxed: a number to look at.
        (0..SLOTS).filter(|slot| self.word(*slot).load(Relaxed) != ProcessId::NONE.word()).count()
    }

    fn word(&self, slot: usize) -> &'a AtomicU64 {
        let at = self.geometry.slot(slot);
        &self.memory.words(at..at + 1)[0]
    }
}
