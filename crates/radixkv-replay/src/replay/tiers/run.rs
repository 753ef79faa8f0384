//! Serves a trace from instances over one host tier, one request after the other.

use std::{
    collections::TryReserveError,
    sync::Arc,
    time::{Duration, Instant},
};

use radixkv::{Clock, Namespace, PrefixCache, Stats, Token};
use radixkv_host::{HostTier, NoCopies, Onboarding, RemoteWait, TieredCache, TieredSession, TieredStart};

use super::{TierReport, Tiers, remote::Names, report::Peaks, sizes::Sizes};
use crate::{
    replay::{config::ReplayConfig, error::ReplayError, outcome::Outcome, tally::Tally, worker::Served},
    request::{Request, Trace},
};

/// Longer than any replay: no timeout may influence the result.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// The state of a replay over a host tier.
struct Run<'a> {
    trace: &'a Trace,
    config: &'a ReplayConfig,
    tiers: &'a Tiers,
    host: HostTier,
    remote: Option<Remote>,
    caches: Vec<TieredCache>,
    sessions: Vec<(TieredSession, Namespace)>,
    /// Larger requests are bypassed.
    max_blocks: usize,
    tally: Tally,
    tokens: Vec<Token>,
    peaks: Peaks,
}

/// A remote tier, and its capacity in blocks.
struct Remote {
    names: Arc<Names>,
    capacity: usize,
}

