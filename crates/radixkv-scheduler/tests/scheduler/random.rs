//! Several schedulers in one thread, everything at random: steps that are computed, dropped or
//! forgotten side by side, forks, namespaces cleared and dropped, preemptions, aborts at any point,
//! dropped schedulers. Every read is checked, every accepted abort is listed once, and in the end
//! nothing is held.
//!
//! A failure prints its seed; `SCHEDULER_SEED=<seed>` runs it alone.

use std::collections::HashSet;
use std::mem;
use std::time::{Duration, Instant};

use fastrand::Rng;
use radixkv::PrefixCache;
use radixkv_scheduler::{
    Aborted, Finish, ForkError, Order, QueueConfig, Request, Scheduler, SchedulerConfig, SequenceId, Step,
};

use crate::engine::{World, continued, sequence};

const BLOCKS: usize = 60;
const OPERATIONS: usize = 400;
/// Rounds in a row that may serve no request at the end, when the test only steps.
const PATIENCE: usize = 64;

struct Driver {
    world: World,
    dice: Rng,
    submitted: u64,
    accepted: HashSet<SequenceId>,
    listed: HashSet<SequenceId>,
    ended: HashSet<SequenceId>,
}

impl Driver {
    fn new(seed: u64) -> Self {
        let mut dice = Rng::with_seed(seed);
        let orders = [Order::Fcfs, Order::LongestPrefix, Order::DfsWeight, Order::Priority];
        let order = dice.choice(orders).expect("one of them");
        let age_bound = dice.choice([0, 1, 4, 64, u64::MAX]).expect("one of them");
        let block_size = dice.choice([1, 4, 16]).expect("one of them");
        let world = World::with(
            PrefixCache::builder(block_size, BLOCKS),
            QueueConfig::default().order(order).age_bound(age_bound),
        );
        let (accepted, listed, ended) = Default::default();
        Self { world, dice, submitted: 0, accepted, listed, ended }
    }

    fn scheduler(&mut self) -> Scheduler {
        let max_running = self.dice.u32(1..=5);
        let max_chunk_tokens = self.dice.usize(1..=20);
        let min_copied_tokens = self.dice.choice([None, Some(1), Some(3)]).expect("one of them");
        let max_batch_tokens = max_chunk_tokens + max_running as usize;
        self.world.scheduler_of(
            SchedulerConfig::default()
                .max_running(max_running)
                .max_batch_tokens(max_batch_tokens)
                .max_chunk_tokens(max_chunk_tokens)
                .min_copied_tokens(min_copied_tokens),
        )
    }

    fn submit(&mut self) {
        let longest = BLOCKS * self.world.cache.block_size() / 2;
        let shared = sequence(self.dice.u32(1..=2), self.dice.usize(..longest / 2));
        let own = sequence(self.dice.u32(10..13), self.dice.usize(1..longest / 3));
        let new_tokens = self.dice.usize(1..=longest / 6);
        let spaces = [self.world.space.clone(), self.world.cache.namespace(&["adapter"])];
        let space = self.dice.choice(spaces).expect("one of them");
        let mut request = Request::new(space, [shared, own].concat(), new_tokens);
        request.priority = self.dice.i32(-3..3);
        request.publish = self.dice.u8(..8) > 0;
        self.world.queue.submit(request).expect("sound");
        self.submitted += 1;
    }

    /// Aborts some request, wherever it is.
    fn abort(&mut self) {
        let id = SequenceId::from(self.dice.u64(..self.submitted + 8));
        match self.world.queue.abort(id) {
            Aborted::Served => drop(self.accepted.insert(id)),
            Aborted::Waiting { .. } => assert!(self.ended.insert(id), "{id:?} waits although it has ended"),
            _ => {}
        }
    }

    fn list(&mut self, step: &Step<'_>) {
        for &id in step.aborted() {
            assert!(self.accepted.contains(&id) && self.listed.insert(id), "{id:?} is listed twice or was not aborted");
            assert!(step.sequence(id).is_none(), "{id:?} is listed and served");
        }
    }

    fn take_in(&mut self, step: Step<'_>) -> Vec<SequenceId> {
        match self.dice.u8(..12) {
            0 => {
                self.world.memory.ruin(&step);
                mem::forget(step);
            }
            1 => self.world.memory.ruin(&step),
            _ => {
                let sampled = self.world.memory.run(&step);
                if self.dice.u8(..8) == 0 {
                    self.abort();
                }
                return step.complete(&sampled).expect("a token for each row");
            }
        }
        Vec::new()
    }

