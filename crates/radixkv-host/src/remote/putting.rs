//! Puts: every tier is asked which blocks it has. A tier that has answered gets the blocks that it
//! lacks, one tier at a time.
//!
//! A block has only one buffer, which is passed from one tier to the next. A tier that does not
//! answer gets no blocks, so it holds no buffer that other tiers need. A tier that accepts fewer
//! blocks at once is asked about the next ones when it was given the ones before, as soon as it has
//! room.

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
    sides: Vec<Side>,
    /// When a tier was last asked or given blocks.
    since: Instant,
    due: Instant,
}

/// The part of one tier.
#[derive(Debug)]
struct Side {
    state: State,
    /// How many of the blocks the tier was asked about.
    asked: usize,
    /// Whether the tier was given blocks.
    is_given: bool,
}

#[derive(Debug)]
enum State {
    /// The tier was given those that it lacks of the blocks that it was asked about, or its part has
    /// ended.
    Ready,
    /// The number of pending answers, and the blocks that the tier is known to lack.
    Asked { left: usize, lacks: Vec<usize> },
    /// The tier has answered: it lacks these blocks.
    Lacks(Vec<usize>),
    /// The tier is being given blocks. It lacks the rest, for which it had no room.
    Giving { left: usize, rest: Vec<usize> },
}

impl State {
    /// The state after a tier was given blocks: it lacks the rest.
    fn after(rest: Vec<usize>) -> Self {
        if rest.is_empty() { Self::Ready } else { Self::Lacks(rest) }
    }
}

impl Side {
    /// Items for which the tier's answer is pending.
    fn left(&self) -> usize {
        match self.state {
            State::Asked { left, .. } | State::Giving { left, .. } => left,
            _ => 0,
        }
    }

    /// Whether the tier is not to be asked about, or given, any more of `blocks` blocks.
    fn is_done(&self, blocks: usize) -> bool {
        matches!(self.state, State::Ready) && self.asked == blocks
    }

