//! Serves requests on one thread.
//!
//! # Refusals
//!
//! With several threads a reservation may be refused because leases of other threads protect too
//! many blocks. The replay still ends. A refused thread first drops the leases of its other
//! requests, one by one, then everything it holds, and acquires the *retry lock*, under which one
//! thread at a time retries. Every other thread either serves requests until none is left, or is
//! refused and waits for the lock while it holds nothing. In the end the lock holder finds every
//! block evictable, and no request is larger than the cache.

mod service;

use std::{
    collections::{BTreeMap, TryReserveError},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crossbeam_utils::Backoff;
use radixkv::{BlockId, Lease, Namespace, PrefixCache, Reservation, ReserveError, Session, Stats, Token};
use radixkv_host::HostTier;

use super::{
    config::{CacheKind, ReplayConfig},
    error::ReplayError,
    outcome::Outcome,
    stamps::{Mismatch, Stamps, stamp},
    tally::{Held, Tally},
};
use crate::request::{Request, Trace};

/// Number of requests that run concurrently on each of several threads.
const RUNNING: usize = 4;
/// How many requests a thread serves from one sample of memory and leases to the next. A sample
/// takes a pass over all that could be evicted.
const SAMPLE_EVERY: usize = 64;
/// How long the lock holder may be refused; other threads finish a request in far less time.
const RETRY_LIMIT: Duration = Duration::from_secs(60);

/// A request that was just served, and the cache after it.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
///
/// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
///
/// let most = AtomicUsize::new(0);
/// let watch = |served: replay::Served<'_>| {
///     most.fetch_max(served.cache.stats().points, Relaxed);
/// };
/// replay::replay_watched(&CLASSES[2].trace(0), &ReplayConfig::default(), &watch)?;
/// assert!(most.into_inner() > 0);
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Served<'a> {
    /// The request's number in the order of the trace.
    pub number: usize,
    /// The outcome of the request.
    pub outcome: &'a Outcome,
    /// The cache that served it.
    pub cache: &'a PrefixCache,
    /// The host tier below the cache, if there is one.
    pub host: Option<&'a HostTier>,
}

/// The state that the threads of a replay share.
pub(super) struct ReplayShared<'a> {
    trace: &'a Trace,
    config: &'a ReplayConfig,
    cache: &'a PrefixCache,
    watch: &'a (dyn Fn(Served<'_>) + Sync),
    /// Whether requests that still run when the last one was served keep their leases.
    stops_running: bool,
    /// Larger requests are bypassed.
    max_blocks: usize,
    stamps: Option<Stamps>,
    /// Held by the one thread that retries after a refusal.
    retry: Mutex<()>,
}

impl<'a> ReplayShared<'a> {
    pub(super) fn new(
        trace: &'a Trace,
        config: &'a ReplayConfig,
        capacity: usize,
        cache: &'a PrefixCache,
        watch: &'a (dyn Fn(Served<'_>) + Sync),
        stops_running: bool,
    ) -> Result<Self, TryReserveError> {
        let max_blocks = config.max_blocks(capacity);
        let stamps = config.verify.then(|| Stamps::new(capacity)).transpose()?;
        Ok(Self { trace, config, cache, watch, stops_running, max_blocks, stamps, retry: Mutex::new(()) })
    }

    pub(super) fn threads(&self) -> usize {
        self.config.threads
    }
}

/// The result of one attempt to serve a request.
enum Attempt {
    /// The request is served; the number of its blocks that were cached.
    Served(usize),
    /// The cache refused the blocks that the request needs; the attempt holds nothing.
    Refused(ReserveError),
}

