//! Blocks that leave the tier for the remote ones.
//!
//! A block is evicted under the tier's lock, and its bytes are copied after it, before anything else is written to them: it is
//! reserved for what comes in its place, or detached and pinned. Where the remote tiers take no more, it goes as if there were none.
#![allow(unsafe_code)]

use std::time::Duration;

use radixkv::{Keys, Token};

use crate::{
    index::Place,
    remote::{PutOrder, RemoteName},
    slots::Unpinned,
    tier::{HostBlock, Inner, State},
};

/// Evicted blocks of one sequence, the deepest first.
#[derive(Debug)]
pub(crate) struct Departing {
    name: RemoteName,
    run: u32,
    /// The sequence up to the end of the first of the blocks.
    tokens: Vec<Token>,
    /// The number of each in the sequence, and where its bytes are.
    blocks: Vec<(usize, HostBlock)>,
    /// What is left of the time of the oldest of them.
    time_to_live: Option<Duration>,
}

impl State {
    /// Takes an evicted block out of the index, and notes that it leaves, if blocks do.
    ///
    /// `leaving` is of one time under the lock.
    pub(crate) fn leave(&mut self, block: HostBlock, place: Place, leaving: &mut Vec<Departing>) {
        if self.departs && self.index.namespace(place).keys() == Keys::Tokens && !self.is_expired(block, place) {
            let number = place.number();
            let namespace = self.index.namespace(place);
            let time_to_live = self.lifetimes.of(namespace).map(|limit| limit.saturating_sub(self.slots.age(block)));
            match leaving.last_mut().filter(|last| last.run == place.run() && last.blocks[0].0 > number) {
                Some(last) => {
                    last.blocks.push((number, block));
                    last.time_to_live = last.time_to_live.min(time_to_live);
                }
                None => {
                    let (name, tokens) = (self.generations.name(namespace), self.index.tokens(place));
                    let blocks = vec![(number, block)];
                    leaving.push(Departing { name, run: place.run(), tokens, blocks, time_to_live });
                }
            }
        }
        self.index.remove(place);
        self.counters.evicted_blocks += 1;
    }

    /// Evicts what is beyond the capacity. What leaves is detached and pinned.
    fn keep_to_capacity(&mut self, leaving: &mut Vec<Departing>) -> Vec<HostBlock> {
        let mut detached = Vec::new();
        while self.slots.is_over(0) {
            let Some((block, place)) = self.slots.detach_oldest() else { break };
            self.leave(block, place, leaving);
            detached.push(block);
        }
        detached
    }
}

impl Inner {
    /// Ends pins, so that the first block is the newest afterwards; what is beyond the capacity then leaves.
    pub(crate) fn unpin(&self, blocks: impl DoubleEndedIterator<Item = HostBlock>) {
        let mut leaving = Vec::new();
        let mut state = self.lock();
        let mut listed = false;
        for block in blocks.rev() {
            listed |= state.slots.unpin(block) == Unpinned::Listed;
        }
        if !listed {
            return;
        }
        let detached = state.keep_to_capacity(&mut leaving);
        drop(state);
        if !leaving.is_empty() {
            // SAFETY: they are pinned until the lock is taken again.
            unsafe { self.send_off(leaving) };
        }
        if !detached.is_empty() {
            let mut state = self.lock();
            // Detached: none of them is listed again.
            detached.into_iter().for_each(|block| _ = state.slots.unpin(block));
        }
    }

    /// Copies the bytes of blocks that leave, and asks the remote tiers to keep them.
    ///
    /// # Safety
    ///
    /// Nothing writes to the blocks' bytes until this returns: the caller has them reserved or pinned.
    pub(crate) unsafe fn send_off(&self, leaving: Vec<Departing>) {
        let Some(remote) = self.remote() else { return };
        let of_one = |(of, one): (usize, &Departing)| -> Vec<_> {
            one.blocks.iter().map(|&(number, block)| (number, of, block)).collect()
        };
        // Where there are too few buffers, the ends are left out: a block is worth nothing without those before it.
        let mut blocks: Vec<_> = leaving.iter().enumerate().flat_map(of_one).collect();
        blocks.sort_by_key(|&(number, ..)| number);
        let numbers: Vec<_> = blocks.iter().map(|&(number, ..)| number).collect();
        let mut copies: Vec<_> = leaving.iter().map(|_| Vec::new()).collect();
        for ((number, of, block), mut buffer) in blocks.into_iter().zip(remote.put_buffers(&numbers)) {
            // SAFETY: the caller says that nothing writes to it.
            buffer.copy_from_slice(unsafe { self.memory().block(block as usize, self.block_bytes()) });
            copies[of].push((number, buffer));
        }
        for (Departing { name, tokens, time_to_live, .. }, blocks) in leaving.into_iter().zip(copies) {
            remote.put(PutOrder { name, tokens, blocks, time_to_live });
        }
    }
}
