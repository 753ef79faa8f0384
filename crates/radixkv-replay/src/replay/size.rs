//! Checks that a replay stays within its limits, before the first request is served.
//!
//! Bypassed requests need no memory, whatever length they claim. Any other request's tokens are all
//! in memory while its thread serves it, and the cache keeps the tokens of its blocks, up to the
//! capacity.

use super::{
    config::{CacheKind, ReplayConfig},
    error::ReplayError,
};
use crate::request::{Request, Trace};

impl ReplayConfig {
    /// Maximum number of blocks of a request; larger requests are bypassed.
    pub(super) fn max_blocks(&self, capacity: usize) -> usize {
        self.longest.map_or(capacity, |longest| longest.min(capacity))
    }

    /// Fails if a request that is not bypassed is too long, or if the cache could hold too many
    /// tokens.
    pub(crate) fn check_sizes(&self, trace: &Trace, capacity: usize) -> Result<(), ReplayError> {
        for request in self.served(trace, capacity) {
            let (tokens, limit) = (self.key_blocks(request) * self.block_size, self.max_request_tokens);
            if tokens > limit {
                return Err(ReplayError::RequestTooLong { row: request.row(), tokens, limit });
            }
        }
        let (tokens, limit) = (self.cached_tokens(trace, capacity)?, self.max_cached_tokens);
        if tokens > limit {
            return Err(ReplayError::CacheTooLarge { tokens, limit });
        }
        Ok(())
    }

    /// An upper bound of the tokens that the cache could hold. Distinct blocks are counted only if
    /// the bound without that count exceeds the limit.
    fn cached_tokens(&self, trace: &Trace, capacity: usize) -> Result<usize, ReplayError> {
        if self.cache == CacheKind::Naive {
            return Ok(0);
        }
        let keys = self.served(trace, capacity).map(|request| self.key_blocks(request));
        let blocks = keys.fold(0, usize::saturating_add).min(capacity);
        let tokens = |blocks: usize| blocks.saturating_mul(self.block_size);
        if tokens(blocks) <= self.max_cached_tokens {
            return Ok(tokens(blocks));
        }
        // Requests share blocks of their prompts, but no blocks with generated tokens.
        let own = |request: &Request| self.key_blocks(request) - request.prompt_tokens() / self.block_size;
        let outputs = self.served(trace, capacity).map(own).fold(0, usize::saturating_add);
        let distinct = trace.try_working_set_blocks(self.block_size)?.saturating_add(outputs);
        Ok(tokens(blocks.min(distinct)))
    }

    /// Requests that are not bypassed.
    fn served<'a>(&'a self, trace: &'a Trace, capacity: usize) -> impl Iterator<Item = &'a Request> {
        let max_blocks = self.max_blocks(capacity);
        trace.requests().iter().filter(move |request| self.key_blocks(request) <= max_blocks)
    }

    fn key_blocks(&self, request: &Request) -> usize {
        request.key_tokens(self.outputs) / self.block_size
    }
}