    /// Ends the tier's part: it refused blocks, or became silent. Returns how many of `blocks` blocks
    /// it lacks or was not asked about.
    fn end(&mut self, blocks: usize) -> usize {
        let state = std::mem::replace(&mut self.state, State::Ready);
        let unasked = blocks - std::mem::replace(&mut self.asked, blocks);
        match state {
            State::Asked { lacks, .. } | State::Lacks(lacks) | State::Giving { rest: lacks, .. } => {
                lacks.len() + unasked
            }
            State::Ready => unasked,
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
        let sides = (0..tiers.count()).map(|_| Side { state: State::Ready, asked: 0, is_given: false }).collect();
        Self { name, expires, blocks, sides, since: now, due: now + tiers.timeout }.advance(id, tiers)
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
        let side = &mut self.sides[tier];
        match (&mut side.state, outcome) {
            (State::Asked { left, lacks }, Outcome::Contained(_, answer)) => {
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
                side.state = State::Lacks(std::mem::take(lacks));
            }
            (State::Giving { left, rest }, Outcome::Put(put, result)) => {
                *left -= 1;
                let took = if result.is_ok() { &counters.put_blocks } else { &counters.failed_puts };
                took.add(1);
                if *left == 0 {
                    side.state = State::after(std::mem::take(rest));
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

    /// Continues without the tiers that are silent, and where a tier has room again; `None` if the
    /// put has ended.
    pub(super) fn pass_over_silent(mut self, id: JobId, tiers: &mut Tiers) -> Option<Self> {
        let (mut is_one_silent, blocks) = (false, self.blocks.len());
        for (tier, side) in self.sides.iter_mut().enumerate() {
            let has_no_room = || tiers.room(tier) == 0 && !side.is_done(blocks);
            if (side.left() > 0 || has_no_room()) && tiers.is_silent(tier, self.since) {
                tiers.pass_over(tier, id);
                let left = side.left();
                tiers.line.counters.failed_puts.add(left + side.end(blocks));
                is_one_silent = true;
            }
        }
        if is_one_silent || tiers.is_limited() { self.advance(id, tiers) } else { Some(self) }
    }

    /// Ends the put without the pending answers.
    pub(super) fn give_up(mut self, id: JobId, tiers: &mut Tiers) {
        tiers.forget(id);
        let blocks = self.blocks.len();
        tiers.line.counters.failed_puts.add(self.sides.iter_mut().map(|side| side.left() + side.end(blocks)).sum());
        self.end(tiers);
    }

    /// Asks a tier about the next blocks, as many as it has room for.
    fn ask(&mut self, tier: usize, id: JobId, tiers: &mut Tiers) {
        let side = &mut self.sides[tier];
        loop {
            let left = (self.blocks.len() - side.asked).min(tiers.room(tier));
            if left == 0 {
                return;
            }
            let items = side.asked..side.asked + left;
            let keys = self.blocks[items.clone()].iter().map(|(block, _)| block.key()).collect();
            if tiers.ask(tier, id, items.collect(), |tier| tier.contains(keys).map_err(|back| back.reason)) {
                side.asked += left;
                side.state = State::Asked { left, lacks: Vec::new() };
                self.since = Instant::now();
                self.due = self.since + tiers.timeout;
                return;
            }
            // A tier that accepts fewer at once is asked about fewer.
            if tiers.most(tier) >= left {
                tiers.line.counters.failed_puts.add(side.end(self.blocks.len()));
                return;
            }
        }
    }

    /// Gives the tiers that have answered the blocks that they lack, one tier after another; `None`
    /// if the put has ended.
    fn advance(mut self, id: JobId, tiers: &mut Tiers) -> Option<Self> {
        loop {
            if self.sides.iter().any(|side| matches!(side.state, State::Giving { .. })) {
                return Some(self);
            }
            if !self.is_current(tiers) {
                tiers.forget(id);
                self.take_back(id, tiers);
                break;
            }
            let blocks = self.blocks.len();
            let next = self.sides.iter_mut().enumerate().find_map(|(tier, side)| match &mut side.state {
                State::Lacks(lacks) if lacks.is_empty() || tiers.room(tier) > 0 => {
                    Some((tier, Some(std::mem::take(lacks))))
                }
                State::Ready if side.asked < blocks && tiers.room(tier) > 0 => Some((tier, None)),
                _ => None,
            });
            match next {
                Some((tier, Some(lacks))) => self.give(tier, id, lacks, tiers),
                Some((tier, None)) => self.ask(tier, id, tiers),
                None if self.sides.iter().any(|side| !side.is_done(blocks)) => return Some(self),
                None => break,
            }
        }
        self.end(tiers);
        None
    }

    /// Gives a tier the blocks that it lacks and whose buffers are here, as many as it has room for,
    /// with the time to live that is left.
    fn give(&mut self, tier: usize, id: JobId, mut lacks: Vec<usize>, tiers: &mut Tiers) {
        let time_to_live = self.expires.map(|expires| expires.saturating_duration_since(Instant::now()));
        let side = &mut self.sides[tier];
        if time_to_live.is_some_and(|left| left.is_zero()) {
            tiers.line.counters.stale_puts.add(lacks.len() + side.end(self.blocks.len()));
            return;
        }
        let rest = lacks.split_off(lacks.len().min(tiers.room(tier)));
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
            side.state = State::after(rest);
            return;
        }
        let put_from = |tier: &AnyTier| {
            tier.put_from(puts).map_err(|back| {
                refused = back.batch;
                back.reason
            })
        };
        if tiers.lend(tier, id, items.clone(), Lent::Puts, put_from) {
            side.state = State::Giving { left, rest };
            side.is_given = true;
            self.since = Instant::now();
            return;
        }
        let left_out = rest.len() + side.end(self.blocks.len());
        tiers.line.counters.failed_puts.add(left + left_out);
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
        for (tier, side) in self.sides.iter().enumerate().filter(|(_, side)| side.is_given) {
            let keys: Vec<_> = self.blocks[..side.asked].iter().map(|(block, _)| block.key()).collect();
            // Blocks whose removal a tier refuses stay in it, but no lookup uses their name any more.
            for keys in keys.chunks(tiers.most(tier)).map(<[_]>::to_vec) {
                tiers.ask_anyway(tier, id, vec![0; keys.len()], |tier| tier.remove(keys).map_err(|back| back.reason));
            }
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
