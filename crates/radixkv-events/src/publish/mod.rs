//! Publishes batches over ZeroMQ. [`Publisher`] is the handle with a bounded queue; `serve` is its
//! thread, and `ring` the last batches for replays.

mod ring;
mod serve;

use std::{
    io,
    sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed, mpsc as once},
    thread::{self, JoinHandle},
};

use tokio::sync::mpsc::{self, error::TrySendError};

use crate::{
    batch::Numbered,
    endpoint::{self, EndpointError},
    event::Event,
    wire::Format,
};

/// Publishes batches over ZeroMQ, on its own thread.
///
/// [`publish`](Self::publish) puts a batch into a bounded queue and never waits. If the queue is
/// full, the whole batch is lost; its number is skipped, so subscribers see the gap. The thread
/// encodes batches, sends them to all subscribers (PUB), and keeps the last ones for subscribers
/// that request missed batches (ROUTER; the protocol is in [`wire`](crate::wire)). A subscriber
/// that reads slowly loses batches, and slows down neither the publisher nor other subscribers.
///
/// Dropping the publisher sends the queued batches and ends the thread.
///
/// # Examples
///
/// ```
/// use radixkv_events::{Batch, Event, Numbered, Publisher, now};
///
/// let publisher = Publisher::builder("tcp://127.0.0.1:0").replay("tcp://127.0.0.1:0").build()?;
/// println!("subscribe to {}", publisher.endpoint());
/// let batch = Batch { time: now(), events: vec![Event::Cleared], ..Batch::default() };
/// publisher.publish(Numbered { seq: 0, batch }).expect("room for one batch");
/// # Ok::<_, radixkv_events::PublishError>(())
/// ```
#[derive(Debug)]
pub struct Publisher {
    /// `None` only during the drop.
    queue: Option<mpsc::Sender<Numbered>>,
    lost: AtomicU64,
    counts: Arc<Counts>,
    endpoint: String,
    replay: Option<String>,
    thread: Option<JoinHandle<()>>,
}

/// Counts of the publisher's thread.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    snapshot_panics: AtomicU64,
}

/// Settings of a [`Publisher`].
pub struct PublisherBuilder {
    endpoint: String,
    replay: Option<String>,
    topic: String,
    format: Format,
    queue: usize,
    ring: usize,
    ring_bytes: usize,
    snapshot: Option<Box<dyn FnMut() -> Snapshot + Send>>,
}

/// A snapshot: all blocks that are held at a point between two batches.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// The number of the first batch that the snapshot does not include.
    pub next: u64,
    /// The publisher's epoch.
    pub epoch: Option<u64>,
    /// The blocks as events, parents before children.
    pub events: Vec<Event>,
}

/// Why a publisher could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The endpoint is invalid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// Another program uses the endpoint: end that program, or use another port. Port 0 selects a
    /// free port.
    #[error("{endpoint} is in use by another program")]
    Taken {
        /// The endpoint.
        endpoint: String,
    },
    /// The system reported an error.
    #[error("{endpoint}: {source}")]
    System {
        /// The endpoint.
        endpoint: String,
        /// The system's error.
        source: io::Error,
    },
    /// The system could not start a thread.
    #[error("starting a thread failed: {0}")]
    Thread(#[source] io::Error),
}

/// A batch that was dropped because the queue was full. Continue with the next number: subscribers
/// then see the gap.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("batch {} was dropped: the queue holds {queue} batches", numbered.seq)]
pub struct LostBatch {
    /// The batch.
    pub numbered: Numbered,
    /// The capacity of the queue in batches.
    pub queue: usize,
}

impl PublisherBuilder {
    /// Sets the endpoint where subscribers request replays and snapshots. Default: none.
    pub fn replay(self, endpoint: impl Into<String>) -> Self {
        Self { replay: Some(endpoint.into()), ..self }
    }

    /// Sets the topic of all batches. Default: the empty topic.
    pub fn topic(self, topic: impl Into<String>) -> Self {
        Self { topic: topic.into(), ..self }
    }

    /// Sets how events are encoded. Default: maps.
    pub fn format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Sets how many batches may wait to be sent; at least one. Default: 100,000.
    pub fn queue(self, batches: usize) -> Self {
        Self { queue: batches.max(1), ..self }
    }

