//! Fetching the blocks of one sequence: each block is read from the first tier that has it, and
//! copied to the host.
//!
//! A fetch asks all tiers at once: first for one block, and for a window of blocks once a tier has
//! that one. A block is read as soon as one tier has it and all tiers above lack it; the answers of
//! lower tiers are not awaited. A tier that accepts fewer blocks at once is asked for the others
//! when it has answered.

use std::{ops::Range, time::Instant};

use radixkv_tiers::{Block, Get, NotGot, Outcome};

use super::{
    line::FetchOrder,
    settings::AnyTier,
    worker::{JobId, Lent, Tiers},
};
use crate::tier::HostTier;

/// Blocks in a window: tiers are asked for the next window only after the blocks of this one have
/// arrived.
const WINDOW: usize = 256;

/// A fetch in progress.
pub(super) struct Fetching {
    order: FetchOrder,
    /// The blocks of the order.
    blocks: Vec<Block>,
    window: Window,
    due: Instant,
}

/// The blocks that are requested together. An *item* is the index of a block in the window.
struct Window {
    blocks: Range<usize>,
    /// The answers of each tier.
    sides: Vec<Side>,
    /// Blocks that were read, but not yet copied to the host.
    got: Vec<Option<Vec<u8>>>,
    /// How many items were copied to the host.
    arrived: usize,
    /// How many items were found, up to the first missing one.
    found: usize,
    /// When a tier was last asked.
    since: Instant,
}

/// One tier's part of a window.
#[derive(Clone, Default)]
struct Side {
    known: Vec<Known>,
    /// Items for which the tier's answer is pending.
    left: usize,
}

/// What is known about one block in one tier.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Unasked,
    Asked,
    Lacks,
    Has,
    Getting,
}

/// The next step of a fetch.
enum Next {
    /// Wait for answers.
    Wait,
    /// Read these items, each from its tier.
    Get(Vec<(usize, usize)>),
    /// Ask for the next window.
    Ask,
    End,
}

impl Window {
    fn new(first: usize, tiers: usize) -> Self {
        let sides = vec![Side::default(); tiers];
        Self { blocks: first..first, sides, got: Vec::new(), arrived: 0, found: 0, since: Instant::now() }
    }

    fn is_getting(&self) -> bool {
        self.sides.iter().any(|side| side.left > 0 && side.known.contains(&Known::Getting))
    }

    /// Chooses the next step from the answers so far, while no block is being read.
    fn next(&self, blocks: usize) -> Next {
        let mut chosen = Vec::new();
        for item in self.arrived..self.blocks.len() {
            if self.got[item].is_some() {
                continue;
            }
            let first = self.sides.iter().position(|side| side.known[item] != Known::Lacks);
            match first.map(|tier| (tier, self.sides[tier].known[item])) {
                Some((tier, Known::Has)) => chosen.push((item, tier)),
                Some(_) if chosen.is_empty() => return Next::Wait,
                None if chosen.is_empty() => return Next::End,
                _ => break,
            }
        }
        match () {
            () if !chosen.is_empty() => Next::Get(chosen),
            () if self.blocks.end < blocks => Next::Ask,
            () => Next::End,
        }
    }
}

