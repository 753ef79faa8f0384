//! Sizes of slots: four to a doubling, so that a slot is at most a quarter larger than what lies in
//! it.

use std::alloc::Layout;

use crate::sync::model_size;

/// Larger nodes, the arrays of long runs, come from the global allocator.
const LARGEST: usize = 4096;
/// What every slot is a multiple of, and aligned to.
const GRAIN: usize = 16;
/// Up to here the sizes are [`GRAIN`] apart.
const FINE: usize = 64;
const STEPS: usize = 4;

/// Bytes of slots that a magazine is filled with at most, and how many slots.
const LOAD: usize = 16 << 10;
const SLOTS: usize = model_size(64, 1);
/// A chain that is kept whole has so many slots at least.
const SHORTEST: usize = 2;

/// How many sizes there are.
pub(super) const CLASSES: usize = FINE / GRAIN + STEPS * (LARGEST / FINE).ilog2() as usize;

const LOADS: [u8; CLASSES] = loads();

/// How many slots of each class a magazine is filled with.
const fn loads() -> [u8; CLASSES] {
    let mut loads = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        let slots = LOAD / Class(class as u8).size();
        loads[class] = if slots < SLOTS { slots } else { SLOTS } as u8;
        class += 1;
    }
    loads
}

/// A size of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class(u8);

impl Class {
    /// The class of a node's layout; nothing if the node is too large for a slot.
    #[inline]
    pub(super) fn of(layout: Layout) -> Option<Self> {
        let size = layout.size();
        if size > LARGEST || layout.align() > GRAIN || cfg!(radixkv_heap) {
            return None;
        }
        if size <= FINE {
            return Some(Self((size.div_ceil(GRAIN).max(1) - 1) as u8));
        }
        let doubling = (size - 1).ilog2();
        let step = (size - 1 - (1 << doubling)) >> (doubling - STEPS.ilog2());
        Some(Self((FINE / GRAIN + STEPS * (doubling - FINE.ilog2()) as usize + step) as u8))
    }

    /// Every class, the smallest first.
    pub(super) fn all() -> [Self; CLASSES] {
        std::array::from_fn(|i| Self(i as u8))
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// How many slots a magazine is filled with.
    #[inline]
    pub(super) fn load(self) -> usize {
        usize::from(LOADS[self.index()])
    }

    /// How many slots a chain has at least that is kept whole to be a magazine.
    pub(super) fn fewest_kept(self) -> usize {
        (self.load() / 4).max(SHORTEST)
    }

    /// How many it has at most.
    #[inline]
    pub(super) fn most_kept(self) -> usize {
        self.load().max(SHORTEST)
    }

    /// Bytes of a slot.
    pub(super) const fn size(self) -> usize {
        let Some(coarse) = self.index().checked_sub(FINE / GRAIN) else {
            return (self.index() + 1) * GRAIN;
        };
        (FINE << (coarse / STEPS)) / STEPS * (STEPS + coarse % STEPS + 1)
    }
}

#[cfg(test)]
mod tests;
