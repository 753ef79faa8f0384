//! The configuration of a replay.

use radixkv::PolicyKind;

use super::{
    capacity::Capacity,
    error::ReplayError,
    tiers::Tiers,
    trace_time::{Service, TimeUnit, WarmUp},
};

/// The maximum number of threads of a replay: far more than a machine has cores, far fewer than a
/// system can run.
pub const MAX_THREADS: usize = 1024;

/// What serves the requests: the prefix cache or a baseline.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay::CacheKind};
///
/// let baseline = ReplayConfig::default().cache(CacheKind::Naive);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CacheKind {
    /// The prefix cache.
    #[default]
    Radix,
    /// The baseline without reuse: every request reserves all its blocks and returns them.
    Naive,
}

/// Which thread evicts.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay::EvictionMode};
///
/// let config = ReplayConfig::default().eviction(EvictionMode::Background);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EvictionMode {
    /// The thread that makes a reservation.
    #[default]
    Inline,
    /// A background thread, which keeps some blocks free.
    Background,
}

/// The configuration of a replay.
///
/// # Examples
///
/// ```
/// use radixkv::PolicyKind;
/// use radixkv_replay::{ReplayConfig, replay::Capacity};
///
/// let config = ReplayConfig::default().capacity(Capacity::Blocks(4096)).policy(PolicyKind::Lfu).verify(true);
/// assert_eq!(config.policy, PolicyKind::Lfu);
/// ```
#[derive(Debug, Clone)]
#[must_use]
#[non_exhaustive]
pub struct ReplayConfig {
    /// Tokens per block.
    pub block_size: usize,
    /// The capacity of the cache.
    pub capacity: Capacity,
    /// The eviction policy.
    pub policy: PolicyKind,
    /// What serves the requests: the prefix cache or a baseline.
    pub cache: CacheKind,
    /// Number of threads that share the cache, at most [`MAX_THREADS`].
    pub threads: usize,
    /// Which thread evicts.
    pub eviction: EvictionMode,
    /// Whether generated tokens are also cached.
    pub outputs: bool,
    /// Requests with more blocks are bypassed; `None`: requests with more blocks than the cache
    /// has.
    pub longest: Option<usize>,
    /// Whether the blocks of every hit are checked against the tokens they were filled with.
    pub verify: bool,
    /// Whether a request's lease is held for as many steps as it generates tokens.
    pub hold: bool,
    /// How many times the replay pauses and checks the cache.
    pub checks: usize,
    /// The first requests, which are left out of the rates.
    pub warm_up: WarmUp,
    /// How requests are served in trace time; `None`: one after the other.
    pub service: Option<Service>,
    /// A host tier and the caches over it; `None`: only one cache.
    pub tiers: Option<Tiers>,
    /// The unit of the trace's timestamps.
    pub time_unit: TimeUnit,
    /// Maximum number of tokens of a request that is not bypassed.
    pub max_request_tokens: usize,
    /// Maximum number of tokens that the cache could hold.
    pub max_cached_tokens: usize,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        Self {
            block_size: 16,
            capacity: Capacity::Percent(10.0),
            policy: PolicyKind::default(),
            cache: CacheKind::default(),
            threads: 1,
            eviction: EvictionMode::default(),
            outputs: false,
            longest: None,
            verify: false,
            hold: false,
            checks: 0,
            warm_up: WarmUp::Requests(0),
            service: None,
            tiers: None,
            time_unit: TimeUnit::default(),
            max_request_tokens: 1 << 24,
            max_cached_tokens: 1 << 28,
        }
    }
}

