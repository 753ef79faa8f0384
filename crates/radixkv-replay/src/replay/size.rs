//! Whether a replay fits into its bounds: found out before the first request is served.
//!
//! Requests that are bypassed cost nothing, whatever length they claim. Of the others each is made in one piece, on
//! every thread, and the cache keeps what they have in their blocks, as far as its capacity goes.

use super::{CacheKind, ReplayConfig, ReplayError};
use crate::{Request, Trace};

impl ReplayConfig {
    /// Larger requests are bypassed.
    pub(super) fn most_blocks(&self, capacity: usize) -> usize {
        self.longest.map_or(capacity, |longest| longest.min(capacity))
    }

    /// Fails if a request is too long to be made, or if the cache would keep too much.
    pub(super) fn check_sizes(&self, trace: &Trace, capacity: usize) -> Result<(), ReplayError> {
        for request in self.served(trace, capacity) {
            let (tokens, most) = (self.key_blocks(request) * self.block_size, self.max_request_tokens);
            if tokens > most {
                return Err(ReplayError::RequestTooLong { row: request.row(), tokens, most });
            }
        }
        let (tokens, most) = (self.cached_tokens(trace, capacity)?, self.max_cached_tokens);
        if tokens > most {
            return Err(ReplayError::CacheTooLarge { tokens, most });
        }
        Ok(())
    }

    /// What the cache may come to hold, or more than that where the exact figure would still be within the bound.
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
        // Requests share blocks, but for those of their outputs.
        let own = |request: &Request| self.key_blocks(request) - request.prompt_tokens() / self.block_size;
        let outputs = self.served(trace, capacity).map(own).fold(0, usize::saturating_add);
        let distinct = trace.try_working_set(self.block_size)?.saturating_add(outputs);
        Ok(tokens(blocks.min(distinct)))
    }

    /// Requests that are not bypassed.
    fn served<'a>(&'a self, trace: &'a Trace, capacity: usize) -> impl Iterator<Item = &'a Request> {
        let most = self.most_blocks(capacity);
        trace.requests().iter().filter(move |request| self.key_blocks(request) <= most)
    }

    fn key_blocks(&self, request: &Request) -> usize {
        request.key_tokens(self.outputs) / self.block_size
    }
}
