//! The pool of host blocks, and the order of their last use.
//!
//! A host block is *free*, *reserved* (being filled), *cached* (in the index), or *detached* (no
//! longer in the index, but still being read). A cached or detached block may be *pinned*: a reader
//! copies from it. A block that is cached and not pinned is *listed*: it is in a list ordered by
//! arrival or last use, and the oldest block of the list is evicted first.
//!
//! # Invariants
//!
//! - **H1** Only the arrival that has reserved a block writes to it.
//! - **H2** A block that is cached or pinned is not reserved and not free.
//! - **H3** The number of listed and reserved blocks together never exceeds the capacity.

use std::time::{Duration, Instant};

use crate::{index::Place, tier::HostBlock};

const NONE: HostBlock = HostBlock::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Reserved,
    Cached(Place),
    Detached,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    state: State,
    /// At the largest number, the block stays pinned for good: some of its pins are not counted.
    pins: u32,
    older: HostBlock,
    newer: HostBlock,
    /// When it arrived, in milliseconds since the pool was created.
    came: u64,
}

/// What the caller has to do after ending a pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Unpinned {
    /// Nothing to do.
    Done,
    /// The block is listed again: the capacity may be exceeded now.
    Listed,
}

/// The number of blocks in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SlotCounts {
    pub(crate) listed: usize,
    pub(crate) reserved: usize,
    pub(crate) pinned: usize,
    pub(crate) free: usize,
}

#[derive(Debug)]
pub(crate) struct Slots {
    /// The blocks that were ever used; all others are free.
    slots: Vec<Slot>,
    free: Vec<HostBlock>,
    /// The number of blocks.
    all: usize,
    /// How many blocks may be listed or reserved.
    capacity: usize,
    oldest: HostBlock,
    newest: HostBlock,
    listed: usize,
    reserved: usize,
    pinned: usize,
    made: Instant,
}

