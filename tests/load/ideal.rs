//! The ideal: one thread that admits in the order of arrival, each request at the first moment at
//! which its blocks are free.

use std::collections::{BTreeMap, BTreeSet};

use radixkv::PolicyKind;
use radixkv_reference::{Lease, Reference, Reservation};

use crate::engine::Tally;
use crate::plan::{BLOCK_SIZE, BLOCKS, CHUNK, PHASE, Plan, Request, SCHEDULERS, STEP};

/// What happens at a moment.
#[derive(Clone, Copy)]
enum Event {
    Arrives(usize),
    Leaves(usize),
    Step(usize),
}

/// A sequence that runs, as in `engine`.
struct Sequence {
    lease: Lease,
    /// One by one.
    own: Vec<Reservation>,
    computed: usize,
    known: usize,
}

impl Sequence {
    fn room(&self) -> usize {
        self.lease.len_tokens() + self.own.len() * BLOCK_SIZE
    }
}

struct Ideal<'a> {
    plan: &'a Plan,
    cache: Reference,
    /// Those that have arrived and do not run, with the tokens that they know.
    waiting: BTreeMap<usize, usize>,
    running: BTreeMap<usize, Sequence>,
    tally: Tally,
}

/// How the planned requests end at best.
pub fn serve(plan: &Plan) -> Tally {
    let mut events = BTreeMap::new();
    for request in &plan.requests {
        events.insert(request.arrives, Event::Arrives(request.number));
        events.insert(request.leaves, Event::Leaves(request.number));
    }
    for scheduler in 0..SCHEDULERS {
        let steps = (scheduler as u64 * PHASE..plan.end()).step_by(STEP as usize);
        events.extend(steps.map(|time| (time, Event::Step(scheduler))));
    }
    let cache = Reference::new(BLOCK_SIZE, BLOCKS, PolicyKind::Lru);
    let mut ideal = Ideal { plan, cache, waiting: BTreeMap::new(), running: BTreeMap::new(), tally: Tally::default() };
    for (time, event) in events {
        ideal.cache.set_time(time);
        ideal.happens(event);
    }
    ideal.tally
}

impl Ideal<'_> {
    fn request(&self, number: usize) -> &Request {
        &self.plan.requests[number]
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives(number) => _ = self.waiting.insert(number, self.request(number).prompt),
            Event::Leaves(number) => self.leave(number),
            Event::Step(scheduler) => self.step(scheduler),
        }
        while self.admit_first() {}
    }

    /// Its client leaves, if it is not complete.
    fn leave(&mut self, number: usize) {
        if self.waiting.remove(&number).is_some() {
            self.tally.waiting += 1;
        } else if let Some(sequence) = self.running.remove(&number) {
            self.tally.running += 1;
            self.end(sequence);
        }
    }

    fn end(&mut self, sequence: Sequence) {
        self.cache.release(sequence.lease);
        sequence.own.into_iter().for_each(|block| self.cache.abort(block));
    }

    fn admit_first(&mut self) -> bool {
        let Some((&number, &known)) = self.waiting.first_key_value() else { return false };
        let hit = self.cache.match_prefix(&[], &self.plan.requests[number].tokens[..known - 1]);
        let Ok(mut blocks) = self.cache.reserve(known.div_ceil(BLOCK_SIZE) - hit.blocks.len()) else {
            self.cache.release(hit.lease);
            return false;
        };
        let own = (0..blocks.blocks().len()).map(|_| blocks.split(1)).collect();
        let computed = hit.lease.len_tokens();
        self.running.insert(number, Sequence { lease: hit.lease, own, computed, known });
        self.waiting.remove(&number);
        true
    }

    /// Every sequence of a scheduler goes on by a step, for which it got its blocks when the step
    /// before had ended.
    fn step(&mut self, scheduler: usize) {
        let of_it = |number: &usize| self.request(*number).scheduler() == scheduler;
        let numbers: BTreeSet<_> = self.running.keys().copied().filter(of_it).collect();
        for &number in &numbers {
            // It may have been preempted by one before it.
            let Some(mut sequence) = self.running.remove(&number) else { continue };
            let tokens = self.request(number).tokens.len();
            sequence.computed += CHUNK.min(sequence.known - sequence.computed);
            let in_prompt = sequence.computed < sequence.known;
            let complete = sequence.computed == tokens;
            if in_prompt || complete {
                self.publish(number, &mut sequence);
            }
            if complete {
                self.tally.completed += 1;
                self.end(sequence);
                continue;
            }
            sequence.known += usize::from(!in_prompt);
            self.running.insert(number, sequence);
            self.grow(number, scheduler);
        }
    }

    /// Gets the block for the next token; the sequence of its scheduler that came last makes room.
    fn grow(&mut self, number: usize, scheduler: usize) {
        while let Some(sequence) = self.running.get_mut(&number).filter(|sequence| sequence.known > sequence.room()) {
            if let Ok(block) = self.cache.reserve(1) {
                sequence.own.push(block);
                return;
            }
            let of_it = |number: &&usize| self.request(**number).scheduler() == scheduler;
            let last = *self.running.keys().rev().find(of_it).expect("this one at least");
            let mut sequence = self.running.remove(&last).expect("it runs");
            self.publish(last, &mut sequence);
            self.waiting.insert(last, sequence.known);
            self.tally.preempted += 1;
            self.end(sequence);
        }
    }

    /// Caches the whole blocks that it has computed.
    fn publish(&mut self, number: usize, sequence: &mut Sequence) {
        while sequence.computed - sequence.lease.len_tokens() >= BLOCK_SIZE {
            let end = sequence.lease.len_tokens() + BLOCK_SIZE;
            let tokens = &self.plan.requests[number].tokens[..end];
            let inserted = self.cache.insert(&sequence.lease, tokens, sequence.own.remove(0)).expect("sound");
            self.cache.release(std::mem::replace(&mut sequence.lease, inserted.lease));
            self.cache.abort(inserted.duplicates);
        }
    }
}