impl ReplayConfig {
    /// Sets the tokens per block. Default: 16.
    ///
    /// # Examples
    ///
    /// ```
    /// # let rows = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4], "output_tok_ids": [5, 6]}"#;
    /// # let trace = radixkv_replay::Trace::from_reader(rows.as_bytes(), "rows", None)?;
    /// use radixkv_replay::{ReplayConfig, replay};
    ///
    /// let replayed = replay(&trace, &ReplayConfig::default().block_size(2), &|| {})?;
    /// assert_eq!(replayed.report.block_size, 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn block_size(self, block_size: usize) -> Self {
        Self { block_size, ..self }
    }

    /// Sets the capacity of the cache. Default: 10 percent of the working set.
    ///
    /// # Examples
    ///
    /// ```
    /// # let rows = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4], "output_tok_ids": [5, 6]}"#;
    /// # let trace = radixkv_replay::Trace::from_reader(rows.as_bytes(), "rows", None)?;
    /// use radixkv_replay::{ReplayConfig, replay, replay::Capacity};
    ///
    /// let config = ReplayConfig::default().capacity(Capacity::Blocks(512));
    /// assert_eq!(replay(&trace, &config, &|| {})?.report.capacity, 512);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn capacity(self, capacity: Capacity) -> Self {
        Self { capacity, ..self }
    }

    /// Sets the eviction policy. Default: lru.
    ///
    /// # Examples
    ///
    /// ```
    /// # let rows = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4], "output_tok_ids": [5, 6]}"#;
    /// # let trace = radixkv_replay::Trace::from_reader(rows.as_bytes(), "rows", None)?;
    /// use radixkv::PolicyKind;
    /// use radixkv_replay::{ReplayConfig, replay};
    ///
    /// let replayed = replay(&trace, &ReplayConfig::default().policy(PolicyKind::Slru), &|| {})?;
    /// assert_eq!(replayed.report.policy, "slru");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn policy(self, policy: PolicyKind) -> Self {
        Self { policy, ..self }
    }

    /// Sets what serves the requests: the prefix cache or a baseline. Default: the prefix cache.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, replay, replay::CacheKind, workload::CLASSES};
    ///
    /// let baseline = ReplayConfig::default().cache(CacheKind::Naive);
    /// assert_eq!(replay(&CLASSES[2].trace(0), &baseline, &|| {})?.report.hit_tokens, 0);
    /// # Ok::<_, radixkv_replay::ReplayError>(())
    /// ```
    pub fn cache(self, cache: CacheKind) -> Self {
        Self { cache, ..self }
    }

    /// Sets the number of threads that share the cache, at most [`MAX_THREADS`]. Default: 1.
    ///
    /// # Examples
    ///
    /// ```
    /// # let rows = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4], "output_tok_ids": [5, 6]}"#;
    /// # let trace = radixkv_replay::Trace::from_reader(rows.as_bytes(), "rows", None)?;
    /// use radixkv_replay::{ReplayConfig, replay};
    ///
    /// let replayed = replay(&trace, &ReplayConfig::default().threads(2), &|| {})?;
    /// assert_eq!(replayed.report.threads, 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Sets which thread evicts. Default: the one that makes a reservation.
    ///
    /// # Examples
    ///
    /// ```
    /// # let rows = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4], "output_tok_ids": [5, 6]}"#;
    /// # let trace = radixkv_replay::Trace::from_reader(rows.as_bytes(), "rows", None)?;
    /// use radixkv_replay::{ReplayConfig, replay, replay::EvictionMode};
    ///
    /// let config = ReplayConfig::default().eviction(EvictionMode::Background);
    /// assert_eq!(replay(&trace, &config, &|| {})?.report.eviction, "background");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn eviction(self, eviction: EvictionMode) -> Self {
        Self { eviction, ..self }
    }

    /// Sets whether generated tokens are also cached. Default: no.
    ///
    /// # Examples
    ///
    /// ```
    /// # let rows = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4], "output_tok_ids": [5, 6]}"#;
    /// # let trace = radixkv_replay::Trace::from_reader(rows.as_bytes(), "rows", None)?;
    /// use radixkv_replay::{ReplayConfig, replay, replay::Capacity};
    ///
    /// // One request, of four prompt tokens and two generated ones.
    /// let config = ReplayConfig::default().block_size(2).capacity(Capacity::Blocks(8)).outputs(true);
    /// assert_eq!(replay(&trace, &config, &|| {})?.report.inserted_blocks, 3);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn outputs(self, outputs: bool) -> Self {
        Self { outputs, ..self }
    }

    /// Bypasses requests with more than this many blocks. Default: the capacity of the cache.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, Trace, replay, replay::Capacity};
    ///
    /// let row = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4, 5, 6]}"#;
    /// let trace = Trace::from_reader(row.as_bytes(), "row", None)?;
    /// let config = ReplayConfig::default().block_size(2).capacity(Capacity::Blocks(8)).longest(2);
    /// assert_eq!(replay(&trace, &config, &|| {})?.report.bypassed_requests, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn longest(self, blocks: usize) -> Self {
        Self { longest: Some(blocks), ..self }
    }

    /// Sets whether the blocks of every hit are checked against the tokens they were filled with.
    /// Default: no.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
    ///
    /// let trace = CLASSES[2].trace(0);
    /// let replayed = replay(&trace, &ReplayConfig::default().verify(true), &|| {})?;
    /// assert_eq!(replayed.report.verify_errors, Some(0));
    /// # Ok::<_, radixkv_replay::ReplayError>(())
    /// ```
    pub fn verify(self, verify: bool) -> Self {
        Self { verify, ..self }
    }

    /// Sets whether a request's lease is held for as many steps as the request generates tokens.
    /// Default: no.
    ///
    /// # Examples
    ///
    /// ```
    /// # let rows = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4], "output_tok_ids": [5, 6]}"#;
    /// # let trace = radixkv_replay::Trace::from_reader(rows.as_bytes(), "rows", None)?;
    /// use radixkv_replay::{ReplayConfig, replay};
    ///
    /// let replayed = replay(&trace, &ReplayConfig::default().hold(true), &|| {})?;
    /// assert_eq!(replayed.report.given_up_leases, 0); // no lease had to be dropped early
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold(self, hold: bool) -> Self {
        Self { hold, ..self }
    }

    /// Sets how many times the replay pauses, drops all leases, and checks that the cache is
    /// settled and valid and that no block is lost. Default: never.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
    ///
    /// let config = ReplayConfig::default().threads(2).checks(10);
    /// replay(&CLASSES[2].trace(0), &config, &|| {})?; // ReplayError::Check if one of the ten fails
    /// # Ok::<_, radixkv_replay::ReplayError>(())
    /// ```
    pub fn checks(self, checks: usize) -> Self {
        Self { checks, ..self }
    }

    /// Sets the first requests, which fill the cache and are left out of requests, prompt tokens,
    /// hit tokens, hit rates, bypassed requests, times to first token and waits. Default: none.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, replay, replay::WarmUp, workload::CLASSES};
    ///
    /// let config = ReplayConfig::default().warm_up(WarmUp::Requests(600));
    /// let report = replay(&CLASSES[2].trace(0), &config, &|| {})?.report;
    /// assert_eq!((report.warm_up_requests, report.requests), (600, 400));
    /// # Ok::<_, radixkv_replay::ReplayError>(())
    /// ```
    pub fn warm_up(self, warm_up: WarmUp) -> Self {
        Self { warm_up, ..self }
    }

    /// Serves requests in trace time: they arrive at the trace's timestamps, run concurrently, and
    /// hold their leases while they run. Excludes several threads, background eviction, the naive
    /// cache, [`hold`](Self::hold) and [`checks`](Self::checks). Default: one request after the
    /// other, as fast as possible.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
    ///
    /// let config = ReplayConfig::default().service("8000,50,16".parse()?);
    /// let report = replay(&CLASSES[2].trace(0), &config, &|| {})?.report;
    /// assert!(report.service.is_some_and(|served| served.peak_running <= 16));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn service(self, service: Service) -> Self {
        Self { service: Some(service), ..self }
    }

    /// Replays with one or several caches of [`capacity`](Self::capacity) over a host tier.
    /// Excludes several threads, background eviction, the naive cache, [`service`](Self::service),
    /// [`hold`](Self::hold), [`verify`](Self::verify) and [`checks`](Self::checks). Default: only
    /// one cache. [`Tiers`] has an example.
    pub fn tiers(self, tiers: Tiers) -> Self {
        Self { tiers: Some(tiers), ..self }
    }

    /// Sets the unit of the trace's timestamps. Default: milliseconds.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, replay, replay::{TimeUnit, WarmUp}, workload::CLASSES};
    ///
    /// let config = ReplayConfig::default().warm_up(WarmUp::Seconds(10.0)).time_unit(TimeUnit::Seconds);
    /// let report = replay(&CLASSES[2].trace(0), &config, &|| {})?.report;
    /// assert_eq!(report.warm_up_requests, 10); // a workload has a request a second
    /// # Ok::<_, radixkv_replay::ReplayError>(())
    /// ```
    pub fn time_unit(self, time_unit: TimeUnit) -> Self {
        Self { time_unit, ..self }
    }

    /// Limits the tokens of a request that is not bypassed: each thread keeps all of them in
    /// memory, at 4 bytes a token. Default: 2^24.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, ReplayError, replay, workload::CLASSES};
    ///
    /// let refused = replay(&CLASSES[2].trace(0), &ReplayConfig::default().max_request_tokens(100), &|| {});
    /// assert!(matches!(refused, Err(ReplayError::RequestTooLong { limit: 100, .. })));
    /// ```
    pub fn max_request_tokens(self, max_request_tokens: usize) -> Self {
        Self { max_request_tokens, ..self }
    }

    /// Limits the tokens that the cache could hold, which is the lesser of its capacity and the
    /// trace's tokens: 4 bytes each, and some more for every block. Default: 2^28.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, ReplayError, replay, workload::CLASSES};
    ///
    /// let refused = replay(&CLASSES[0].trace(0), &ReplayConfig::default().max_cached_tokens(1000), &|| {});
    /// assert!(matches!(refused, Err(ReplayError::CacheTooLarge { limit: 1000, .. })));
    /// ```
    pub fn max_cached_tokens(self, max_cached_tokens: usize) -> Self {
        Self { max_cached_tokens, ..self }
    }

    pub(super) fn check_block_size(&self) -> Result<(), ReplayError> {
        if self.block_size == 0 { Err(ReplayError::ZeroBlockSize) } else { Ok(()) }
    }

    /// Fails if `service` is combined with an option that it excludes.
    pub(super) fn check_service(&self) -> Result<(), ReplayError> {
        let excluded = !self.is_deterministic() || self.cache == CacheKind::Naive || self.hold || self.checks > 0;
        if self.service.is_some() && excluded { Err(ReplayError::ServiceExcludes) } else { Ok(()) }
    }

    /// Whether the result is a pure function of the trace.
    pub(super) fn is_deterministic(&self) -> bool {
        self.threads == 1 && self.eviction == EvictionMode::Inline
    }
}
