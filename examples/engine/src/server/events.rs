//! Publishes the KV events of the server's cache for routers.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use radixkv::{NamespaceName, PrefixCache};
use radixkv_events::{CacheRecorder, HashScheme, PublishError, Publisher, Scope};

/// The interval at which events are taken from the cache.
const PERIOD: Duration = Duration::from_millis(5);

/// Publishes the cache's KV events in vLLM's wire format, on its own thread. Dropping it sends the
/// remaining events and ends the thread.
///
/// Blocks are named as vLLM names them with `PYTHONHASHSEED=0`; a request's `cache_salt` is the
/// salt of its blocks.
#[derive(Debug)]
pub struct PublishedEvents {
    endpoint: String,
    replay: Option<String>,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why events cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The endpoint is invalid or in use.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The system could not start a thread.
    #[error("starting a thread for events failed: {0}")]
    Thread(#[source] io::Error),
}

impl PublishedEvents {
    /// Publishes the events of a cache at `endpoint`, such as `tcp://*:5557`. At `replay`,
    /// followers can request missed batches.
    ///
    /// # Errors
    ///
    /// [`EventsError`].
    pub fn start(cache: &PrefixCache, endpoint: &str, replay: Option<&str>) -> Result<Self, EventsError> {
        let recorder = CacheRecorder::builder(cache, HashScheme::sha256_cbor("0")).scopes(scope).build();
        let builder = Publisher::builder(endpoint).snapshot(recorder.snapshots());
        let builder = match replay {
            Some(replay) => builder.replay(replay),
            None => builder,
        };
        let publisher = builder.build()?;
        let (endpoint, replay) = (publisher.endpoint().to_owned(), publisher.replay_endpoint().map(str::to_owned));
        let (stop, stopped) = mpsc::sync_channel(0);
        let pump = move || pump(recorder, &publisher, &|| stopped.recv_timeout(PERIOD));
        let thread = thread::Builder::new().name("events".to_owned()).spawn(pump).map_err(EventsError::Thread)?;
        Ok(Self { endpoint, replay, stop: Some(stop), thread: Some(thread) })
    }

    /// The endpoint to subscribe to, with the bound port.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The endpoint for requests of missed batches, with the bound port.
    pub fn replay_endpoint(&self) -> Option<&str> {
        self.replay.as_deref()
    }
}

impl Drop for PublishedEvents {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Pumps events periodically until `wait` returns that the server stops, then once more.
fn pump(mut recorder: CacheRecorder, publisher: &Publisher, wait: &dyn Fn() -> Result<(), RecvTimeoutError>) {
    loop {
        let is_over = wait() != Err(RecvTimeoutError::Timeout);
        // After an error, the next call lists the whole cache again.
        let pumped = recorder.pump(publisher);
        debug_assert!(pumped.is_ok(), "{pumped:?}");
        if is_over {
            return;
        }
    }
}

/// The scope of a namespace of [`Salts`](super::salts::Salts).
fn scope(name: &NamespaceName) -> Scope {
    name.parts().last().map_or_else(Scope::default, Scope::salted)
}
