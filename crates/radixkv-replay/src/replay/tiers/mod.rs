//! Several caches over one host tier: how they are laid out, and what moving blocks costs.

mod report;
mod route;
mod run;

use std::str::FromStr;

use radixkv_host::{TierMode, WritePolicy};

use super::{
    capacity::Capacity,
    config::{CacheKind, ReplayConfig},
    error::ReplayError,
};

pub use report::{Leftover, TierReport};
pub use route::Route;

pub(super) use run::run;

/// Instances of a replay at most.
pub const MAX_INSTANCES: usize = 1024;

/// What the host tier's memory is: how fast blocks are copied, unless that is said.
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
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cxl => "cxl",
        }
    }

    /// Bytes a second that are copied from it or to it.
    #[must_use]
    pub fn bandwidth(self) -> f64 {
        match self {
            Self::Cpu => 50e9,
            Self::Cxl => 25e9,
        }
    }

    /// Seconds before the first byte of a copy.
    #[must_use]
    pub fn latency(self) -> f64 {
        match self {
            Self::Cpu => 5e-6,
            Self::Cxl => 10e-6,
        }
    }
}

/// A host tier, and the instances over it: each has a cache of its own, of the replay's capacity.
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
    /// How much the host tier holds, in host blocks; a percentage is of the same working set as the cache's.
    pub host_capacity: Capacity,
    /// Tokens in a host block; `None`: as many as in a block of the device.
    pub host_block_size: Option<usize>,
    /// What its memory is.
    pub kind: HostKind,
    /// Where a block lives that both tiers could have.
    pub mode: TierMode,
    /// When a block is copied to the host.
    pub write: WritePolicy,
    /// Caches over the tier, [`MAX_INSTANCES`] at most.
    pub instances: usize,
    /// Which instance serves a request.
    pub route: Route,
    /// Bytes a second that are copied; `None`: those of the kind.
    pub bandwidth: Option<f64>,
    /// Seconds before the first byte of a copy; `None`: those of the kind.
    pub latency: Option<f64>,
    /// Bytes of the keys and values of a token.
    pub token_bytes: u64,
}

impl Tiers {
    /// One instance over a host tier of this capacity, exclusive, with blocks of the device's size. A token's keys and values
    /// have 128 KiB, as those of a model of 8 billion parameters with eight heads of keys in bfloat16.
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
        }
    }

    /// Tokens in a host block. Default: as many as in a block of the device.
    pub fn host_block_size(self, host_block_size: usize) -> Self {
        Self { host_block_size: Some(host_block_size), ..self }
    }

    /// What the tier's memory is. Default: the processor's.
    pub fn kind(self, kind: HostKind) -> Self {
        Self { kind, ..self }
    }

    /// Where a block lives that both tiers could have. Default: in one of them.
    pub fn mode(self, mode: TierMode) -> Self {
        Self { mode, ..self }
    }

    /// When a block is copied to the host. Default: when it is evicted.
    pub fn write(self, write: WritePolicy) -> Self {
        Self { write, ..self }
    }

    /// Caches over the tier. Default: 1.
    pub fn instances(self, instances: usize) -> Self {
        Self { instances, ..self }
    }

    /// Which instance serves a request. Default: [`Route::RoundRobin`].
    pub fn route(self, route: Route) -> Self {
        Self { route, ..self }
    }

    /// Bytes a second that are copied. Default: those of the kind.
    pub fn bandwidth(self, bandwidth: f64) -> Self {
        Self { bandwidth: Some(bandwidth), ..self }
    }

    /// Seconds before the first byte of a copy. Default: those of the kind.
    pub fn latency(self, latency: f64) -> Self {
        Self { latency: Some(latency), ..self }
    }

    /// Bytes of the keys and values of a token. Default: 128 KiB.
    pub fn token_bytes(self, token_bytes: u64) -> Self {
        Self { token_bytes, ..self }
    }

    /// How long it takes to copy these tokens at once.
    pub(super) fn seconds(&self, tokens: usize) -> f64 {
        if tokens == 0 {
            return 0.0;
        }
        let bytes = tokens as f64 * self.token_bytes as f64;
        self.latency.unwrap_or(self.kind.latency()) + bytes / self.bandwidth.unwrap_or(self.kind.bandwidth())
    }

    fn check(&self) -> Result<(), ReplayError> {
        match self.instances {
            0 => Err(ReplayError::ZeroInstances),
            instances if instances > MAX_INSTANCES => Err(ReplayError::TooManyInstances { instances }),
            _ if self.host_block_size == Some(0) => Err(ReplayError::ZeroBlockSize),
            _ => Ok(()),
        }
    }
}

impl ReplayConfig {
    /// Fails if options exclude each other.
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
