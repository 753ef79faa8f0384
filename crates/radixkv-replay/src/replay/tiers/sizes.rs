//! Sizes of the tiers of a replay, compared with what its largest requests need.

use std::fmt;

use super::Tiers;
use crate::{
    replay::{capacity::Capacity, config::ReplayConfig, error::ReplayError},
    request::Trace,
};

/// The sizes of the tiers for a trace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Capacity of each cache, in blocks of the device; `host` and `remote` are in host blocks.
    pub(super) device: usize,
    pub(super) host: usize,
    pub(super) remote: Option<usize>,
    /// Tokens per block of the device, and of the tiers below.
    pub(super) block_size: usize,
    pub(super) host_block_size: usize,
    /// Maximum number of device blocks of a request; larger ones are bypassed.
    pub(super) max_blocks: usize,
}

/// A tier that is smaller than one request; returned by [`ReplayConfig::shortages`].
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, Trace, replay::{Capacity, Tiers}};
///
/// let row = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4, 5, 6]}"#;
/// let trace = Trace::from_reader(row.as_bytes(), "row", None)?;
/// let config = ReplayConfig::default().block_size(2).capacity(Capacity::Blocks(3));
/// let short = config.tiers(Tiers::new(Capacity::Blocks(2))).shortages(&trace)?;
/// assert_eq!((short[0].tier, short[0].blocks, short[0].needed_blocks), ("host tier", 2, 3));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// The tier: `device`, `host tier` or `remote tier`.
    pub tier: &'static str,
    /// Capacity of the tier in blocks.
    pub blocks: usize,
    /// Tokens per block of the tier.
    pub block_size: usize,
    /// Blocks of the largest request that reaches the tier.
    pub needed_blocks: usize,
    /// What happens to such a request.
    consequence: &'static str,
}

impl Sizes {
    pub(super) fn new(trace: &Trace, config: &ReplayConfig, tiers: &Tiers) -> Result<Self, ReplayError> {
        let block_size = config.block_size;
        let host_block_size = tiers.host_block_size.unwrap_or(block_size);
        let all = [Some(config.capacity), Some(tiers.host_capacity), tiers.remote_capacity];
        let working_set = if all.into_iter().flatten().any(|capacity| matches!(capacity, Capacity::Percent(_))) {
            trace.try_working_set_blocks(block_size)?
        } else {
            0
        };
        let below = |capacity: Capacity| match capacity {
            Capacity::Blocks(blocks) => blocks,
            other => {
                (other.of_working_set(working_set, block_size).saturating_mul(block_size) / host_block_size).max(1)
            }
        };
        let device = config.capacity.of_working_set(working_set, block_size);
        let (host, remote) = (below(tiers.host_capacity), tiers.remote_capacity.map(below));
        let max_blocks = config.max_blocks(device);
        Ok(Self { device, host, remote, block_size, host_block_size, max_blocks })
    }

    /// The capacity of all tiers together, in blocks of the device.
    pub(super) fn all(&self, instances: usize) -> usize {
        let below = self.host.saturating_add(self.remote.unwrap_or(0)).saturating_mul(self.host_block_size);
        self.device.saturating_mul(instances).saturating_add(below / self.block_size)
    }

    /// Blocks of the host that the largest request needs.
    pub(super) fn max_host_blocks(&self) -> usize {
        self.max_blocks.saturating_mul(self.block_size).div_ceil(self.host_block_size)
    }

    /// The tiers that are smaller than the largest request; `keys` are the lengths in tokens.
    fn shortages(&self, keys: impl Iterator<Item = usize> + Clone) -> Vec<Shortage> {
        // An unfinished block also takes a block of the device, but is never evicted to a tier.
        let largest = keys.clone().max().unwrap_or(0).div_ceil(self.block_size);
        let served = keys.filter(|tokens| tokens.div_ceil(self.block_size) <= self.max_blocks).max().unwrap_or(0);
        let served = served / self.block_size * self.block_size / self.host_block_size;
        let part = "only a part of its evicted blocks is kept";
        let all = [
            ("device", Some(self.device), self.block_size, largest, "it is bypassed, as are all larger ones"),
            ("host tier", Some(self.host), self.host_block_size, served, part),
            ("remote tier", self.remote, self.host_block_size, served, part),
        ];
        let shortage = |(tier, blocks, block_size, needed_blocks, consequence)| {
            let blocks: usize = Option::filter(blocks, |&blocks| blocks < needed_blocks)?;
            Some(Shortage { tier, blocks, block_size, needed_blocks, consequence })
        };
        all.into_iter().filter_map(shortage).collect()
    }
}

impl ReplayConfig {
    /// The tiers, the device included, that are smaller than what one request of the trace needs;
    /// empty without a host tier. A shortage does not prevent a replay: its message says what
    /// happens to such requests.
    ///
    /// # Errors
    ///
    /// As [`replay`](crate::replay()), for tiers that cannot be combined or memory that is short.
    pub fn shortages(&self, trace: &Trace) -> Result<Vec<Shortage>, ReplayError> {
        let Some(tiers) = &self.tiers else { return Ok(Vec::new()) };
        self.check_block_size()?;
        tiers.check()?;
        let keys = trace.requests().iter().map(|request| request.key_tokens(self.outputs));
        Ok(Sizes::new(trace, self, tiers)?.shortages(keys))
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tier, blocks, block_size, needed_blocks, consequence } = self;
        write!(
            f,
            "the {tier} holds {blocks} blocks of {block_size} tokens, the largest request has {needed_blocks}: {consequence}"
        )
    }
}
