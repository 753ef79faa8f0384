//! A tier below the region, and its pending requests.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use radixkv_tiers::{Completion, Get, Layout, Outcome, Put, RemoteTier, Stats, Ticket, Tier};

use super::batch::{Batch, Span, Verb};
use super::engine::lock;

/// How long a thread waits at a time for a tier's completions.
const LOOK: Duration = Duration::from_secs(1);

/// The pending requests to a tier, by the tier's ticket.
#[derive(Default)]
struct Asked {
    requests: HashMap<Ticket, Request>,
    is_closed: bool,
}

struct Request {
    batch: Arc<Batch>,
    /// For each item of the request, the index of its block in the batch.
    blocks: Vec<usize>,
    left: usize,
}

/// A tier below the region.
pub(super) struct Below {
    pub(super) kind: &'static str,
    layout: Layout,
    tier: Tier<Span>,
    asked: Mutex<Asked>,
    bell: Condvar,
}

impl Asked {
    /// Finds the block of a completion, and removes it from its request.
    fn answered(&mut self, completion: Completion<Span>) -> Option<(Arc<Batch>, usize, Outcome<Span>)> {
        let request = self.requests.get_mut(&completion.ticket)?;
        request.left -= 1;
        let (batch, index) = (Arc::clone(&request.batch), request.blocks[completion.index]);
        if request.left == 0 {
            self.requests.remove(&completion.ticket);
        }
        Some((batch, index, completion.outcome))
    }
}

impl Below {
    pub(super) fn new(kind: &'static str, layout: Layout, tier: Tier<Span>) -> Self {
        Self { kind, layout, tier, asked: Mutex::default(), bell: Condvar::new() }
    }

    pub(super) fn stats(&self) -> Stats {
        self.tier.stats()
    }

    /// Submits blocks of a batch to the tier; false if the tier refuses.
    pub(super) fn ask(&self, batch: &Arc<Batch>, blocks: &[usize]) -> bool {
        let named = |index: &usize| {
            let block = self.layout.digest_block(&batch.keys[*index].to_vec());
            (block.expect("the keys have the layout's length"), batch.span_or_none(*index))
        };
        let named: Vec<_> = blocks.iter().map(named).collect();
        let keys = || named.iter().map(|(block, _)| block.key()).collect::<Vec<_>>();
        let with_memory = || named.iter().filter_map(|(block, span)| Some((block.clone(), (*span)?)));
        // Under the lock, so that no completion is handled before its request is recorded.
        let mut asked = lock(&self.asked);
        let ticket = match batch.verb {
            Verb::Lookup => self.tier.contains(keys()).ok(),
            Verb::Remove => self.tier.remove(keys()).ok(),
            Verb::Load(_) => {
                self.tier.get_into(with_memory().map(|(block, buffer)| Get { block, buffer }).collect()).ok()
            }
            Verb::Store(time_to_live) => self
                .tier
                .put_from(with_memory().map(|(block, buffer)| Put { block, buffer, time_to_live }).collect())
                .ok(),
        };
        let Some(ticket) = ticket else { return false };
        let request = Request { batch: Arc::clone(batch), blocks: blocks.to_vec(), left: blocks.len() };
        asked.requests.insert(ticket, request);
        drop(asked);
        self.bell.notify_one();
        true
    }

    /// Waits up to [`LOOK`] for completions of the tier. Returns blocks of batches with their
    /// outcomes.
    pub(super) fn answers(&self) -> Vec<(Arc<Batch>, usize, Outcome<Span>)> {
        let mut done = Vec::new();
        self.tier.poll(&mut done, LOOK);
        let mut asked = lock(&self.asked);
        done.into_iter().filter_map(|completion| asked.answered(completion)).collect()
    }

    /// Waits until there are pending requests; false if the store is closed and there are none.
    pub(super) fn is_asked(&self) -> bool {
        let mut asked = lock(&self.asked);
        while asked.requests.is_empty() {
            if asked.is_closed {
                return false;
            }
            asked = self.bell.wait(asked).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    pub(super) fn close(&self) {
        lock(&self.asked).is_closed = true;
        self.bell.notify_all();
    }
}
