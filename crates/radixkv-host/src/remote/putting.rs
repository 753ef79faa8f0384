//! Puts: every tier is asked which blocks it has. A tier that has answered gets the blocks that it
//! lacks, one tier at a time.
//!
//! A block has only one buffer, which is passed from one tier to the next. A tier that does not
//! answer gets no blocks, so it holds no buffer that other tiers need.

use std::time::Instant;

use radixkv_tiers::{Block, Outcome, Put};

use super::{
    line::PutOrder,
    name::RemoteName,
    settings::AnyTier,
    worker::{JobId, Lent, Tiers},
};

/// A put in progress.
#[derive(Debug)]
pub(super) struct Putting {
    name: RemoteName,
    expires: Option<Instant>,
    /// The blocks in the order of the sequence; each with its bytes, unless a tier has the buffer.
    blocks: Vec<(Block, Option<Vec<u8>>)>,
    /// The state of each tier.
    sides: Vec<Side>,
    /// When a tier was last asked or given blocks.
    since: Instant,
    due: Instant,
}

#[derive(Debug)]
enum Side {
    /// The number of pending answers, and the blocks that the tier is known to lack.
    Asked { left: usize, lacks: Vec<usize> },
    /// The tier has answered: it lacks these blocks.
    Lacks(Vec<usize>),
    /// The tier is being given blocks.
    Giving { left: usize },
    /// The tier was given blocks.
    Given,
    /// The tier was given no blocks, or became silent.
    Over,
}

impl Side {
    /// Items for which the tier's answer is pending.
    fn left(&self) -> usize {
        match self {
            Self::Asked { left, .. } | Self::Giving { left } => *left,
            _ => 0,
        }
    }
}