impl Fetching {
    /// Begins a fetch; `None` if it has already ended.
    pub(super) fn begin(id: JobId, order: FetchOrder, tiers: &mut Tiers) -> Option<Box<Self>> {
        let blocks = tiers.keys.blocks(&order.name, &order.tokens)[order.first..].to_vec();
        let due = order.progress.due(tiers.timeout);
        let window = Window::new(0, tiers.count());
        let mut fetch = Box::new(Self { order, blocks, window, due });
        fetch.ask(id, 1, tiers);
        fetch.advance(id, tiers)
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Handles a completed item of its batches; `item` is its block's number in the order. `None`
    /// if the fetch has ended.
    pub(super) fn complete(
        mut self: Box<Self>,
        id: JobId,
        tier: usize,
        item: usize,
        outcome: Outcome<Vec<u8>>,
        tiers: &mut Tiers,
    ) -> Option<Box<Self>> {
        let counters = &tiers.line.counters;
        // Items of an earlier window are no longer awaited.
        let at = item.wrapping_sub(self.window.blocks.start);
        let side = &mut self.window.sides[tier];
        match (outcome, side.known.get(at)) {
            (Outcome::Contained(_, answer), Some(Known::Asked)) => {
                side.left -= 1;
                side.known[at] = if answer == Ok(true) { Known::Has } else { Known::Lacks };
                counters.failed_blocks.add(usize::from(answer.is_err()));
            }
            (Outcome::Got(get, result), Some(Known::Getting)) => {
                side.left -= 1;
                let is_whole = tiers.is_whole(&self.blocks[item], &get.block, &get.buffer);
                if result.is_ok() && is_whole {
                    side.known[at] = Known::Has;
                    self.window.got[at] = Some(get.buffer);
                } else {
                    side.known[at] = Known::Lacks;
                    let is_miss = matches!(result, Err(NotGot::Miss(_)));
                    let count = if is_miss { &counters.missed_blocks } else { &counters.failed_blocks };
                    count.add(1);
                    tiers.line.give_get(get.buffer);
                }
            }
            (Outcome::Got(get, _), _) => {
                tiers.line.give_get(get.buffer);
                return Some(self);
            }
            _ => return Some(self),
        }
        if self.window.sides[tier].left == 0 { self.advance(id, tiers) } else { Some(self) }
    }

    /// Continues without the tiers that are silent, and where a tier has room again; `None` if the
    /// fetch has ended.
    pub(super) fn pass_over_silent(mut self: Box<Self>, id: JobId, tiers: &mut Tiers) -> Option<Box<Self>> {
        let mut is_one_silent = false;
        let Window { sides, got, arrived, since, .. } = &mut self.window;
        for (tier, side) in sides.iter_mut().enumerate() {
            let has_no_room = tiers.room(tier) == 0;
            let is_open = |&item: &usize| match side.known[item] {
                Known::Unasked | Known::Asked | Known::Getting => true,
                // It waits to be read.
                Known::Has => has_no_room && item >= *arrived && got[item].is_none(),
                Known::Lacks => false,
            };
            let open: Vec<usize> = (0..side.known.len()).filter(is_open).collect();
            let waits = side.left > 0 || has_no_room && !open.is_empty();
            if waits && tiers.is_silent(tier, *since) {
                tiers.pass_over(tier, id);
                tiers.line.counters.failed_blocks.add(open.len());
                side.left = 0;
                open.into_iter().for_each(|item| side.known[item] = Known::Lacks);
                is_one_silent = true;
            }
        }
        if is_one_silent || tiers.is_limited() { self.advance(id, tiers) } else { Some(self) }
    }

    /// Cancels the fetch. Blocks that have arrived and continue those in the host are stored.
    pub(super) fn give_up(mut self: Box<Self>, id: JobId, tiers: &mut Tiers) {
        tiers.line.counters.late_fetches.add(1);
        self.bring_in(tiers);
        self.end(id, tiers);
    }

    /// Reads and asks as far as the answers allow; `None` if the fetch has ended.
    fn advance(mut self: Box<Self>, id: JobId, tiers: &mut Tiers) -> Option<Box<Self>> {
        while !self.window.is_getting() {
            self.bring_in(tiers);
            match self.window.next(self.blocks.len()) {
                // A tier that refuses to be asked lacks the blocks.
                Next::Wait if self.ask_rest(id, tiers) => {}
                Next::Wait => return Some(self),
                Next::Get(chosen) => {
                    // A tier has the first block: it is read together with the following ones, so
                    // ask for them first.
                    if self.ask(id, WINDOW, tiers) {
                        return Some(self);
                    }
                    let chosen = Self::accepted(chosen, tiers);
                    if chosen.is_empty() {
                        return Some(self);
                    }
                    if !self.get(id, chosen, tiers) {
                        self.end(id, tiers);
                        return None;
                    }
                }
                Next::Ask => {
                    self.window = Window::new(self.window.blocks.end, tiers.count());
                    self.ask(id, WINDOW, tiers);
                }
                Next::End => {
                    self.end(id, tiers);
                    return None;
                }
            }
        }
        Some(self)
    }

    /// Asks all tiers for more blocks of the window, up to `most` in all. Returns whether any
    /// answer is pending.
    fn ask(&mut self, id: JobId, most: usize, tiers: &mut Tiers) -> bool {
        let window = &mut self.window;
        let until = self.blocks.len().min(window.blocks.start + most);
        let more = window.blocks.end..until;
        if more.is_empty() {
            return false;
        }
        tiers.line.counters.asked_blocks.add(more.len());
        window.blocks.end = until;
        window.got.resize(window.blocks.len(), None);
        window.sides.iter_mut().for_each(|side| side.known.resize(until - window.blocks.start, Known::Unasked));
        self.ask_rest(id, tiers);
        self.window.sides.iter().any(|side| side.left > 0)
    }

    /// Asks each tier for the blocks of the window that it was not asked for, as many as it accepts.
    /// Returns whether a tier refused.
    fn ask_rest(&mut self, id: JobId, tiers: &mut Tiers) -> bool {
        let Self { blocks, window, .. } = self;
        let mut is_refused = false;
        for (tier, side) in window.sides.iter_mut().enumerate() {
            loop {
                let unasked = (0..side.known.len()).filter(|&item| side.known[item] == Known::Unasked);
                let items: Vec<usize> = unasked.take(tiers.room(tier)).collect();
                if items.is_empty() {
                    break;
                }
                let numbers: Vec<usize> = items.iter().map(|item| window.blocks.start + item).collect();
                let keys = numbers.iter().map(|&number| blocks[number].key()).collect();
                if tiers.ask(tier, id, numbers, |tier| tier.contains(keys).map_err(|back| back.reason)) {
                    side.left += items.len();
                    items.into_iter().for_each(|item| side.known[item] = Known::Asked);
                    window.since = Instant::now();
                    break;
                }
                // A tier that accepts fewer at once is asked for fewer.
                if tiers.most(tier) >= items.len() {
                    let unasked = side.known.iter_mut().filter(|known| **known == Known::Unasked);
                    let lacking = unasked.map(|known| *known = Known::Lacks).count();
                    tiers.line.counters.failed_blocks.add(lacking);
                    is_refused = true;
                    break;
                }
            }
        }
        is_refused
    }

    /// The first of the chosen items, as many as their tiers accept now.
    fn accepted(mut chosen: Vec<(usize, usize)>, tiers: &Tiers) -> Vec<(usize, usize)> {
        let mut room: Vec<usize> = (0..tiers.count()).map(|tier| tiers.room(tier)).collect();
        let mut fits = |&(_, tier): &(usize, usize)| room[tier].checked_sub(1).map(|left| room[tier] = left).is_some();
        chosen.truncate(chosen.iter().take_while(|item| fits(item)).count());
        chosen
    }

    /// Reads the chosen items, or as many as there are buffers for; false if there is no buffer.
    fn get(&mut self, id: JobId, chosen: Vec<(usize, usize)>, tiers: &mut Tiers) -> bool {
        let found = chosen.last().map_or(0, |&(item, _)| item + 1).max(self.window.found);
        self.order.progress.found(found - self.window.found);
        tiers.line.counters.found_blocks.add(found - self.window.found);
        self.window.found = found;
        let mut buffers = tiers.line.get_buffers(chosen.len());
        if buffers.is_empty() {
            tiers.line.counters.full_blocks.add(chosen.len());
            return false;
        }
        let chosen = &chosen[..buffers.len()];
        for tier in 0..tiers.count() {
            let items: Vec<usize> = chosen.iter().filter(|&&(_, of)| of == tier).map(|&(item, _)| item).collect();
            if !items.is_empty() {
                let own = buffers.split_off(buffers.len() - items.len());
                self.get_from(tier, id, items, own, tiers);
            }
        }
        self.window.since = Instant::now();
        true
    }

    fn get_from(&mut self, tier: usize, id: JobId, items: Vec<usize>, buffers: Vec<Vec<u8>>, tiers: &mut Tiers) {
        let numbers: Vec<usize> = items.iter().map(|&item| self.window.blocks.start + item).collect();
        let blocks = numbers.iter().map(|&number| self.blocks[number].clone());
        let gets: Vec<_> = blocks.zip(buffers).map(|(block, buffer)| Get { block, buffer }).collect();
        let mut refused = Vec::new();
        let get_into = |tier: &AnyTier| {
            tier.get_into(gets).map_err(|back| {
                refused = back.batch;
                back.reason
            })
        };
        let is_taken = tiers.lend(tier, id, numbers, Lent::Gets, get_into);
        let side = &mut self.window.sides[tier];
        if is_taken {
            side.left += items.len();
            items.into_iter().for_each(|item| side.known[item] = Known::Getting);
            return;
        }
        // A tier that accepts fewer at once is asked again, for fewer.
        if tiers.most(tier) >= items.len() {
            items.iter().for_each(|&item| side.known[item] = Known::Lacks);
            tiers.line.counters.failed_blocks.add(items.len());
        }
        // A tier that panicked returned no buffers.
        tiers.line.lose_gets(items.len().saturating_sub(refused.len()));
        refused.into_iter().take(items.len()).for_each(|get| tiers.line.give_get(get.buffer));
    }

    /// Copies the blocks that were read to the host, up to the first missing one.
    fn bring_in(&mut self, tiers: &mut Tiers) {
        let got = &mut self.window.got[self.window.arrived..];
        let came: Vec<Vec<u8>> = got.iter_mut().map_while(Option::take).collect();
        if came.is_empty() {
            return;
        }
        if let Some(host) = tiers.host.upgrade() {
            let FetchOrder { namespace, tokens, first, offload, progress, .. } = &self.order;
            let (first, size) = (first + self.window.blocks.start + self.window.arrived, host.block_size());
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
        self.window.arrived += came.len();
        came.into_iter().for_each(|bytes| tiers.line.give_get(bytes));
    }

    fn end(self: Box<Self>, id: JobId, tiers: &mut Tiers) {
        tiers.forget(id);
        let Self { order, window, .. } = *self;
        window.got.into_iter().flatten().for_each(|bytes| tiers.line.give_get(bytes));
        order.progress.end();
        // Dropped before the fetch counts as ended: the order has handles of the host.
        drop(order);
        tiers.line.ended_fetch();
    }
}
