//! The part of a report that describes the tiers.

use radixkv_host::{HostStats, HostTier, RemoteStats, TierMode, TieredStats, WritePolicy};
use serde::Serialize;

use super::{Tiers, remote::Names};
use crate::replay::{
    outcome::Outcome,
    report::{digest, rate},
};

/// The hits by tier, and the copies between tiers. `serde` serializes them with the field names as
/// keys.
///
/// Hits and the times of their copies count after the warm-up, everything else from the beginning.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TierReport {
    /// `exclusive` or `shared`.
    pub tier_mode: &'static str,
    /// When blocks are copied to the host: `back` or `through`.
    pub write_policy: &'static str,
    /// `cpu` or `cxl`.
    pub host_kind: &'static str,
    /// Host blocks that the tier may hold.
    pub host_capacity: usize,
    /// Tokens per host block.
    pub host_block_size: usize,
    /// Number of caches over the tier.
    pub instances: usize,
    /// `round-robin`, `random` or `prefix`.
    pub route: &'static str,
    /// Tokens found on the device.
    pub first_hit_tokens: u64,
    /// `first_hit_tokens` over the prompts' tokens.
    pub first_hit_rate: f64,
    /// The digest of every request's blocks that were hit on the device; the report's own digest
    /// covers the blocks that were hit in any tier.
    pub first_digest: String,
    /// Tokens found in the host.
    pub host_hit_tokens: u64,
    /// `host_hit_tokens` over the prompts' tokens.
    pub host_hit_rate: f64,
    /// Host blocks that were evicted from the host.
    pub host_evicted_blocks: u64,
    /// The most host blocks in use after a request.
    pub host_peak_blocks: usize,
    /// Host blocks in use at the end.
    pub host_final_blocks: usize,
    /// Memory of the host tier's index at the end, in bytes.
    pub host_index_bytes: usize,
    /// Bytes of the keys and values of one token.
    pub token_bytes: u64,
    /// Bytes copied to the host.
    pub offloaded_bytes: u64,
    /// Bytes copied to the device.
    pub onboarded_bytes: u64,
    /// Time of all copies to the device, one copy for each request that hit below the device,
    /// including fetches from a remote tier.
    pub onboard_seconds: f64,
    /// Prefill time that the hits below the device saved, less the time of their copies; set if a
    /// prefill rate was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_seconds: Option<f64>,
    /// The results of a remote tier below the host, if there is one.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteReport>,
    /// The blocks in the host at the end, by namespace.
    pub leftovers: Vec<Leftover>,
}

/// The results of a remote tier. Hits and the times of their copies count after the warm-up,
/// everything else from the beginning.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RemoteReport {
    /// Blocks of the host's size that the remote tier may hold.
    pub remote_capacity: usize,
    /// Tokens found in the remote tier.
    pub remote_hit_tokens: u64,
    /// `remote_hit_tokens` over the prompts' tokens.
    pub remote_hit_rate: f64,
    /// Blocks that were evicted from the remote tier.
    pub remote_evicted_blocks: u64,
    /// The most blocks in the tier after a request.
    pub remote_peak_blocks: usize,
    /// Blocks in the tier at the end.
    pub remote_final_blocks: usize,
    /// Bytes written to the remote tier.
    pub remote_put_bytes: u64,
    /// Bytes read from the remote tier.
    pub remote_fetched_bytes: u64,
    /// Time to copy hits from the remote tier to the host.
    pub fetch_seconds: f64,
}

/// The most blocks in use after a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Peaks {
    pub(super) host: usize,
    pub(super) remote: usize,
}

/// The blocks of one namespace in the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Leftover {
    /// The parts of the namespace's name; empty for the default namespace.
    pub namespace: Vec<String>,
    /// Number of host blocks.
    pub blocks: usize,
    /// Number of tokens in these blocks.
    pub tokens: usize,
}