    fn finish(&mut self, scheduler: &mut Scheduler, id: SequenceId) {
        let committed = self.dice.usize(..=scheduler.sequence(id).expect("served").computed_len());
        let (insert, demote_output) = (self.dice.u8(..4) > 0, self.dice.u8(..3) == 0);
        let done = scheduler.finish(id, Finish::keeping(committed).insert(insert).demote_output(demote_output));
        let done = done.expect("computed");
        let (prompt, output) = done.tokens.split_at(done.prompt_len);
        assert_eq!(done.tokens, continued(prompt, output.len()));
        assert!(self.ended.insert(id), "{id:?} has ended twice");
    }

    fn disturb(&mut self, scheduler: &mut Scheduler) {
        let Some(sequence) = self.dice.choice(scheduler.running()) else { return };
        let (id, len) = (sequence.id(), sequence.tokens().len());
        match self.dice.u8(..24) {
            0 | 1 => {
                assert_eq!(scheduler.abort(id), Aborted::Served);
                self.accepted.insert(id);
                assert!(scheduler.sequence(id).is_none());
            }
            2 => drop(scheduler.preempt(id)),
            3 => self.finish(scheduler, id),
            4..8 => match scheduler.fork(id, self.dice.usize(1..=len), self.dice.usize(..=3)) {
                Ok(ids) => self.submitted += ids.len() as u64,
                Err(ForkError::NoSlots { .. } | ForkError::NoBlocks(_)) => {}
                Err(refused) => panic!("{refused}"),
            },
            _ => {}
        }
    }

    fn disturb_all(&mut self) {
        match self.dice.u8(..24) {
            0 => self.world.cache.clear(),
            9 => self.world.cache.namespace(&["adapter"]).remove(),
            1 | 2 => drop(self.world.cache.evict(self.dice.usize(1..=9))),
            3..6 => {
                // All free blocks are taken and written to.
                let free = self.world.cache.stats().free_blocks;
                let taken = self.world.cache.session().reserve(free).expect("free");
                taken.blocks().iter().for_each(|&block| self.world.memory.spoil(block));
            }
            6..9 => self.abort(),
            _ => {}
        }
    }

    /// Each scheduler makes a step; all are scheduled before the first is computed.
    fn round(&mut self, schedulers: &mut [Scheduler]) -> bool {
        let mut steps: Vec<_> = schedulers.iter_mut().map(|scheduler| scheduler.schedule()).collect();
        let busy = steps.iter().any(|step| !step.is_empty() || !step.aborted().is_empty());
        steps.iter().for_each(|step| self.list(step));
        if self.dice.u8(..4) == 0 {
            self.abort();
        }
        self.dice.shuffle(&mut steps);
        let full: HashSet<_> = steps.into_iter().flat_map(|step| self.take_in(step)).collect();
        for scheduler in schedulers {
            let here: Vec<_> = scheduler.running().iter().map(|sequence| sequence.id()).collect();
            here.iter().filter(|id| full.contains(id)).for_each(|&id| self.finish(scheduler, id));
        }
        busy
    }

    fn run(&mut self) {
        let mut schedulers: Vec<_> = (0..self.dice.usize(1..=4)).map(|_| self.scheduler()).collect();
        for _ in 0..OPERATIONS {
            if self.dice.u8(..3) == 0 && self.world.queue.len() < 12 {
                self.submit();
            }
            if self.dice.u8(..40) == 0 {
                let at = self.dice.usize(..schedulers.len());
                schedulers[at] = self.scheduler();
            }
            self.round(&mut schedulers);
            self.disturb_all();
            let at = self.dice.usize(..schedulers.len());
            self.disturb(&mut schedulers[at]);
        }
        let mut idle = 0;
        while self.world.queue.unfinished_requests() > 0 {
            idle = if self.round(&mut schedulers) { 0 } else { idle + 1 };
            assert!(idle < PATIENCE, "no request is served in {PATIENCE} rounds");
        }
        self.round(&mut schedulers);
        assert_eq!(self.listed, self.accepted, "accepted aborts that were never listed");
        drop(schedulers);
        self.world.rest();
    }
}

fn run(seed: u64) {
    println!("seed {seed}");
    Driver::new(seed).run();
}

// Holds: SC5.
#[test]
fn several_schedulers_and_everything_at_once() {
    if let Some(seed) = std::env::var("SCHEDULER_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run(seed);
    }
    (1..=if cfg!(debug_assertions) { 60 } else { 300 }).for_each(run);
}

#[test]
#[ignore = "half a minute of random loads; run by ci/nightly.sh"]
fn several_schedulers_and_everything_at_once_for_long() {
    let began = Instant::now();
    (1_000..).take_while(|_| began.elapsed() < Duration::from_secs(30)).for_each(run);
}
