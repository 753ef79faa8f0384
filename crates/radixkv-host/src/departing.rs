//! Outgoing blocks: blocks that the tier evicts and writes to the remote tiers. Every eviction uses
//! this module: for arriving blocks, and after a pin ends.
//!
//! A block is evicted under the tier's lock; its bytes are copied after the lock is released, but
//! before anything else is written to them: until then the block is reserved for its successor, or
//! detached and pinned. If the remote tiers accept no more blocks, it is evicted without a copy.
#![allow(unsafe_code)]

use std::time::Instant;

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
    /// The sequence up to the end of the deepest block.
    tokens: Vec<Token>,
    /// The number of each block in the sequence, and the block that holds its bytes.
    blocks: Vec<(usize, HostBlock)>,
    /// When the first of the blocks expires.
    expires: Option<Instant>,
}

impl State {
    /// Removes an evicted block from the index, and adds it to `leaving` if evicted blocks are
    /// written to remote tiers.
    ///
    /// The lock is held across all calls for one `leaving`.
    pub(crate) fn leave(&mut self, block: HostBlock, place: Place, leaving: &mut Vec<Departing>) {
        if self.departs && self.index.namespace(place).keys() == Keys::Tokens && !self.is_expired(block, place) {
            let number = place.number();
            let namespace = self.index.namespace(place);
            let expires = self.lifetimes.end_of(namespace, self.slots.age(block));
            match leaving.last_mut().filter(|last| last.run == place.run() && last.blocks[0].0 > number) {
                Some(last) => {
                    last.blocks.push((number, block));
                    last.expires = last.expires.min(expires);
                }
                None => {
                    let (name, tokens) = (self.generations.name(namespace), self.index.tokens(place));
                    let blocks = vec![(number, block)];
                    leaving.push(Departing { name, run: place.run(), tokens, blocks, expires });
                }
            }
        }
        self.index.remove(place);
        self.counters.evicted_blocks += 1;
    }

    /// Evicts blocks down to the capacity. Returns the evicted blocks, detached and pinned.
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
    /// Ends pins, so that the first block becomes the most recently used. Then evicts blocks beyond
    /// the capacity.
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
            // SAFETY: the blocks are pinned until the lock is taken again.
            unsafe { self.send_off(leaving) };
        }
        if !detached.is_empty() {
            let mut state = self.lock();
            // They are detached, so unpinning lists none of them.
            detached.into_iter().for_each(|block| _ = state.slots.unpin(block));
        }
    }

    /// Copies the bytes of outgoing blocks, and asks the remote tiers to store them.
    ///
    /// # Safety
    ///
    /// Nothing writes to the blocks' bytes until this returns: the caller has them reserved or
    /// pinned.
    pub(crate) unsafe fn send_off(&self, leaving: Vec<Departing>) {
        let Some(remote) = self.remote() else { return };
        let of_one = |(of, one): (usize, &Departing)| -> Vec<_> {
            one.blocks.iter().map(|&(number, block)| (number, of, block)).collect()
        };
        // With too few buffers, the deepest blocks are omitted: a block is useless without those
        // before it.
        let mut blocks: Vec<_> = leaving.iter().enumerate().flat_map(of_one).collect();
        blocks.sort_by_key(|&(number, ..)| number);
        let numbers: Vec<_> = blocks.iter().map(|&(number, ..)| number).collect();
        let mut copies: Vec<_> = leaving.iter().map(|_| Vec::new()).collect();
        for ((number, of, block), mut buffer) in blocks.into_iter().zip(remote.put_buffers(&numbers)) {
            // SAFETY: the caller guarantees that nothing writes to it.
            buffer.copy_from_slice(unsafe { self.memory().block(block as usize, self.block_bytes()) });
            copies[of].push((number, buffer));
        }
        for (Departing { name, tokens, expires, .. }, blocks) in leaving.into_iter().zip(copies) {
            remote.put(PutOrder { name, tokens, blocks, expires });
        }
    }
}