    /// Limits the batches that are kept for replays, by their number and by their bytes. Default:
    /// 10,000 batches and 256 MiB.
    pub fn ring(self, batches: usize, bytes: usize) -> Self {
        Self { ring: batches, ring_bytes: bytes, ..self }
    }

    /// Sets the source of snapshots for subscribers that request one. Default: none; requests get
    /// an empty answer.
    ///
    /// `snapshot` is called on the publisher's thread, which sends no batches meanwhile. If it
    /// panics, the request gets an empty answer ([`Publisher::snapshot_panics`]).
    pub fn snapshot(self, snapshot: impl FnMut() -> Snapshot + Send + 'static) -> Self {
        Self { snapshot: Some(Box::new(snapshot)), ..self }
    }

    /// Binds the endpoints and starts the thread.
    ///
    /// # Errors
    ///
    /// [`PublishError`], if an endpoint is invalid or in use, or if the system reports an error.
    pub fn build(self) -> Result<Publisher, PublishError> {
        endpoint::parse(&self.endpoint)?;
        self.replay.as_deref().map(endpoint::parse).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(PublishError::Thread)?;
        let (queue, batches) = mpsc::channel(self.queue);
        let (ready, bound) = once::sync_channel(1);
        let counts = Arc::<Counts>::default();
        let run = {
            let counts = Arc::clone(&counts);
            move || runtime.block_on(serve::run(self, batches, &ready, &counts))
        };
        let thread = thread::Builder::new().name("kv-events".to_owned()).spawn(run).map_err(PublishError::Thread)?;
        let (endpoint, replay) = bound.recv().expect("the thread reports the result of binding")?;
        let lost = AtomicU64::new(0);
        Ok(Publisher { queue: Some(queue), lost, counts, endpoint, replay, thread: Some(thread) })
    }
}

impl Publisher {
    /// Configures a publisher at an endpoint such as `tcp://*:5557`; port 0 selects a free port. By
    /// custom, a worker adds its data-parallel rank to the port.
    pub fn builder(endpoint: impl Into<String>) -> PublisherBuilder {
        PublisherBuilder {
            endpoint: endpoint.into(),
            replay: None,
            topic: String::new(),
            format: Format::Maps,
            queue: 100_000,
            ring: 10_000,
            ring_bytes: 256 << 20,
            snapshot: None,
        }
    }

    /// Queues a batch for the sending thread. Waits neither for room in the queue nor for a
    /// subscriber.
    ///
    /// # Errors
    ///
    /// [`LostBatch`], if the queue is full: the batch is not sent.
    pub fn publish(&self, numbered: Numbered) -> Result<(), LostBatch> {
        let queue = self.queue.as_ref().expect("set until the drop");
        queue.try_send(numbered).map_err(|refused| {
            // Relaxed: a count.
            self.lost.fetch_add(1, Relaxed);
            let (TrySendError::Full(numbered) | TrySendError::Closed(numbered)) = refused;
            LostBatch { numbered, queue: queue.max_capacity() }
        })
    }

    /// Whether the queue has room for a batch.
    #[cfg(feature = "cache")]
    pub(crate) fn has_room(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.capacity() > 0)
    }

    /// The endpoint to subscribe to, with the bound port.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The endpoint for replays, with the bound port.
    pub fn replay_endpoint(&self) -> Option<&str> {
        self.replay.as_deref()
    }

    /// Batches that were sent, with or without subscribers.
    pub fn sent_batches(&self) -> u64 {
        // Relaxed: a count.
        self.counts.sent.load(Relaxed)
    }

    /// Requests for a snapshot whose source panicked.
    pub fn snapshot_panics(&self) -> u64 {
        // Relaxed: a count.
        self.counts.snapshot_panics.load(Relaxed)
    }

    /// Batches that were dropped because the queue was full.
    pub fn lost_batches(&self) -> u64 {
        // Relaxed: a count.
        self.lost.load(Relaxed)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for PublisherBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("PublisherBuilder");
        out.field("endpoint", &self.endpoint).field("replay", &self.replay).finish_non_exhaustive()
    }
}
