//! Putting blocks: tier after tier is asked which it has, and given the others. A buffer goes from one tier to the next.

use std::time::{Duration, Instant};

use radixkv_tiers::{Block, Outcome, Put};

use super::{
    line::PutOrder,
    name::RemoteName,
    worker::{JobId, Tiers},
};

/// Blocks that are being put.
#[derive(Debug)]
pub(super) struct Putting {
    name: RemoteName,
    time_to_live: Option<Duration>,
    /// Each block, and its bytes while they are here.
    blocks: Vec<(Block, Option<Vec<u8>>)>,
    tier: usize,
    step: Step,
    due: Instant,
}

#[derive(Debug)]
enum Step {
    /// Answers that are to come, and which blocks the tier lacks.
    Asking { left: usize, lacks: Vec<usize> },
    /// Blocks that the tier is being given.
    Giving { left: usize },
}

impl Putting {
    /// Begins; none if it has ended.
    pub(super) fn begin(id: JobId, order: PutOrder, tiers: &mut Tiers) -> Option<Self> {
        let PutOrder { name, tokens, blocks, time_to_live } = order;
        let keys = tiers.keys.blocks(&name, &tokens);
        let blocks = blocks.into_iter().map(|(number, bytes)| (keys[number].clone(), Some(bytes))).collect();
        let due = Instant::now() + tiers.timeout;
        let step = Step::Giving { left: 0 };
        Self { name, time_to_live, blocks, tier: 0, step, due }.ask_from(0, id, tiers)
    }

    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// An item of its batches was completed; none if it has ended.
    pub(super) fn complete(
        mut self,
        id: JobId,
        item: usize,
        outcome: Outcome<Vec<u8>>,
        tiers: &mut Tiers,
    ) -> Option<Self> {
        let counters = &tiers.line.counters;
        match (&mut self.step, outcome) {
            (Step::Asking { left, lacks }, Outcome::Contained(_, answer)) => {
                *left -= 1;
                match answer {
                    Ok(true) => counters.present_blocks.add(1),
                    Ok(false) => lacks.push(item),
                    Err(_) => counters.failed_puts.add(1),
                }
                if *left == 0 {
                    let lacks = std::mem::take(lacks);
                    return self.give(id, lacks, tiers);
                }
            }
            (Step::Giving { left }, Outcome::Put(put, result)) => {
                *left -= 1;
                let took = if result.is_ok() { &counters.put_blocks } else { &counters.failed_puts };
                took.add(1);
                let is_last = *left == 0;
                self.take_buffer(item, put, tiers);
                if is_last {
                    return self.next_tier(id, tiers);
                }
            }
            _ => {}
        }
        Some(self)
    }

    /// Gives up what has no answer.
    pub(super) fn give_up(self, id: JobId, tiers: &mut Tiers) {
        if matches!(self.step, Step::Asking { .. }) {
            tiers.forget(id);
        }
        let (Step::Asking { left, .. } | Step::Giving { left }) = self.step;
        tiers.line.counters.failed_puts.add(left);
        self.end(tiers);
    }

    /// Asks a tier, or the next one that takes the question.
    fn ask_from(mut self, first: usize, id: JobId, tiers: &mut Tiers) -> Option<Self> {
        if !self.is_current(tiers) {
            tiers.line.counters.stale_puts.add(self.blocks.len());
            self.end(tiers);
            return None;
        }
        for tier in first..tiers.count() {
            let keys = self.blocks.iter().map(|(block, _)| block.key()).collect();
            if tiers.submit(tier, id, (0..self.blocks.len()).collect(), |tier| tier.contains(keys).ok()) {
                self.tier = tier;
                self.step = Step::Asking { left: self.blocks.len(), lacks: Vec::new() };
                return Some(self);
            }
            tiers.line.counters.failed_puts.add(self.blocks.len());
        }
        self.end(tiers);
        None
    }

    /// Gives the tier what it lacks.
    fn give(mut self, id: JobId, lacks: Vec<usize>, tiers: &mut Tiers) -> Option<Self> {
        if lacks.is_empty() || !self.is_current(tiers) {
            return self.next_tier(id, tiers);
        }
        let (count, time_to_live) = (lacks.len(), self.time_to_live);
        let puts = lacks.iter().filter_map(|&item| {
            let (block, bytes) = &mut self.blocks[item];
            Some(Put { block: block.clone(), buffer: bytes.take()?, time_to_live })
        });
        let (puts, mut refused): (Vec<_>, _) = (puts.collect(), Vec::new());
        let taken = tiers
            .submit(self.tier, id, lacks.clone(), |tier| tier.put_from(puts).map_err(|back| refused = back.batch).ok());
        if taken {
            self.step = Step::Giving { left: count };
            return Some(self);
        }
        tiers.line.counters.failed_puts.add(count);
        // None are back if the tier panicked.
        tiers.line.lose_puts(count.saturating_sub(refused.len()));
        for (item, put) in lacks.into_iter().zip(refused) {
            self.take_buffer(item, put, tiers);
        }
        self.next_tier(id, tiers)
    }

    /// Takes an item's buffer back, for the next tier; what is not the item's goes no further.
    fn take_buffer(&mut self, item: usize, put: Put<Vec<u8>>, tiers: &Tiers) {
        let (block, bytes) = &mut self.blocks[item];
        if tiers.is_whole(block, &put.block, &put.buffer) {
            *bytes = Some(put.buffer);
        } else {
            tiers.line.give_put(put.buffer);
        }
    }

    fn next_tier(mut self, id: JobId, tiers: &mut Tiers) -> Option<Self> {
        if !self.is_current(tiers) {
            self.take_back(id, tiers);
        }
        // A buffer that a tier kept is no more.
        self.blocks.retain(|(_, bytes)| bytes.is_some());
        let next = self.tier + 1;
        if next < tiers.count() && !self.blocks.is_empty() {
            return self.ask_from(next, id, tiers);
        }
        self.end(tiers);
        None
    }

    /// Removes what was put: the namespace was cleared or kept out meanwhile.
    fn take_back(&self, id: JobId, tiers: &mut Tiers) {
        for tier in 0..=self.tier {
            let keys: Vec<_> = self.blocks.iter().map(|(block, _)| block.key()).collect();
            tiers.submit(tier, id, vec![0; keys.len()], |tier| tier.remove(keys).ok());
        }
    }

    fn is_current(&self, tiers: &Tiers) -> bool {
        tiers.host.upgrade().is_some_and(|host| host.lock().generations.is_current(&self.name))
    }

    fn end(self, tiers: &mut Tiers) {
        self.blocks.into_iter().filter_map(|(_, bytes)| bytes).for_each(|bytes| tiers.line.give_put(bytes));
        tiers.line.ended(false);
    }
}
