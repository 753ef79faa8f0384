//! Replays with several caches over one host tier, and optionally a remote tier below it: their
//! configuration, and the modelled time of copies.

mod remote;
mod report;
mod route;
mod run;
mod sizes;

use std::str::FromStr;

use radixkv_host::{TierMode, WritePolicy};

use super::{
    capacity::Capacity,
    config::{CacheKind, ReplayConfig},
    error::ReplayError,
};

pub use report::{Leftover, RemoteReport, TierReport};
pub use route::Route;
pub use sizes::Shortage;

pub(super) use run::run;

/// The maximum number of instances of a replay.
pub const MAX_INSTANCES: usize = 1024;
/// Default bandwidth of the remote tier in bytes per second: a network of 100 Gbit/s.
const REMOTE_BANDWIDTH: f64 = 12.5e9;
/// Default latency of the remote tier in seconds.
const REMOTE_LATENCY: f64 = 100e-6;

/// The kind of the host tier's memory, which determines the default speed of copies.
///
/// # Examples
///
/// ```
/// use radixkv_replay::replay::HostKind;
///
/// assert!(HostKind::Cxl.bandwidth() < HostKind::Cpu.bandwidth());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum HostKind {
    /// The processor's memory, over PCIe 5.0 x16.
    #[default]
    Cpu,
    /// Memory behind CXL 2.0 x8.
    Cxl,
}

impl HostKind {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cxl => "cxl",
        }
    }

    /// The bandwidth of copies in bytes per second.
    #[must_use]
    pub fn bandwidth(self) -> f64 {
        match self {
            Self::Cpu => 50e9,
            Self::Cxl => 25e9,
        }
    }

    /// The latency of a copy in seconds.
    #[must_use]
    pub fn latency(self) -> f64 {
        match self {
            Self::Cpu => 5e-6,
            Self::Cxl => 10e-6,
        }
    }
}

/// The configuration of a host tier and of the instances over it, each with its own cache of the
/// replay's capacity.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, replay::{Capacity, Tiers}, workload::CLASSES};
///
/// let config = ReplayConfig::default().capacity(Capacity::Percent(5.0));
/// let trace = CLASSES[2].trace(0);
/// let alone = replay(&trace, &config, &|| {})?.report;
/// let tiered = replay(&trace, &config.tiers(Tiers::new(Capacity::Percent(50.0))), &|| {})?.report;
/// assert!(tiered.hit_tokens > alone.hit_tokens);
/// assert_eq!(tiered.tiers.map(|tiers| tiers.first_digest), Some(alone.match_digest));
/// # Ok::<_, radixkv_replay::ReplayError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
#[non_exhaustive]
pub struct Tiers {
    /// The capacity of the host tier in host blocks; a percentage is of the same working set as the
    /// cache's.
    pub host_capacity: Capacity,
    /// Tokens per host block; `None`: as many as in a block of the device.
    pub host_block_size: Option<usize>,
    /// The kind of the host tier's memory.
    pub kind: HostKind,
    /// Whether a block may be in both tiers at once.
    pub mode: TierMode,
    /// When a block is copied to the host.
    pub write: WritePolicy,
    /// Number of caches over the tier, at most [`MAX_INSTANCES`].
    pub instances: usize,
    /// Which instance serves a request.
    pub route: Route,
    /// Bandwidth of copies in bytes per second; `None`: the default of the kind.
    pub bandwidth: Option<f64>,
    /// Latency of a copy in seconds; `None`: the default of the kind.
    pub latency: Option<f64>,
    /// Bytes of the keys and values of one token.
    pub token_bytes: u64,
    /// The capacity of a remote tier below the host, in blocks of the host's size; `None`: no
    /// remote tier.
    pub remote_capacity: Option<Capacity>,
    /// Bandwidth of the remote tier in bytes per second; `None`: 12.5 GB.
    pub remote_bandwidth: Option<f64>,
    /// Latency of the remote tier in seconds; `None`: 100 microseconds.
    pub remote_latency: Option<f64>,
}

impl Tiers {
    /// One instance over a host tier of this capacity, exclusive, with blocks of the device's size.
    /// The keys and values of a token take 128 KiB, as in a model of 8 billion parameters with
    /// eight KV heads in bfloat16.
    pub fn new(host_capacity: Capacity) -> Self {
        Self {
            host_capacity,
            host_block_size: None,
            kind: HostKind::default(),
            mode: TierMode::default(),
            write: WritePolicy::default(),
            instances: 1,
            route: Route::default(),
            bandwidth: None,
            latency: None,
            token_bytes: 128 << 10,
            remote_capacity: None,
            remote_bandwidth: None,
            remote_latency: None,
        }
    }

    /// Sets the tokens per host block. Default: as many as in a block of the device.
    pub fn host_block_size(self, host_block_size: usize) -> Self {
        Self { host_block_size: Some(host_block_size), ..self }
    }

    /// Sets the kind of the tier's memory. Default: the processor's.
    pub fn kind(self, kind: HostKind) -> Self {
        Self { kind, ..self }
    }

    /// Sets whether a block may be in both tiers at once. Default: only in one of them.
    pub fn mode(self, mode: TierMode) -> Self {
        Self { mode, ..self }
    }