/// Replays the trace. Returns the sums over the instances, the counts, and the report of the tiers.
pub(in crate::replay) fn run(
    trace: &Trace,
    config: &ReplayConfig,
    tiers: &Tiers,
    warm_up: usize,
    watch: &(dyn Fn(Served<'_>) + Sync),
) -> Result<(Stats, Tally, TierReport), ReplayError> {
    let mut run = Run::new(trace, config, tiers)?;
    for (number, request) in trace.requests().iter().enumerate() {
        let (instance, outcome) = run.serve(number, request)?;
        run.tally.served(number, outcome)?;
        let (cache, host) = (run.caches[instance].cache(), Some(&run.host));
        watch(Served { number, outcome: &outcome, cache, host });
    }
    Ok(run.end(warm_up))
}

impl<'a> Run<'a> {
    fn new(trace: &'a Trace, config: &'a ReplayConfig, tiers: &'a Tiers) -> Result<Self, ReplayError> {
        let sizes = Sizes::new(trace, config, tiers)?;
        let Sizes { device, max_blocks, .. } = sizes;
        config.clone().longest(max_blocks).check_sizes(trace, sizes.all(tiers.instances))?;
        let (host, remote) = Self::below(&sizes)?;
        let mut caches = Vec::with_capacity(tiers.instances);
        for _ in 0..tiers.instances {
            let cache = PrefixCache::builder(config.block_size, device).policy(config.policy).clock(Clock::Logical);
            let cache = cache.build().map_err(ReplayError::Build)?;
            let tiered = TieredCache::builder(&cache, &host, NoCopies).mode(tiers.mode).write_policy(tiers.write);
            caches.push(tiered.remote_wait(RemoteWait::All).build()?);
        }
        let session = |tiered: &TieredCache| (tiered.session(), tiered.cache().default_namespace());
        let sessions = caches.iter().map(session).collect();
        let (tally, tokens, peaks) = (Tally::new(), Vec::new(), Peaks::default());
        Ok(Self { trace, config, tiers, host, remote, caches, sessions, max_blocks, tally, tokens, peaks })
    }

    /// Builds the host tier, and the remote one if it is configured.
    fn below(sizes: &Sizes) -> Result<(HostTier, Option<Remote>), ReplayError> {
        // The blocks that one request onboards make room for those that it offloads.
        let host = HostTier::builder(sizes.host_block_size, sizes.host).staging(sizes.max_host_blocks());
        let Some(capacity) = sizes.remote else { return Ok((host.build()?, None)) };
        // A remote tier refuses blocks without bytes: one byte for each block of the device in
        // them.
        let block_bytes = (sizes.host_block_size / sizes.block_size).max(1);
        let names = Arc::new(Names::new(sizes.host_block_size, block_bytes)?);
        let host = host.block_bytes(block_bytes).remote(Arc::clone(&names));
        let host = host.remote_in_flight(usize::MAX).remote_timeout(FOREVER).build()?;
        Ok((host, Some(Remote { names, capacity })))
    }

    /// Serves a request; returns the index of its instance, and its outcome.
    fn serve(&mut self, number: usize, request: &Request) -> Result<(usize, Outcome), ReplayError> {
        let block_size = self.config.block_size;
        let key_tokens = request.key_tokens(self.config.outputs);
        // Smaller host blocks may be hit within the last block, which the key does not fill.
        let is_exact = self.host.block_size() < block_size;
        let length = if is_exact { key_tokens } else { key_tokens / block_size * block_size };
        let mut outcome = Outcome { row: request.row(), prompt_tokens: request.prompt_tokens(), ..Outcome::BYPASSED };
        let is_bypassed = length.div_ceil(block_size) > self.max_blocks;
        if !is_bypassed {
            self.prepare(request, length)?;
        }
        let known = if is_bypassed { &[][..] } else { &self.tokens[..length] };
        let instance = self.tiers.route.choose(number, known, &self.sessions);
        if !is_bypassed {
            self.start(number, request, length, instance, &mut outcome)?;
        }
        let stats = self.caches[instance].cache().stats();
        self.tally.sample(&stats, block_size);
        outcome.cached_blocks = (stats.evictable_blocks + stats.protected_blocks) as u32;
        outcome.protected_blocks = stats.protected_blocks as u32;
        self.peaks.host = self.peaks.host.max(self.host.cached_blocks());
        if let Some(Remote { names, capacity }) = &self.remote {
            self.host.settle_remote(FOREVER);
            names.keep_to(*capacity);
            self.peaks.remote = self.peaks.remote.max(names.blocks());
        }
        Ok((instance, outcome))
    }

    /// Makes the first `length` tokens of a request.
    fn prepare(&mut self, request: &Request, length: usize) -> Result<(), TryReserveError> {
        if self.tokens.len() < length {
            self.tokens.try_reserve_exact(length - self.tokens.len())?;
            self.tokens.resize(length, 0);
        }
        self.trace.fill(request, &mut self.tokens[..length]);
        Ok(())
    }

    /// Matches, onboards from the tiers below, and inserts the rest.
    fn start(
        &mut self,
        number: usize,
        request: &Request,
        length: usize,
        instance: usize,
        outcome: &mut Outcome,
    ) -> Result<(), ReplayError> {
        let (block_size, tokens) = (self.config.block_size, &self.tokens[..length]);
        let (session, namespace) = &self.sessions[instance];
        self.caches[instance].cache().set_time(2 * number as u64 + 1);
        let began = Instant::now();
        let found = session.match_prefix(namespace, tokens);
        self.tally.matches.record(began.elapsed());
        if let Some(fetch) = found.remote() {
            fetch.wait(RemoteWait::All);
        }
        let missing = length.div_ceil(block_size) - found.device().blocks().len();
        let evicts = missing > self.caches[instance].cache().stats().free_blocks;
        let began = Instant::now();
        let start = session.begin(namespace, tokens, 0, found).map(Onboarding::wait);
        if evicts {
            self.tally.evictions.record(began.elapsed());
        }
        let refused = |source| ReplayError::Refused { row: request.row(), source };
        let TieredStart { lease, cached, mut blocks, device_tokens, host_tokens, remote_tokens, .. } =
            start.map_err(refused)?;
        let whole = length / block_size;
        let missing = blocks.split(whole - cached.len());
        self.tally.inserted_blocks += (cached.len() - device_tokens / block_size + missing.len()) as u64;
        if !missing.is_empty() {
            let began = Instant::now();
            let inserted = session.insert(namespace, &lease, &tokens[..whole * block_size], missing);
            self.tally.inserts.record(began.elapsed());
            drop(inserted.map_err(|error| ReplayError::NotInserted { row: request.row(), kind: error.kind })?);
        }
        let found_tokens = device_tokens + host_tokens + remote_tokens;
        outcome.hit_blocks = Some((found_tokens / block_size) as u32);
        outcome.tail_tokens = (found_tokens % block_size) as u32;
        outcome.host_tokens = host_tokens as u32;
        outcome.remote_tokens = remote_tokens as u32;
        let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
        outcome.fetch_ns = nanoseconds(self.tiers.remote_seconds(remote_tokens));
        let copied = nanoseconds(self.tiers.seconds(host_tokens + remote_tokens));
        outcome.copy_ns = outcome.fetch_ns.saturating_add(copied);
        Ok(())
    }

    fn end(self, warm_up: usize) -> (Stats, Tally, TierReport) {
        let mut totals = Stats::default();
        for tiered in &self.caches {
            tiered.cache().settle();
            let stats = tiered.cache().stats();
            totals.capacity_blocks += stats.capacity_blocks;
            totals.free_blocks += stats.free_blocks;
            totals.evicted_blocks += stats.evicted_blocks;
            totals.index_bytes += stats.index_bytes;
        }
        let copied: Vec<_> = self.caches.iter().map(TieredCache::stats).collect();
        let (tally, block_size) = (self.tally, self.config.block_size);
        let mut report =
            TierReport::new(self.tiers, &self.host, block_size, &tally.outcomes, warm_up, &copied, self.peaks.host);
        if let Some(Remote { names, capacity }) = &self.remote {
            report.add_remote(self.tiers, &self.host, names, *capacity, &tally.outcomes[warm_up..], self.peaks.remote);
        }
        (totals, tally, report)
    }
}
