//! Counts the hits of a simulated cache, request by request.

use sha2::{Digest, Sha256};

use crate::request::Request;

/// The digest's entry for a bypassed request.
const BYPASSED: u32 = u32::MAX;

/// Sums over the requests so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Hits {
    pub(super) prompt_tokens: u64,
    pub(super) hit_tokens: u64,
    pub(super) hit_tokens_capped: u64,
    pub(super) inserted_blocks: u64,
    pub(super) evicted_blocks: u64,
    pub(super) bypassed_requests: usize,
    pub(super) bypassed_tokens: u64,
    digest: Sha256,
}

impl Hits {
    /// Adds a request that hit `hit_blocks` blocks.
    pub(super) fn served(&mut self, request: &Request, hit_blocks: usize, block_size: usize) {
        let prompt = request.prompt_tokens();
        let most = prompt.saturating_sub(1) / block_size;
        self.prompt_tokens += prompt as u64;
        self.hit_tokens += (hit_blocks * block_size) as u64;
        self.hit_tokens_capped += (hit_blocks.min(most) * block_size) as u64;
        self.digest.update((hit_blocks as u32).to_le_bytes());
    }

    /// Adds a request that is larger than the cache.
    pub(super) fn bypassed(&mut self, request: &Request) {
        self.prompt_tokens += request.prompt_tokens() as u64;
        self.bypassed_requests += 1;
        self.bypassed_tokens += request.prompt_tokens() as u64;
        self.digest.update(BYPASSED.to_le_bytes());
    }

    /// The digest, computed as in a replay's report.
    pub(super) fn digest(&self) -> String {
        self.digest.clone().finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
