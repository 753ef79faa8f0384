//! Errors that end a replay.

use std::{collections::TryReserveError, io};

use radixkv::{BuildError, InsertErrorKind, ReserveError};
use radixkv_host::{HostBuildError, TieredBuildError, radixkv_tiers::LayoutError};

use super::{check::CheckFault, config::MAX_THREADS, tiers::MAX_INSTANCES};

/// Why a replay could not start or was stopped.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, ReplayError, replay, workload::CLASSES};
///
/// let refused = replay(&CLASSES[0].trace(0), &ReplayConfig::default().threads(0), &|| {});
/// assert!(matches!(refused, Err(ReplayError::ZeroThreads)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A block holds at least one token.
    #[error("block size must be more than zero")]
    ZeroBlockSize,
    /// A replay needs at least one thread.
    #[error("the number of threads must be more than zero")]
    ZeroThreads,
    /// A replay has at most [`MAX_THREADS`] threads: use fewer.
    #[error("{threads} threads requested, a replay has at most {MAX_THREADS}")]
    TooManyThreads {
        /// The configured number of threads.
        threads: usize,
    },
    /// The warm-up leaves no request to measure: measure more requests, or warm up with fewer.
    #[error("the warm-up has {warm_up} requests and the trace {requests}: none is left to measure")]
    AllWarmUp {
        /// Requests of the warm-up.
        warm_up: usize,
        /// Requests of the trace.
        requests: usize,
    },
    /// Options exclude each other: remove [`service`](super::ReplayConfig::service), or the options
    /// that it excludes.
    #[error("a replay in trace time needs one thread, the prefix cache and inline eviction, without hold or checks")]
    ServiceExcludes,
    /// Options exclude each other: remove [`tiers`](super::ReplayConfig::tiers), or the options
    /// that they exclude.
    #[error(
        "a replay over a host tier needs one thread, the prefix cache and inline eviction, without service, hold, verify \
         or checks"
    )]
    TiersExclude,
    /// A host tier needs at least one cache over it.
    #[error("the number of instances must be more than zero")]
    ZeroInstances,
    /// A replay has at most [`MAX_INSTANCES`] instances: use fewer.
    #[error("{instances} instances requested, a replay has at most {MAX_INSTANCES}")]
    TooManyInstances {
        /// The configured number of instances.
        instances: usize,
    },
    /// No host tier can have this block size and capacity.
    #[error("the host tier cannot be built: {0}")]
    HostTier(#[from] HostBuildError),
    /// A remote tier has at least one block; leave it out instead.
    #[error("remote capacity of 0 blocks requested: at least 1 is needed")]
    ZeroRemoteCapacity,
    /// No remote tier can have blocks of this size.
    #[error("the remote tier cannot be built: {0}")]
    RemoteTier(#[from] LayoutError),
    /// The cache and the host tier cannot be combined.
    #[error("the tiers cannot be combined: {0}")]
    Tiers(#[from] TieredBuildError),
    /// The requested moment is after the end of the trace.
    #[error("the state after {at} requests was requested, but the trace has {requests}")]
    NoSuchMoment {
        /// The requested number of requests.
        at: usize,
        /// Requests of the trace.
        requests: usize,
    },
    /// The system refused to start more threads: use fewer, or raise its limit.
    #[error("only {started} threads were started; the next one failed: {source}")]
    NoThread {
        /// Threads that were started.
        started: usize,
        /// The system's error.
        source: io::Error,
    },
    /// A request is too long: bypass it ([`ReplayConfig::longest`](super::ReplayConfig::longest)),
    /// or raise [`ReplayConfig::max_request_tokens`](super::ReplayConfig::max_request_tokens).
    #[error("row {row} (counted from 0): the request has {tokens} tokens, more than the limit of {limit}")]
    RequestTooLong {
        /// Row of the request.
        row: usize,
        /// Its tokens in whole blocks.
        tokens: usize,
        /// The limit.
        limit: usize,
    },
    /// The cache could hold too many tokens: lower its capacity, or raise
    /// [`ReplayConfig::max_cached_tokens`](super::ReplayConfig::max_cached_tokens).
    #[error("the cache could hold {tokens} tokens, more than the limit of {limit}")]
    CacheTooLarge {
        /// The tokens of the cache's capacity or of all requests, whichever is less.
        tokens: usize,
        /// The limit.
        limit: usize,
    },
    /// Memory is short: replay a part of the trace, or use a smaller cache.
    #[error("not enough memory: {0}")]
    NoMemory(#[from] TryReserveError),
    /// No cache can have this block size and capacity.
    #[error("the cache cannot be built: {0}")]
    Build(#[source] BuildError),
    /// The cache refused blocks although no other request held any.
    #[error("row {row} (counted from 0): the cache refused blocks although no other request held any: {source}")]
    Refused {
        /// Row of the request.
        row: usize,
        /// The cache's error.
        source: ReserveError,
    },
    /// The cache refused to insert the reserved and filled blocks.
    #[error("row {row} (counted from 0): the cache refused to insert the request's blocks: {kind}")]
    NotInserted {
        /// Row of the request.
        row: usize,
        /// The cache's error.
        kind: InsertErrorKind,
    },
    /// A check found a broken cache.
    #[error("the check after {served} requests found a broken cache: {fault}")]
    Check {
        /// Number of requests of the trace that had been served.
        served: usize,
        /// The fault.
        fault: CheckFault,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_insert_says_why_in_words() {
        let error = ReplayError::NotInserted { row: 3, kind: InsertErrorKind::NamespaceDropped };
        let said = "row 3 (counted from 0): the cache refused to insert the request's blocks: \
                    the lease protects nothing: its namespace was removed or cleared, or had too many leases: match again";
        assert_eq!(error.to_string(), said);
    }
}
