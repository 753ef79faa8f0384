//! The known state of the workers at one moment.

use radixkv_events::{Counts, Follower};
use serde::Serialize;

/// Maximum number of letters of a medium's name that are shown: a publisher may send millions.
const LETTERS: usize = 64;

/// The state of all workers.
#[derive(Serialize)]
pub(super) struct Seen {
    /// Seconds since the command started.
    pub(super) seconds: f64,
    pub(super) workers: Vec<Worker>,
}

/// The state of a worker, and what it caches.
#[derive(Clone, Serialize)]
pub(super) struct Worker {
    pub(super) endpoint: String,
    pub(super) connected: bool,
    /// Whether all its blocks and their tokens are known.
    pub(super) complete: bool,
    pub(super) block_size: Option<u32>,
    pub(super) epoch: Option<u64>,
    pub(super) next_batch: Option<u64>,
    /// Blocks in all media together.
    pub(super) blocks: usize,
    /// Blocks whose tokens the worker has not sent.
    pub(super) tokenless: usize,
    /// `None` if the worker has not sent its block size.
    pub(super) tokens: Option<u64>,
    pub(super) media: Vec<Medium>,
    pub(super) batches: u64,
    pub(super) events: u64,
    pub(super) skipped_events: u64,
    pub(super) duplicates: u64,
    pub(super) gaps: u64,
    pub(super) lost_batches: u64,
    pub(super) garbage: u64,
    pub(super) restarts: u64,
    pub(super) snapshots: u64,
}

/// What a worker caches in one medium.
#[derive(Clone, Serialize)]
pub(super) struct Medium {
    pub(super) medium: String,
    pub(super) blocks: usize,
    pub(super) tokens: Option<u64>,
}

impl Worker {
    pub(super) fn new(endpoint: &str, connected: bool, follower: &Follower) -> Self {
        let holdings = follower.holdings();
        let block_size = holdings.block_size();
        let tokens = |blocks: usize| match block_size {
            None if blocks > 0 => None,
            size => Some(blocks as u64 * u64::from(size.unwrap_or(0))),
        };
        let (all_tokens, tokenless) = (tokens(holdings.len()), holdings.tokenless());
        let media = holdings.by_medium().into_iter().map(|(medium, blocks)| Medium {
            medium: medium.name().chars().take(LETTERS).collect(),
            blocks,
            tokens: tokens(blocks),
        });
        let Counts {
            batches,
            events,
            skipped_events,
            duplicates,
            gaps,
            lost_batches,
            garbage,
            restarts,
            snapshots,
            ..
        } = follower.counts();
        Self {
            endpoint: endpoint.to_owned(),
            connected,
            complete: follower.is_complete() && tokenless == 0,
            block_size,
            epoch: follower.epoch(),
            next_batch: follower.next_seq(),
            blocks: holdings.len(),
            tokenless,
            tokens: all_tokens,
            media: media.collect(),
            batches,
            events,
            skipped_events,
            duplicates,
            gaps,
            lost_batches,
            garbage,
            restarts,
            snapshots,
        }
    }

    /// The worker's state in one word.
    pub(super) fn state(&self) -> &'static str {
        match (self.connected, self.next_batch, self.complete) {
            (false, ..) => "away",
            (true, None, _) => "silent",
            (true, Some(_), _) if self.tokenless > 0 => "tokenless",
            (true, Some(_), true) => "complete",
            (true, Some(_), false) => "partial",
        }
    }
}