    /// Sets when a block is copied to the host. Default: when it is evicted.
    pub fn write(self, write: WritePolicy) -> Self {
        Self { write, ..self }
    }

    /// Sets the number of caches over the tier. Default: 1.
    pub fn instances(self, instances: usize) -> Self {
        Self { instances, ..self }
    }

    /// Sets which instance serves a request. Default: [`Route::RoundRobin`].
    pub fn route(self, route: Route) -> Self {
        Self { route, ..self }
    }

    /// Sets the bandwidth of copies in bytes per second. Default: by the kind.
    pub fn bandwidth(self, bandwidth: f64) -> Self {
        Self { bandwidth: Some(bandwidth), ..self }
    }

    /// Sets the latency of a copy in seconds. Default: by the kind.
    pub fn latency(self, latency: f64) -> Self {
        Self { latency: Some(latency), ..self }
    }

    /// Sets the bytes of the keys and values of one token. Default: 128 KiB.
    pub fn token_bytes(self, token_bytes: u64) -> Self {
        Self { token_bytes, ..self }
    }

    /// Adds a remote tier below the host tier: evicted host blocks are stored there, and copied to
    /// the host when a prompt needs them; the remote tier keeps its copies. Default: none.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{ReplayConfig, Trace, replay, replay::{Capacity, Tiers}};
    ///
    /// // Three prompts, of which the device has room for one and the host for another, and the first one again.
    /// let row = |first: u32| format!("{{\"timestamp\": 0, \"input_tok_ids\": [{first}, 7, 8, 9]}}");
    /// let rows = [1, 2, 3, 1].map(row).join("\n");
    /// let trace = Trace::from_reader(std::io::Cursor::new(rows), "rows", None)?;
    /// let tiers = Tiers::new(Capacity::Blocks(2)).remote_capacity(Capacity::Blocks(9));
    /// let config = ReplayConfig::default().block_size(2).capacity(Capacity::Blocks(2)).tiers(tiers);
    /// let tiers = replay(&trace, &config, &|| {})?.report.tiers.expect("there are some");
    /// assert_eq!(tiers.remote.map(|remote| remote.remote_hit_tokens), Some(4));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn remote_capacity(self, remote_capacity: Capacity) -> Self {
        Self { remote_capacity: Some(remote_capacity), ..self }
    }

    /// Sets the bandwidth of reads from the remote tier in bytes per second. Default: 12.5 GB, that
    /// of a network of 100 Gbit/s.
    pub fn remote_bandwidth(self, remote_bandwidth: f64) -> Self {
        Self { remote_bandwidth: Some(remote_bandwidth), ..self }
    }

    /// Sets the latency of reads from the remote tier in seconds. Default: 100 microseconds.
    pub fn remote_latency(self, remote_latency: f64) -> Self {
        Self { remote_latency: Some(remote_latency), ..self }
    }

    /// Time to copy `tokens` tokens from the host to the device at once, in seconds.
    pub(super) fn seconds(&self, tokens: usize) -> f64 {
        let (latency, bandwidth) = (self.kind.latency(), self.kind.bandwidth());
        self.time_of(tokens, self.latency.unwrap_or(latency), self.bandwidth.unwrap_or(bandwidth))
    }

    /// Time to fetch `tokens` tokens from the remote tier to the host, in seconds.
    pub(super) fn remote_seconds(&self, tokens: usize) -> f64 {
        let (latency, bandwidth) = (self.remote_latency, self.remote_bandwidth);
        self.time_of(tokens, latency.unwrap_or(REMOTE_LATENCY), bandwidth.unwrap_or(REMOTE_BANDWIDTH))
    }

    fn time_of(&self, tokens: usize, latency: f64, bandwidth: f64) -> f64 {
        let bytes = tokens as f64 * self.token_bytes as f64;
        if tokens == 0 { 0.0 } else { latency + bytes / bandwidth }
    }

    fn check(&self) -> Result<(), ReplayError> {
        match self.instances {
            0 => Err(ReplayError::ZeroInstances),
            instances if instances > MAX_INSTANCES => Err(ReplayError::TooManyInstances { instances }),
            _ if self.host_block_size == Some(0) => Err(ReplayError::ZeroBlockSize),
            _ if self.remote_capacity == Some(Capacity::Blocks(0)) => Err(ReplayError::ZeroRemoteCapacity),
            _ => Ok(()),
        }
    }
}

impl ReplayConfig {
    /// Fails if `tiers` is combined with an option that it excludes, or is itself invalid.
    pub(super) fn check_tiers(&self) -> Result<(), ReplayError> {
        let Some(tiers) = &self.tiers else { return Ok(()) };
        let excluded = !self.is_deterministic()
            || self.cache == CacheKind::Naive
            || self.hold
            || self.verify
            || self.checks > 0
            || self.service.is_some();
        if excluded { Err(ReplayError::TiersExclude) } else { tiers.check() }
    }
}

impl FromStr for HostKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        [Self::Cpu, Self::Cxl].into_iter().find(|kind| kind.name() == text).ok_or("neither cpu nor cxl")
    }
}