impl Slots {
    pub(crate) fn new(all: usize, capacity: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            all,
            capacity,
            oldest: NONE,
            newest: NONE,
            listed: 0,
            reserved: 0,
            pinned: 0,
            made: Instant::now(),
        }
    }

    /// Reserves a free block, if that does not exceed the capacity.
    pub(crate) fn reserve(&mut self) -> Option<HostBlock> {
        if self.is_over(1) {
            return None;
        }
        let block = match self.free.pop() {
            Some(block) => block,
            None if self.slots.len() < self.all => {
                self.slots.push(Slot { state: State::Free, pins: 0, older: NONE, newer: NONE, came: 0 });
                (self.slots.len() - 1) as HostBlock
            }
            None => return None,
        };
        self.slot(block).state = State::Reserved;
        self.reserved += 1;
        Some(block)
    }

    /// Whether `more` additional blocks would exceed the capacity.
    pub(crate) fn is_over(&self, more: usize) -> bool {
        self.listed + self.reserved + more > self.capacity
    }

    /// Reserves the least recently used block instead of a free one. Returns its position in the
    /// index, from which the caller has to remove it. Its bytes are unchanged until the caller
    /// writes to it.
    pub(crate) fn replace(&mut self) -> Option<(HostBlock, Place)> {
        let block = Some(self.oldest).filter(|&block| block != NONE)?;
        self.unlist(block);
        let State::Cached(place) = self.slot(block).state else { unreachable!("what is listed is cached") };
        self.slot(block).state = State::Reserved;
        self.reserved += 1;
        Some((block, place))
    }

    /// Detaches the least recently used block, and leaves it pinned. The caller removes it from the
    /// index, and unpins it.
    pub(crate) fn detach_oldest(&mut self) -> Option<(HostBlock, Place)> {
        let block = Some(self.oldest).filter(|&block| block != NONE)?;
        self.pin(block);
        Some((block, self.detach(block)?))
    }

    /// Gives a reserved block back.
    pub(crate) fn give_back(&mut self, block: HostBlock) {
        debug_assert_eq!(self.slot(block).state, State::Reserved);
        self.reserved -= 1;
        self.release(block);
    }

    /// Turns a reserved block into a cached one, the most recently used.
    pub(crate) fn publish(&mut self, block: HostBlock, place: Place) {
        debug_assert_eq!(self.slot(block).state, State::Reserved);
        self.reserved -= 1;
        let came = self.now();
        *self.slot(block) = Slot { state: State::Cached(place), came, ..*self.slot(block) };
        self.list(block);
    }

    /// How long ago a block arrived.
    pub(crate) fn age(&self, block: HostBlock) -> Duration {
        Duration::from_millis(self.now() - self.slots[block as usize].came)
    }

    fn now(&self) -> u64 {
        self.made.elapsed().as_millis() as u64
    }

    /// Makes a cached block the most recently used. For a pinned block, the end of its last pin
    /// does so.
    pub(crate) fn refresh(&mut self, block: HostBlock) {
        if self.slot(block).pins == 0 {
            self.unlist(block);
            self.list(block);
        }
    }

    /// Pins a cached block.
    pub(crate) fn pin(&mut self, block: HostBlock) {
        if self.slot(block).pins == 0 {
            self.unlist(block);
            self.pinned += 1;
        }
        self.slot(block).pins = self.slot(block).pins.saturating_add(1);
    }

    /// Ends a pin. After the last pin, the block is listed as the most recently used, or freed if
    /// detached.
    pub(crate) fn unpin(&mut self, block: HostBlock) -> Unpinned {
        if self.slot(block).pins == u32::MAX {
            return Unpinned::Done;
        }
        self.slot(block).pins -= 1;
        if self.slot(block).pins > 0 {
            return Unpinned::Done;
        }
        self.pinned -= 1;
        if self.slot(block).state == State::Detached {
            self.release(block);
            return Unpinned::Done;
        }
        self.list(block);
        Unpinned::Listed
    }

    /// Detaches a block, and frees it if it is not pinned. If a position is returned, the caller
    /// removes the block from the index there.
    pub(crate) fn detach(&mut self, block: HostBlock) -> Option<Place> {
        let State::Cached(place) = self.slot(block).state else { return None };
        if self.slot(block).pins > 0 {
            self.slot(block).state = State::Detached;
        } else {
            self.unlist(block);
            self.release(block);
        }
        Some(place)
    }

    pub(crate) fn counts(&self) -> SlotCounts {
        let Self { listed, reserved, pinned, .. } = *self;
        SlotCounts { listed, reserved, pinned, free: self.all - listed - reserved - pinned }
    }

    /// Bytes of the bookkeeping of all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>() + self.free.capacity() * size_of::<HostBlock>()
    }

    /// The cached blocks with their positions: listed ones, oldest first, then pinned ones.
    pub(crate) fn cached(&self) -> Vec<(HostBlock, Place)> {
        let mut found = Vec::new();
        let mut block = self.oldest;
        while let Some(slot) = self.slots.get(block as usize) {
            found.extend(place(slot).map(|place| (block, place)));
            block = slot.newer;
        }
        let pinned = (0..).zip(&self.slots).filter(|(_, slot)| slot.pins > 0);
        found.extend(pinned.filter_map(|(block, slot)| Some((block, place(slot)?))));
        found
    }

    fn slot(&mut self, block: HostBlock) -> &mut Slot {
        &mut self.slots[block as usize]
    }

    fn release(&mut self, block: HostBlock) {
        self.slot(block).state = State::Free;
        self.free.push(block);
    }

    fn list(&mut self, block: HostBlock) {
        let older = self.newest;
        *self.slot(block) = Slot { older, newer: NONE, ..*self.slot(block) };
        match older {
            NONE => self.oldest = block,
            older => self.slot(older).newer = block,
        }
        self.newest = block;
        self.listed += 1;
    }

    fn unlist(&mut self, block: HostBlock) {
        let Slot { older, newer, .. } = *self.slot(block);
        match older {
            NONE => self.oldest = newer,
            older => self.slot(older).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slot(newer).older = older,
        }
        self.listed -= 1;
    }
}

fn place(slot: &Slot) -> Option<Place> {
    match slot.state {
        State::Cached(place) => Some(place),
        State::Free | State::Reserved | State::Detached => None,
    }
}

#[cfg(test)]
mod tests;
