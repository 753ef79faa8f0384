//! Fetching blocks of one sequence: in windows, each asked for in all tiers, read from the first that has it, and brought to the host.

use std::{ops::Range, time::Instant};

use radixkv_tiers::{Block, Get, NotGot, Outcome};

use super::{
    line::FetchOrder,
    worker::{JobId, Tiers},
};
use crate::tier::HostTier;

/// Blocks that are asked for at once: what a tier has of the next ones is not asked before these have come.
const WINDOW: usize = 256;

/// A sequence that is being fetched.
pub(super) struct Fetching {
    order: FetchOrder,
    /// The blocks that were asked for, and which of them are in the window.
    blocks: Vec<Block>,
    window: Range<usize>,
    step: Step,
    due: Instant,
}

enum Step {
    /// Answers that are to come, and the first tier that has each block of the window.
    Asking { left: usize, has: Vec<Option<usize>> },
    /// Blocks that are to come, and those that came.
    Getting { left: usize, got: Vec<Option<Vec<u8>>> },
}

impl Fetching {
    /// Begins; none if it has ended.
    pub(super) fn begin(id: JobId, order: FetchOrder, tiers: &mut Tiers) -> Option<Self> {
        let blocks = tiers.keys.blocks(&order.name, &order.tokens)[order.first..].to_vec();
        let due = order.progress.due(tiers.timeout);
        let step = Step::Getting { left: 0, got: Vec::new() };
        Self { order, blocks, window: 0..0, step, due }.ask(id, tiers)
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// An item of its batches was completed; none if it has ended.
    pub(super) fn complete(
        mut self: Box<Self>,
        id: JobId,
        tier: usize,
        item: usize,
        outcome: Outcome<Vec<u8>>,
        tiers: &mut Tiers,
    ) -> Option<Box<Self>> {
        let counters = &tiers.line.counters;
        match (&mut self.step, outcome) {
            (Step::Asking { left, has }, Outcome::Contained(_, answer)) => {
                *left -= 1;
                match answer {
                    Ok(true) => has[item] = Some(has[item].map_or(tier, |first| first.min(tier))),
                    Ok(false) => {}
                    Err(_) => counters.failed_blocks.add(1),
                }
                if *left == 0 {
                    let has: Vec<usize> = std::mem::take(has).into_iter().map_while(|tier| tier).collect();
                    return self.get(id, &has, tiers).map(Box::new);
                }
            }
            (Step::Getting { left, got }, Outcome::Got(get, result)) => {
                *left -= 1;
                let is_whole = tiers.is_whole(&self.blocks[self.window.start + item], &get.block, &get.buffer);
                match result {
                    Ok(()) if is_whole => got[item] = Some(get.buffer),
                    Ok(()) => {
                        counters.failed_blocks.add(1);
                        tiers.line.give_get(get.buffer);
                    }
                    Err(why) => {
                        let count = if matches!(why, NotGot::Miss(_)) {
                            &counters.missed_blocks
                        } else {
                            &counters.failed_blocks
                        };
                        count.add(1);
                        tiers.line.give_get(get.buffer);
                    }
                }
                if *left == 0 {
                    return self.arrive(id, tiers).map(Box::new);
                }
            }
            _ => {}
        }
        Some(self)
    }

    /// Gives up what has not come; what has, and follows what is in the host, comes in.
    pub(super) fn give_up(mut self, id: JobId, tiers: &mut Tiers) {
        tiers.line.counters.late_fetches.add(1);
        if matches!(self.step, Step::Asking { .. }) {
            tiers.forget(id);
        }
        self.bring_in(tiers);
        self.end(tiers);
    }

    /// Asks for the next window.
    fn ask(mut self, id: JobId, tiers: &mut Tiers) -> Option<Self> {
        let window = self.window.end..self.blocks.len().min(self.window.end + WINDOW);
        self.window = window.clone();
        tiers.line.counters.asked_blocks.add(window.len());
        let mut left = 0;
        for tier in 0..tiers.count() {
            let keys = self.blocks[window.clone()].iter().map(Block::key).collect();
            if tiers.submit(tier, id, (0..window.len()).collect(), |tier| tier.contains(keys).ok()) {
                left += window.len();
            } else {
                tiers.line.counters.failed_blocks.add(window.len());
            }
        }
        if left == 0 {
            self.end(tiers);
            return None;
        }
        self.step = Step::Asking { left, has: vec![None; window.len()] };
        Some(self)
    }

    /// Gets the first blocks of the window: `has` says from which tier each of them.
    fn get(mut self, id: JobId, has: &[usize], tiers: &mut Tiers) -> Option<Self> {
        self.order.progress.found(has.len());
        tiers.line.counters.found_blocks.add(has.len());
        let mut buffers = tiers.line.get_buffers(has.len());
        tiers.line.counters.full_blocks.add(has.len() - buffers.len());
        let has = &has[..buffers.len()];
        let mut left = 0;
        for tier in 0..tiers.count() {
            let items: Vec<usize> = (0..has.len()).filter(|&item| has[item] == tier).collect();
            if items.is_empty() {
                continue;
            }
            let block = |item: usize| self.blocks[self.window.start + item].clone();
            let own = buffers.split_off(buffers.len() - items.len());
            let gets: Vec<_> =
                items.iter().zip(own).map(|(&item, buffer)| Get { block: block(item), buffer }).collect();
            let (count, mut refused) = (items.len(), Vec::new());
            if tiers.submit(tier, id, items, |tier| tier.get_into(gets).map_err(|back| refused = back.batch).ok()) {
                left += count;
                continue;
            }
            tiers.line.counters.failed_blocks.add(count);
            tiers.line.lose_gets(count.saturating_sub(refused.len()));
            refused.into_iter().take(count).for_each(|get| tiers.line.give_get(get.buffer));
        }
        self.step = Step::Getting { left, got: vec![None; has.len()] };
        if left == 0 { self.arrive(id, tiers) } else { Some(self) }
    }

    /// The window is there, or as much of it as comes; goes on with the next one if all of it is.
    fn arrive(mut self, id: JobId, tiers: &mut Tiers) -> Option<Self> {
        let came = self.bring_in(tiers);
        if came == self.window.len() && self.window.end < self.blocks.len() {
            return self.ask(id, tiers);
        }
        self.end(tiers);
        None
    }

    /// Copies the blocks that came to the host, up to the first that did not. Returns how many these are.
    fn bring_in(&mut self, tiers: &mut Tiers) -> usize {
        let Step::Getting { got, .. } = &mut self.step else { return 0 };
        let mut got = std::mem::take(got);
        let came: Vec<Vec<u8>> = got.iter_mut().map_while(Option::take).collect();
        if let Some(host) = tiers.host.upgrade().filter(|_| !came.is_empty()) {
            let FetchOrder { namespace, tokens, first, offload, progress, .. } = &self.order;
            let (first, size) = (first + self.window.start, host.block_size());
            let tokens = &tokens[..(first + came.len()) * size];
            let mut arrival = offload.reserve_fetched(namespace, tokens, first * size);
            for (number, bytes) in arrival.blocks_mut() {
                bytes.copy_from_slice(&came[number - first]);
            }
            arrival.publish();
            let arrived = HostTier::of(host).pinned_from(namespace, tokens, first * size);
            let count = arrived.blocks().len();
            tiers.line.counters.fetched_blocks.add(count);
            tiers.line.counters.lacking_blocks.add(came.len() - count);
            progress.hold(arrived);
        }
        let count = came.len();
        came.into_iter().chain(got.into_iter().flatten()).for_each(|bytes| tiers.line.give_get(bytes));
        count
    }

    fn end(self, tiers: &mut Tiers) {
        self.order.progress.end();
        // Before it counts as ended: it has handles of the host.
        drop(self);
        tiers.line.ended(true);
    }
}
