//! Counts how many evicted blocks were requested again.

use serde::Serialize;

use super::misses::Missed;
use crate::replay::Replay;

/// Evicted blocks of a whole replay: the reason, and whether they were requested again.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Details, ReplayConfig, replay, workload::CLASSES};
///
/// let (trace, config) = (CLASSES[0].trace(0), ReplayConfig::default());
/// let replayed = replay(&trace, &config, &|| {})?;
/// let evictions = Details::new(&trace, &config, &replayed)?.evictions;
/// assert_eq!(evictions.asked_again_blocks + evictions.not_asked_again_blocks, replayed.report.evicted_blocks);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Evictions {
    /// The reason of the evictions: `room for a request`, or with background eviction `room or
    /// watermark`.
    pub reason: &'static str,
    /// Evicted blocks that were requested again later: the misses by eviction, in blocks.
    pub asked_again_blocks: u64,
    /// Evicted blocks that were not requested again in the trace.
    pub not_asked_again_blocks: u64,
}

impl Evictions {
    pub(super) fn new(replayed: &Replay, missed: &[Missed]) -> Self {
        let evicted = replayed.report.evicted_blocks;
        let asked: u64 = missed.iter().map(|missed| u64::from(missed.evicted_blocks)).sum();
        let asked_again_blocks = asked.min(evicted);
        Self {
            reason: if replayed.report.eviction == "inline" { "room for a request" } else { "room or watermark" },
            asked_again_blocks,
            not_asked_again_blocks: evicted - asked_again_blocks,
        }
    }
}
