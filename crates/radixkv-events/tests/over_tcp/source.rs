//! A worker that stores and removes blocks, and knows what it holds.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use radixkv_events::{
    BlockHash, Change, Event, Follower, HashScheme, Holdings, Numbered, Publisher, PublisherBuilder, Recorder, Scope,
    Snapshot, Subscriber, now,
};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a worker holds and the number of its next batch, as its snapshots say it.
pub(crate) type Truth = Arc<Mutex<(Holdings, u64)>>;

pub(crate) struct Worker {
    pub(crate) recorder: Recorder,
    pub(crate) truth: Truth,
    next: u32,
}

impl Worker {
    pub(crate) fn new() -> Self {
        let recorder = Recorder::builder(2, HashScheme::xxh3()).build();
        Self { recorder, truth: Truth::default(), next: 0 }
    }

    /// A batch that stores two blocks, and from the fourth on removes the two that came three
    /// batches before.
    pub(crate) fn batch(&mut self) -> Numbered {
        let (scope, first) = (Scope::default(), self.next);
        let tokens = [first, 1, first, 2];
        let stored = Change::Stored {
            tier: 0,
            scope: &scope,
            parent: None,
            blocks: &[first, first + 1],
            tokens: &tokens,
            bigrams: false,
        };
        self.recorder.record(&stored).unwrap();
        if first >= 6 && first % 4 == 0 {
            self.recorder.record(&Change::Removed { tier: 0, blocks: &[first - 5, first - 6] }).unwrap();
        }
        self.next += 2;
        let numbered = self.recorder.take(now()).unwrap();
        let mut truth = self.truth.lock().unwrap();
        numbered.batch.events.iter().for_each(|event| truth.0.apply(event).unwrap());
        truth.1 = numbered.seq + 1;
        numbered
    }

    pub(crate) fn publish(&mut self, publisher: &Publisher, batches: usize) {
        (0..batches).for_each(|_| publisher.publish(self.batch()).unwrap());
    }

    /// Settings of a publisher whose snapshots are the truth.
    pub(crate) fn with_snapshots(&self, builder: PublisherBuilder) -> PublisherBuilder {
        let (truth, epoch) = (Arc::clone(&self.truth), self.recorder.epoch());
        builder.snapshot(move || {
            let truth = truth.lock().unwrap();
            Snapshot { next: truth.1, epoch: Some(epoch), events: truth.0.snapshot() }
        })
    }

    pub(crate) fn names(&self) -> Vec<BlockHash> {
        sorted(&self.truth.lock().unwrap().0)
    }
}

pub(crate) fn sorted(holdings: &Holdings) -> Vec<BlockHash> {
    let mut names: Vec<_> = holdings.names().collect();
    names.sort_unstable();
    names
}

/// Waits until a follower is as it should be.
pub(crate) fn wait(subscriber: &Subscriber, what: &str, is_so: impl Fn(&Follower) -> bool) {
    let began = Instant::now();
    while !subscriber.with(&is_so) {
        assert!(began.elapsed() < PATIENCE, "{what}: {:?}", subscriber.with(|follower| format!("{follower:?}")));
        thread::sleep(Duration::from_millis(2));
    }
}

/// An event for a publisher of its own.
pub(crate) fn stored(hash: u64, block_size: u32) -> Event {
    Event::Stored(radixkv_events::Stored {
        hashes: vec![BlockHash::Unsigned(hash)],
        tokens: vec![1; block_size as usize],
        block_size,
        ..Default::default()
    })
}