impl Putting {
    /// Begins a put; `None` if it has already ended.
    pub(super) fn begin(id: JobId, order: PutOrder, tiers: &mut Tiers) -> Option<Self> {
        let PutOrder { name, tokens, blocks, expires } = order;
        let keys = tiers.keys.blocks(&name, &tokens);
        let blocks: Vec<_> = blocks.into_iter().map(|(number, bytes)| (keys[number].clone(), Some(bytes))).collect();
        let now = Instant::now();
        let mut put = Self { name, expires, blocks, sides: Vec::new(), since: now, due: now + tiers.timeout };
        if put.is_current(tiers) {
            put.sides = (0..tiers.count()).map(|tier| put.ask(tier, id, tiers)).collect();
        }
        put.advance(id, tiers)
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Handles a completed item of its batches; `None` if the put has ended.
    pub(super) fn complete(
        mut self,
        id: JobId,
        tier: usize,
        item: usize,
        outcome: Outcome<Vec<u8>>,
        tiers: &mut Tiers,
    ) -> Option<Self> {
        let counters = &tiers.line.counters;
        match (&mut self.sides[tier], outcome) {
            (Side::Asked { left, lacks }, Outcome::Contained(_, answer)) => {
                *left -= 1;
                match answer {
                    Ok(true) => counters.present_blocks.add(1),
                    Ok(false) => lacks.push(item),
                    Err(_) => counters.failed_puts.add(1),
                }
                if *left > 0 {
                    return Some(self);
                }
                lacks.sort_unstable();
                self.sides[tier] = Side::Lacks(std::mem::take(lacks));
            }
            (Side::Giving { left }, Outcome::Put(put, result)) => {
                *left -= 1;
                let took = if result.is_ok() { &counters.put_blocks } else { &counters.failed_puts };
                took.add(1);
                if *left == 0 {
                    self.sides[tier] = Side::Given;
                }
                self.take_buffer(item, put, tiers);
            }
            // The put no longer waited for it.
            (_, Outcome::Put(put, _)) => {
                self.take_buffer(item, put, tiers);
                return Some(self);
            }
            _ => return Some(self),
        }
        self.advance(id, tiers)
    }

    /// Continues without the tiers that are silent; `None` if the put has ended.
    pub(super) fn pass_over_silent(mut self, id: JobId, tiers: &mut Tiers) -> Option<Self> {
        let mut is_one_silent = false;
        for (tier, side) in self.sides.iter_mut().enumerate() {
            if side.left() > 0 && tiers.is_silent(tier, self.since) {
                tiers.pass_over(tier, id);
                tiers.line.counters.failed_puts.add(side.left());
                *side = Side::Over;
                is_one_silent = true;
            }
        }
        if is_one_silent { self.advance(id, tiers) } else { Some(self) }
    }

    /// Ends the put without the pending answers.
    pub(super) fn give_up(self, id: JobId, tiers: &mut Tiers) {
        tiers.forget(id);
        tiers.line.counters.failed_puts.add(self.sides.iter().map(Side::left).sum());
        self.end(tiers);
    }

    fn ask(&self, tier: usize, id: JobId, tiers: &mut Tiers) -> Side {
        let keys = self.blocks.iter().map(|(block, _)| block.key()).collect();
        let left = self.blocks.len();
        if tiers.ask(tier, id, (0..left).collect(), |tier| tier.contains(keys).ok()) {
            return Side::Asked { left, lacks: Vec::new() };
        }
        tiers.line.counters.failed_puts.add(left);
        Side::Over
    }

    /// Gives the tiers that have answered the blocks that they lack, one tier after another; `None`
    /// if the put has ended.
    fn advance(mut self, id: JobId, tiers: &mut Tiers) -> Option<Self> {
        loop {
            if self.sides.iter().any(|side| matches!(side, Side::Giving { .. })) {
                return Some(self);
            }
            if !self.is_current(tiers) {
                tiers.forget(id);
                self.take_back(id, tiers);
                break;
            }
            let next = self.sides.iter_mut().enumerate().find_map(|(tier, side)| match side {
                Side::Lacks(lacks) => Some((tier, std::mem::take(lacks))),
                _ => None,
            });
            match next {
                Some((tier, lacks)) => self.give(tier, id, lacks, tiers),
                None if self.sides.iter().any(|side| side.left() > 0) => return Some(self),
                None => break,
            }
        }
        self.end(tiers);
        None
    }

    /// Gives a tier the blocks that it lacks and whose buffers are here, with the time to live that
    /// is left.
    fn give(&mut self, tier: usize, id: JobId, lacks: Vec<usize>, tiers: &mut Tiers) {
        self.sides[tier] = Side::Over;
        let time_to_live = self.expires.map(|expires| expires.saturating_duration_since(Instant::now()));
        if time_to_live.is_some_and(|left| left.is_zero()) {
            tiers.line.counters.stale_puts.add(lacks.len());
            return;
        }
        let (mut items, mut puts, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for item in lacks {
            let (block, bytes) = &mut self.blocks[item];
            if let Some(buffer) = bytes.take() {
                items.push(item);
                puts.push(Put { block: block.clone(), buffer, time_to_live });
            }
        }
        let left = items.len();
        if left == 0 {
            return;
        }
        let put_from = |tier: &AnyTier| tier.put_from(puts).map_err(|back| refused = back.batch).ok();
        if tiers.lend(tier, id, items.clone(), Lent::Puts, put_from) {
            self.sides[tier] = Side::Giving { left };
            self.since = Instant::now();
            return;
        }
        tiers.line.counters.failed_puts.add(left);
        // A tier that panicked returned no buffers.
        tiers.line.lose_puts(left.saturating_sub(refused.len()));
        for (item, put) in items.into_iter().zip(refused) {
            self.take_buffer(item, put, tiers);
        }
    }

    /// Takes an item's buffer back for the next tier, if it still holds the item's block.
    fn take_buffer(&mut self, item: usize, put: Put<Vec<u8>>, tiers: &Tiers) {
        let (block, bytes) = &mut self.blocks[item];
        if bytes.is_none() && tiers.is_whole(block, &put.block, &put.buffer) {
            *bytes = Some(put.buffer);
        } else {
            tiers.line.give_put(put.buffer);
        }
    }

    /// Removes the blocks that were put: the namespace was cleared or kept out meanwhile.
    fn take_back(&self, id: JobId, tiers: &mut Tiers) {
        tiers.line.counters.stale_puts.add(self.blocks.len());
        for tier in (0..self.sides.len()).filter(|&tier| matches!(self.sides[tier], Side::Given)) {
            let keys: Vec<_> = self.blocks.iter().map(|(block, _)| block.key()).collect();
            tiers.ask_anyway(tier, id, vec![0; keys.len()], |tier| tier.remove(keys).ok());
        }
    }

    fn is_current(&self, tiers: &Tiers) -> bool {
        tiers.host.upgrade().is_some_and(|host| host.lock().generations.is_current(&self.name))
    }

    fn end(self, tiers: &mut Tiers) {
        let blocks = self.blocks.len();
        self.blocks.into_iter().filter_map(|(_, bytes)| bytes).for_each(|bytes| tiers.line.give_put(bytes));
        tiers.line.ended_put(blocks);
    }
}
