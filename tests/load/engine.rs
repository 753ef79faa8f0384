//! An engine as `docs/admission.md` describes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use radixkv::{BlockRequest, Lease, Namespace, PrefixCache, Reservation, ReserveError, Session, Token};

use crate::clock::Clock;
use crate::plan::{BLOCK_SIZE, BLOCKS, CHUNK, PHASE, Request, SCHEDULERS, STEP};
use crate::scheduler::{Preempted, Running, Scheduler};

/// How long a sequence waits to grow, before it makes room itself.
const PATIENCE: u64 = 2 * STEP;

/// How a request gets its first blocks.
#[derive(Clone, Copy)]
pub enum Admission {
    /// It waits with nothing.
    Acquire,
    /// It keeps the lease of its match while it waits for the other blocks.
    HoldAndWait,
}

// Where a request is when it ends.
pub const WAITING: usize = 0;
pub const RUNNING: usize = 1;
pub const GROWING: usize = 2;
pub const COMPLETED: usize = 3;
const PREEMPTED: usize = 4;

/// How requests ended.
#[derive(Debug, Default)]
pub struct Tally {
    pub completed: usize,
    /// Given up by their clients while they waited to be admitted, ran, or waited to grow.
    pub waiting: usize,
    pub running: usize,
    pub growing: usize,
    /// Times that a sequence made room for others.
    pub preempted: usize,
}

impl Tally {
    pub fn cancelled(&self) -> usize {
        self.waiting + self.running + self.growing
    }

    pub fn add(&mut self, other: Self) {
        self.completed += other.completed;
        self.waiting += other.waiting;
        self.running += other.running;
        self.growing += other.growing;
        self.preempted += other.preempted;
    }
}

/// What schedulers and clients share.
pub struct Engine {
    pub clock: Arc<Clock>,
    cache: PrefixCache,
    space: Namespace,
    schedulers: [Scheduler; SCHEDULERS],
    admission: Admission,
    counts: [AtomicUsize; 5],
}

/// A sequence that runs.
struct Sequence {
    session: Session,
    lease: Lease,
    own: Reservation,
    /// Tokens whose keys and values are there.
    computed: usize,
    /// Tokens of the prompt, and of the answer so far.
    known: usize,
}

impl Sequence {
    /// Tokens for which it has blocks.
    fn room(&self) -> usize {
        self.lease.len_tokens() + self.own.len() * BLOCK_SIZE
    }

    /// Caches the whole blocks that it has computed.
    fn publish(&mut self, tokens: &[Token]) {
        let whole = (self.computed - self.lease.len_tokens()) / BLOCK_SIZE;
        if whole > 0 {
            let blocks = self.own.split(whole);
            let inserted = self.session.insert(&self.lease, &tokens[..self.computed], blocks).expect("sound");
            self.lease = inserted.lease;
        }
    }
}

impl Engine {
    pub fn new(clock: Arc<Clock>, admission: Admission) -> Self {
        let cache = PrefixCache::builder(BLOCK_SIZE, BLOCKS).build().expect("valid");
        let (space, schedulers, counts) = (cache.default_namespace(), Default::default(), Default::default());
        Self { clock, cache, space, schedulers, admission, counts }
    }

    /// A scheduler's steps, until the last client has left.
    pub async fn schedule(self: Arc<Self>, index: usize, end: u64) {
        let mut time = index as u64 * PHASE;
        while time < end {
            self.clock.at(time).await;
            self.schedulers[index].step();
            time += STEP;
        }
    }

    /// A request, from its arrival to its last token.
    pub async fn serve(&self, request: &Request, place: &AtomicUsize) {
        let (tokens, mut known) = (&request.tokens, request.prompt);
        loop {
            place.store(WAITING, Relaxed);
            let mut sequence = self.admit(&tokens[..known]).await;
            place.store(RUNNING, Relaxed);
            let running = self.schedulers[request.scheduler()].run(request.number);
            let done = self.generate(request, &mut sequence, &running, place).await;
            sequence.publish(tokens);
            known = sequence.known;
            match done {
                Ok(()) => return,
                Err(Preempted) => self.count(PREEMPTED),
            }
        }
    }

    /// Waits for the blocks of the tokens that are known. The last one is computed in any case: its
    /// logits are wanted.
    async fn admit(&self, tokens: &[Token]) -> Sequence {
        let (session, known) = (self.cache.session(), tokens.len());
        let prompt = &tokens[..known - 1];
        let (lease, own) = match self.admission {
            Admission::Acquire => {
                let start = self.cache.acquire_async(&self.space, prompt, 1).await.expect("it fits");
                (start.hit.into_lease(), start.blocks)
            }
            Admission::HoldAndWait => {
                let hit = session.match_prefix(&self.space, prompt);
                let missing = known.div_ceil(BLOCK_SIZE) - hit.blocks().len();
                let request = BlockRequest::new(missing).paid_by(&self.space);
                (hit.into_lease(), self.cache.reserve_async(request).await.expect("it fits"))
            }
        };
        Sequence { session, computed: lease.len_tokens(), lease, own, known }
    }

    /// Computes what is missing, then a token in each step.
    async fn generate(
        &self,
        request: &Request,
        sequence: &mut Sequence,
        running: &Running<'_>,
        place: &AtomicUsize,
    ) -> Result<(), Preempted> {
        while sequence.computed < request.tokens.len() {
            let chunk = CHUNK.min(sequence.known - sequence.computed);
            if sequence.computed + chunk > sequence.room() {
                self.grow(request, sequence, place).await?;
            }
            running.step().await?;
            sequence.computed += chunk;
            if sequence.computed < sequence.known {
                sequence.publish(&request.tokens);
            } else {
                sequence.known = (sequence.known + 1).min(request.tokens.len());
            }
        }
        Ok(())
    }

    /// Gets one more block. At exhaustion every other scheduler lets the sequence that came last
    /// make room; those of the others wait for a while, and make room themselves if nothing helps.
    async fn grow(&self, request: &Request, sequence: &mut Sequence, place: &AtomicUsize) -> Result<(), Preempted> {
        let block = BlockRequest::new(1).paid_by(&self.space).for_running_sequence();
        match sequence.session.reserve(block) {
            Ok(block) => {
                sequence.own.append(block);
                return Ok(());
            }
            Err(refused) => assert!(matches!(refused, ReserveError::Exhausted { .. }), "{refused}"),
        }
        let scheduler = request.scheduler();
        if scheduler % 2 == 0 && self.schedulers[scheduler].preempt_last() == Some(request.number) {
            return Err(Preempted);
        }
        place.store(GROWING, Relaxed);
        let grown = self.clock.until(self.clock.now() + PATIENCE, self.cache.reserve_async(block)).await;
        place.store(RUNNING, Relaxed);
        sequence.own.append(grown.ok_or(Preempted)?.expect("a block fits"));
        Ok(())
    }

    pub fn count(&self, ended: usize) {
        self.counts[ended].fetch_add(1, Relaxed);
    }

    pub fn tally(&self) -> Tally {
        let [waiting, running, growing, completed, preempted] = self.counts.each_ref().map(|count| count.load(Relaxed));
        Tally { completed, waiting, running, growing, preempted }
    }

    /// Called when all clients have left.
    pub fn check_that_nothing_is_lost(&self) {
        self.cache.settle();
        self.cache.validate().expect("sound");
        let stats = self.cache.stats();
        assert_eq!((stats.reserved_blocks, stats.protected_blocks, stats.waiting_requests), (0, 0, 0));
        self.cache.evict(BLOCKS);
        assert_eq!(self.cache.stats().free_blocks, BLOCKS);
    }
}
