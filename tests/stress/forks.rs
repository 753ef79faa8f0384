//! Blocks that several sequences hold, on several threads: each reads them while they are shared,
//! and a thread that has one alone writes to it.

use radixkv::{BlockId, InsertErrorKind, PendingCopy, Reservation};

use crate::held::Filling;
use crate::slots::mix;
use crate::worker::Worker;
use crate::world::World;

/// Blocks that are forked at once, and forks that are on their way to another thread.
const MOST_BLOCKS: usize = 2;
const MOST_WAITING: usize = 4;

/// Notes that a block is in a reservation that may have forks, until that is about to let go of it.
struct Mark {
    world: &'static World,
    block: BlockId,
}

impl Mark {
    fn new(world: &'static World, block: BlockId) -> Self {
        world.slots.reserve(block);
        Self { world, block }
    }
}

impl Clone for Mark {
    fn clone(&self) -> Self {
        self.world.slots.share(self.block);
        Self { world: self.world, block: self.block }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.world.slots.unreserve(self.block);
    }
}

/// A reservation that others may share.
pub struct Fork {
    world: &'static World,
    // Before the reservation: what is marked is held.
    marks: Vec<Mark>,
    reservation: Reservation,
}

/// A block that is being copied: the source stays as it is until this goes.
struct Copying {
    mark: Mark,
    copy: PendingCopy,
    stamp: u64,
}

impl Fork {
    pub fn new(world: &'static World, filling: Filling) -> Self {
        let reservation = filling.take();
        let marks = reservation.blocks().iter().map(|&block| Mark::new(world, block)).collect();
        Self { world, marks, reservation }
    }

    fn fork(&mut self) -> Self {
        let reservation = self.reservation.fork();
        assert_eq!(reservation.blocks(), self.reservation.blocks());
        Self { world: self.world, marks: self.marks.clone(), reservation }
    }

    /// Reads what is shared, and writes what is not.
    fn use_blocks(&mut self, salt: u64) {
        for i in 0..self.reservation.len() {
            let block = self.reservation.blocks()[i];
            if self.reservation.is_shared(i) {
                self.world.slots.read(block);
            } else {
                self.world.slots.fill(block, mix(salt ^ i as u64));
            }
        }
    }

    /// Gets block `i` for itself; `fresh` is a block to copy into.
    fn make_unique(&mut self, i: usize, fresh: Filling) -> Option<Copying> {
        let from = self.reservation.blocks()[i];
        let mut fresh = Self::new(self.world, fresh);
        let stamp = self.world.slots.read(from);
        let copy = self.reservation.make_unique(i, &mut fresh.reservation)?;
        let own = fresh.marks.pop().expect("of the block to copy into");
        assert_eq!((copy.source(), copy.destination()), (from, own.block));
        assert_eq!(self.reservation.blocks()[i], own.block);
        let mark = std::mem::replace(&mut self.marks[i], own);
        self.world.slots.fill(copy.destination(), mix(u64::from(from)));
        Some(Copying { mark, copy, stamp })
    }

    /// Moves the first `n` blocks into a fork of their own.
    fn split(&mut self, n: usize) -> Self {
        let rest = self.marks.split_off(n);
        let marks = std::mem::replace(&mut self.marks, rest);
        Self { world: self.world, marks, reservation: self.reservation.split(n) }
    }

    fn append(&mut self, other: Self) {
        let Self { marks, reservation, .. } = other;
        self.marks.extend(marks);
        self.reservation.append(reservation);
    }

    /// The reservation itself, whose blocks no other reservation has.
    fn take(mut self) -> Reservation {
        self.marks.clear();
        self.reservation
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let stamp = self.mark.world.slots.read(self.copy.source());
            assert_eq!(stamp, self.stamp, "the source of a copy was written to");
        }
    }
}

impl Worker {
    /// Something with a fork: one that this thread has, one of another thread's, or a new one.
    pub fn fork(&mut self) {
        let taken = if self.dice.bool() { self.fork.take() } else { self.world.forks.lock().pop() };
        let Some(mut fork) = taken.or_else(|| self.new_fork()) else { return };
        fork.use_blocks(self.dice.u64(..));
        match self.dice.u8(..6) {
            0..2 => {
                let other = fork.fork();
                self.pass_on(other);
            }
            2 => {
                let (i, name) = (self.dice.usize(..fork.reservation.len()), self.pick_name());
                let copying = self.reserve(Some(name), 1).and_then(|fresh| fork.make_unique(i, fresh));
                if self.dice.bool() {
                    drop(fork);
                    self.look_after();
                    return drop(copying);
                }
            }
            3 => {
                let n = self.dice.usize(..=fork.reservation.len());
                let mut first = fork.split(n);
                if self.dice.bool() {
                    first.append(fork);
                    fork = first;
                }
            }
            4 => return self.insert_fork(fork),
            _ => return drop(fork),
        }
        if self.dice.bool() && !fork.reservation.is_empty() {
            self.fork = Some(fork);
        } else if !fork.reservation.is_empty() {
            self.pass_on(fork);
        }
    }

    fn new_fork(&mut self) -> Option<Fork> {
        let (name, blocks) = (self.pick_name(), self.dice.usize(1..=MOST_BLOCKS));
        self.reserve(Some(name), blocks).map(|filling| Fork::new(self.world, filling))
    }

    /// Leaves a fork to whatever thread comes next; lets the oldest go where there are many.
    fn pass_on(&mut self, fork: Fork) {
        let mut forks = self.world.forks.lock();
        forks.push(fork);
        let oldest = (forks.len() > MOST_WAITING).then(|| forks.remove(0));
        drop(forks);
        drop(oldest);
    }

    /// Inserts a fork's blocks, which is refused as long as another holds one of them too.
    fn insert_fork(&mut self, mut fork: Fork) {
        let name = self.pick_name();
        let blocks = fork.reservation.len();
        let tokens: Vec<_> = self.world.sequence(&mut self.dice);
        let held = self.look_up(name, tokens);
        let len = self.world.tokens(name, held.blocks.len() + blocks);
        if len > held.tokens.len() {
            return;
        }
        let tokens = held.tokens[..len].to_vec();
        if let Some(shared) = (0..blocks).find(|&i| fork.reservation.is_shared(i)) {
            // Another handle: it stays shared.
            let other = fork.fork();
            let Fork { marks, reservation, .. } = fork;
            let refused = self.session.insert(held.lease(), &tokens, reservation).expect_err("blocks are shared");
            assert!(shared < blocks && refused.kind == InsertErrorKind::SharedBlock { index: 0 }, "{:?}", refused.kind);
            drop(marks);
            drop(refused);
            return drop(other);
        }
        let filled = fork.reservation.blocks().to_vec();
        self.world.fill(name, &tokens, held.blocks.len(), &filled);
        match self.session.insert(held.lease(), &tokens, fork.take()) {
            Ok(inserted) => {
                let longer = self.inserted(&held, tokens, &filled, inserted);
                self.keep_or_release(longer);
                self.tally.forks += 1;
            }
            Err(error) => self.refused(&held, error.kind),
        }
    }
}