/// One thread of a replay.
pub(super) struct Worker<'a> {
    shared: &'a ReplayShared<'a>,
    session: Session,
    namespace: Namespace,
    tally: Tally,
    /// The current request's tokens at the front; the rest is left over from a longer request.
    tokens: Vec<Token>,
    /// The blocks that a match or an insert returned.
    blocks: Vec<BlockId>,
    stamps: Vec<u64>,
    /// The leases that are held. The key is the number of the last request during which the lease
    /// is held, then the number of the lease's own request.
    running: BTreeMap<(usize, usize), Lease>,
    /// The statistics at the last sample; a reservation of more than `free_blocks` counts as
    /// evicting.
    stats: Stats,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a ReplayShared<'a>) -> Self {
        Self {
            shared,
            session: shared.cache.session(),
            namespace: shared.cache.default_namespace(),
            tally: Tally::new(),
            tokens: Vec::new(),
            blocks: Vec::new(),
            stamps: Vec::new(),
            running: BTreeMap::new(),
            stats: shared.cache.stats(),
        }
    }

    /// Serves requests until `next` returns `None`.
    pub(super) fn run(mut self, next: impl Fn() -> Option<usize>) -> Result<Tally, ReplayError> {
        if let Some(service) = self.shared.config.service {
            self.run_in_trace_time(service, next)?;
            return Ok(self.tally);
        }
        while let Some(number) = next() {
            let request = &self.shared.trace.requests()[number];
            while self.running.first_key_value().is_some_and(|(&(end, _), _)| end < number) {
                self.running.pop_first();
            }
            let hit_blocks = self.serve(number, request)?;
            let outcome = self.outcome(request, hit_blocks.map(|blocks| blocks as u32));
            self.served(number, outcome)?;
        }
        let held = |(&(_, number), lease): (&(usize, usize), &Lease)| Held { number, tokens: lease.len_tokens() };
        self.tally.held = self.running.iter().map(held).collect();
        Ok(self.tally)
    }

    /// The outcome of a request. Of one thread the blocks in use are exact, of several those of the
    /// last sample.
    fn outcome(&mut self, request: &Request, hit_blocks: Option<u32>) -> Outcome {
        let ReplayShared { config, cache, .. } = *self.shared;
        // Without leases, all that is not free is evictable: one read instead of a pass.
        let is_alone = self.shared.threads() == 1;
        let holds_leases = config.hold || config.service.is_some();
        if is_alone && holds_leases || (self.tally.outcomes.len() + 1) % SAMPLE_EVERY == 0 {
            self.stats = cache.stats();
            self.tally.sample(&self.stats, config.block_size);
        } else if is_alone {
            self.stats.free_blocks = cache.free_blocks();
            self.stats.evictable_blocks = self.stats.capacity_blocks - self.stats.free_blocks;
            self.stats.protected_blocks = 0;
            self.tally.peak_blocks = self.tally.peak_blocks.max(self.stats.evictable_blocks);
        }
        let Stats { evictable_blocks, protected_blocks, .. } = self.stats;
        Outcome {
            row: request.row(),
            prompt_tokens: request.prompt_tokens(),
            hit_blocks,
            cached_blocks: (evictable_blocks + protected_blocks) as u32,
            protected_blocks: protected_blocks as u32,
            ..Outcome::BYPASSED
        }
    }

    /// Counts a request and calls `watch`.
    fn served(&mut self, number: usize, outcome: Outcome) -> Result<(), ReplayError> {
        self.tally.served(number, outcome)?;
        (self.shared.watch)(Served { number, outcome: &outcome, cache: self.shared.cache, host: None });
        Ok(())
    }

    /// Serves one request and returns the number of its blocks that were cached; `None` if the
    /// request was bypassed.
    fn serve(&mut self, number: usize, request: &Request) -> Result<Option<usize>, ReplayError> {
        let ReplayShared { config, cache, .. } = *self.shared;
        let blocks = request.key_tokens(config.outputs) / config.block_size;
        if blocks > self.shared.max_blocks {
            return Ok(None);
        }
        let length = blocks * config.block_size;
        self.prepare(request, length)?;
        if config.is_deterministic() {
            cache.set_time(2 * number as u64 + 1);
        }
        match self.attempt(number, request, length)? {
            Attempt::Served(hit) => Ok(Some(hit)),
            Attempt::Refused(_) => self.serve_alone(number, request, length).map(Some),
        }
    }

    /// Makes the first `length` tokens of a request, and their stamps if hits are verified.
    fn prepare(&mut self, request: &Request, length: usize) -> Result<(), TryReserveError> {
        if self.tokens.len() < length {
            self.tokens.try_reserve_exact(length - self.tokens.len())?;
            self.tokens.resize(length, 0);
        }
        self.shared.trace.fill(request, &mut self.tokens[..length]);
        if self.shared.config.verify {
            stamp(&self.tokens[..length], self.shared.config.block_size, &mut self.stamps)?;
        }
        Ok(())
    }

    /// Retries under the retry lock until the request is served, holding nothing between attempts.
    fn serve_alone(&mut self, number: usize, request: &Request, length: usize) -> Result<usize, ReplayError> {
        // The lock guards no data, so a panic cannot leave any inconsistent.
        let _alone = self.shared.retry.lock().unwrap_or_else(PoisonError::into_inner);
        let (entered, backoff) = (Instant::now(), Backoff::new());
        loop {
            match self.attempt(number, request, length)? {
                Attempt::Served(hit) => return Ok(hit),
                Attempt::Refused(source) if self.shared.threads() == 1 || entered.elapsed() > RETRY_LIMIT => {
                    return Err(ReplayError::Refused { row: request.row(), source });
                }
                Attempt::Refused(_) => backoff.snooze(),
            }
        }
    }

    fn attempt(&mut self, number: usize, request: &Request, length: usize) -> Result<Attempt, ReplayError> {
        match self.shared.config.cache {
            CacheKind::Radix => self.attempt_radix(number, request, length),
            CacheKind::Naive => Ok(self.attempt_naive(length)),
        }
    }

    /// Matches, reserves the missing blocks, inserts, and keeps the lease while the request runs.
    fn attempt_radix(&mut self, number: usize, request: &Request, length: usize) -> Result<Attempt, ReplayError> {
        let blocks = length / self.shared.config.block_size;
        let (lease, hit) = self.look_up(request, length);
        if hit == blocks {
            self.keep(number, request, lease);
            return Ok(Attempt::Served(hit));
        }
        let reservation = match self.reserve(blocks - hit) {
            Ok(reservation) => reservation,
            Err(refusal) => return Ok(Attempt::Refused(refusal)),
        };
        self.stamp_reserved(&reservation, hit)?;
        let lease = self.insert(request, &lease, reservation, blocks)?;
        self.keep(number, request, lease);
        Ok(Attempt::Served(hit))
    }

    /// Matches the first `length` prepared tokens, and returns the lease and its number of blocks.
    fn look_up(&mut self, request: &Request, length: usize) -> (Lease, usize) {
        let began = Instant::now();
        let lease = self.session.match_prefix_into(&self.namespace, &self.tokens[..length], &mut self.blocks);
        self.tally.matches.record(began.elapsed());
        let hit = lease.len_tokens() / self.shared.config.block_size;
        self.verify(request, 0, hit);
        (lease, hit)
    }

    /// Writes the stamps of reserved blocks that follow the first `hit` blocks of the request.
    fn stamp_reserved(&self, reservation: &Reservation, hit: usize) -> Result<(), TryReserveError> {
        self.shared.stamps.as_ref().map_or(Ok(()), |stamps| stamps.write(reservation.blocks(), &self.stamps[hit..]))
    }

    /// Inserts the first `blocks` blocks of a request, of which `lease` covers a prefix.
    fn insert(
        &mut self,
        request: &Request,
        lease: &Lease,
        reservation: Reservation,
        blocks: usize,
    ) -> Result<Lease, ReplayError> {
        let block_size = self.shared.config.block_size;
        let (from, missing) = (lease.len_tokens() / block_size, reservation.len());
        let began = Instant::now();
        let inserted = self.session.insert(lease, &self.tokens[..blocks * block_size], reservation);
        self.tally.inserts.record(began.elapsed());
        let inserted = inserted.map_err(|error| ReplayError::NotInserted { row: request.row(), kind: error.kind })?;
        self.tally.inserted_blocks += (missing - inserted.duplicates.blocks().len()) as u64;
        self.blocks = inserted.blocks;
        self.verify(request, from, blocks);
        Ok(inserted.lease)
    }

    /// Reserves blocks for the whole request and returns them.
    fn attempt_naive(&mut self, length: usize) -> Attempt {
        match self.reserve(length / self.shared.config.block_size) {
            Ok(reservation) => {
                self.tally.peak_blocks = self.tally.peak_blocks.max(reservation.blocks().len());
                Attempt::Served(0)
            }
            Err(refusal) => Attempt::Refused(refusal),
        }
    }

    /// Reserves blocks; while they are short, drops leases of other requests one by one.
    fn reserve(&mut self, blocks: usize) -> Result<Reservation, ReserveError> {
        loop {
            let began = Instant::now();
            let reserved = self.session.reserve(blocks);
            if blocks > self.stats.free_blocks {
                self.tally.evictions.record(began.elapsed());
            }
            match reserved {
                Err(ReserveError::Exhausted { .. }) if !self.running.is_empty() => {
                    self.running.pop_first();
                    self.tally.given_up += 1;
                }
                result => return result,
            }
        }
    }

    /// Gives a request's prefix its priority, and keeps the lease while the request runs: with
    /// `hold`, for as many steps as it generates tokens; otherwise with several threads until
    /// [`RUNNING`] others were served, and with one thread not at all.
    fn keep(&mut self, number: usize, request: &Request, lease: Lease) {
        self.prioritize(request, &lease);
        if self.shared.config.hold {
            self.running.insert((number + request.output_tokens(), number), lease);
        } else if self.shared.threads() > 1 {
            self.running.insert((usize::MAX, number), lease);
            if self.running.len() > RUNNING {
                self.running.pop_first();
            }
        }
    }

    /// Gives the leased prefix the priority of its request.
    fn prioritize(&self, request: &Request, lease: &Lease) {
        if let Some(priority) = request.priority() {
            self.session.prioritize(lease, priority);
        }
    }

    /// Checks that `self.blocks` hold blocks `from..to` of the request.
    fn verify(&mut self, request: &Request, from: usize, to: usize) {
        let Some(stamps) = &self.shared.stamps else {
            return;
        };
        for at in stamps.check(&self.blocks, &self.stamps[from..to]) {
            let block = self.blocks.get(at).copied().unwrap_or(BlockId::MAX);
            self.tally.mismatched(Mismatch { row: request.row(), at: from + at, block });
        }
    }
}
