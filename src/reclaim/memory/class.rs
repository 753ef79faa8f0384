//! Size classes of slots. Up to 64 bytes they are 16 bytes apart; above, there are four per
//! doubling, so that a slot is at most a quarter larger than its node.

use std::alloc::Layout;

use crate::sync::model_size;

/// Larger nodes, the arrays of long runs, come from the global allocator.
const LARGEST: usize = 4096;
/// Every slot's size and alignment is a multiple of this many bytes.
const GRAIN: usize = 16;
/// Up to this size, classes are [`GRAIN`] apart.
const FINE: usize = 64;
const STEPS: usize = 4;

/// A magazine is filled with at most this many bytes of slots, and this many slots.
const LOAD: usize = 16 << 10;
const SLOTS: usize = model_size(64, 1);
/// Minimum slots of a chain that is kept whole.
const SHORTEST: usize = 2;

/// The number of classes.
pub(super) const CLASSES: usize = FINE / GRAIN + STEPS * (LARGEST / FINE).ilog2() as usize;

const LOADS: [u8; CLASSES] = loads();

/// The number of slots that a magazine of each class is filled with.
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

/// A size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class(u8);

impl Class {
    /// The class for a node's layout; `None` if the node is too large, or aligned too strictly, for
    /// a slot.
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

    /// The number of slots that a magazine is filled with.
    #[inline]
    pub(super) fn load(self) -> usize {
        usize::from(LOADS[self.index()])
    }

    /// Minimum slots of a chain that a depot keeps whole as a future magazine.
    pub(super) fn fewest_kept(self) -> usize {
        (self.load() / 4).max(SHORTEST)
    }

    /// Maximum slots of such a chain.
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