impl TierReport {
    pub(super) fn new(
        tiers: &Tiers,
        host: &HostTier,
        block_size: usize,
        outcomes: &[Outcome],
        warm_up: usize,
        copied: &[TieredStats],
        host_peak_blocks: usize,
    ) -> Self {
        let measured = &outcomes[warm_up..];
        let sum = |tokens: &dyn Fn(&Outcome) -> usize| measured.iter().map(|outcome| tokens(outcome) as u64).sum();
        let prompt_tokens: u64 = sum(&|outcome| outcome.prompt_tokens);
        let first_hit_tokens = sum(&|outcome| outcome.device_tokens(block_size));
        let host_hit_tokens = sum(&|outcome| outcome.host_tokens as usize);
        let bytes = |tokens: &dyn Fn(&TieredStats) -> u64| {
            copied.iter().map(tokens).sum::<u64>().saturating_mul(tiers.token_bytes)
        };
        let HostStats { cached_blocks, pinned_blocks, evicted_blocks, index_bytes, .. } = host.stats();
        let leftovers = host.leftovers().into_iter().map(|left| Leftover {
            namespace: left.namespace.parts().map(str::to_owned).collect(),
            blocks: left.blocks,
            tokens: left.tokens,
        });
        Self {
            tier_mode: match tiers.mode {
                TierMode::Shared => "shared",
                _ => "exclusive",
            },
            write_policy: match tiers.write {
                WritePolicy::Through => "through",
                _ => "back",
            },
            host_kind: tiers.kind.name(),
            host_capacity: host.capacity_blocks(),
            host_block_size: host.block_size(),
            instances: tiers.instances,
            route: tiers.route.name(),
            first_hit_tokens,
            first_hit_rate: rate(first_hit_tokens, prompt_tokens),
            first_digest: digest(
                outcomes
                    .iter()
                    .map(|outcome| outcome.hit_blocks.map(|_| (outcome.device_tokens(block_size) / block_size) as u32)),
            ),
            host_hit_tokens,
            host_hit_rate: rate(host_hit_tokens, prompt_tokens),
            host_evicted_blocks: evicted_blocks,
            host_peak_blocks,
            host_final_blocks: cached_blocks + pinned_blocks,
            host_index_bytes: index_bytes,
            token_bytes: tiers.token_bytes,
            offloaded_bytes: bytes(&|copied| copied.offloaded_tokens),
            onboarded_bytes: bytes(&|copied| copied.onboarded_tokens),
            onboard_seconds: measured.iter().map(|outcome| outcome.copy_ns as f64 / 1e9).sum(),
            saved_seconds: None,
            remote: None,
            leftovers: leftovers.collect(),
        }
    }

    pub(super) fn add_remote(
        &mut self,
        tiers: &Tiers,
        host: &HostTier,
        names: &Names,
        capacity: usize,
        measured: &[Outcome],
        peak_blocks: usize,
    ) {
        let sum = |tokens: &dyn Fn(&Outcome) -> u64| measured.iter().map(tokens).sum::<u64>();
        let prompt_tokens = sum(&|outcome| outcome.prompt_tokens as u64);
        let remote_hit_tokens = sum(&|outcome| u64::from(outcome.remote_tokens));
        let RemoteStats { put_blocks, fetched_blocks, .. } = host.remote_stats().unwrap_or_default();
        let bytes = |blocks: u64| (blocks * host.block_size() as u64).saturating_mul(tiers.token_bytes);
        self.remote = Some(RemoteReport {
            remote_capacity: capacity,
            remote_hit_tokens,
            remote_hit_rate: rate(remote_hit_tokens, prompt_tokens),
            remote_evicted_blocks: names.evicted_blocks(),
            remote_peak_blocks: peak_blocks,
            remote_final_blocks: names.blocks(),
            remote_put_bytes: bytes(put_blocks),
            remote_fetched_bytes: bytes(fetched_blocks),
            fetch_seconds: measured.iter().map(|outcome| outcome.fetch_ns as f64 / 1e9).sum(),
        });
    }

    /// Computes the time that hits below the device saved, for an engine that computes
    /// `prefill_rate` prompt tokens a second.
    pub fn save_at(&mut self, prefill_rate: f64) {
        let remote_hit_tokens = self.remote.as_ref().map_or(0, |remote| remote.remote_hit_tokens);
        let tokens = self.host_hit_tokens + remote_hit_tokens;
        self.saved_seconds = Some(tokens as f64 / prefill_rate - self.onboard_seconds);
    }
}
