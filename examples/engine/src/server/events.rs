//! What the server's cache stores and removes, published for routers.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use radixkv::{NamespaceName, PrefixCache};
use radixkv_events::{CacheRecorder, HashScheme, PublishError, Publisher, Scope};

/// How often events are taken from the cache.
const PERIOD: Duration = Duration::from_millis(5);

/// The cache's KV events on the wire of vLLM, by a thread of their own. Dropping it sends what is left and ends them.
///
/// Blocks are named as vLLM names them with `PYTHONHASHSEED=0`; a request's `cache_salt` is the salt of its blocks.
#[derive(Debug)]
pub struct PublishedEvents {
    endpoint: String,
    replay: Option<String>,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Why no events are published.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The endpoint is none, or taken.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The system has no thread.
    #[error("starting a thread for events failed: {0}")]
    Thread(#[source] io::Error),
}

impl PublishedEvents {
    /// Publishes the events of a cache at `endpoint`, such as `tcp://*:5557`, and answers followers that missed some at
    /// `replay`.
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

    /// Where to subscribe, with the port that was bound.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Where to ask for what was missed, with the port that was bound.
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

/// Pumps again and again, until `wait` says that there will be no more.
fn pump(mut recorder: CacheRecorder, publisher: &Publisher, wait: &dyn Fn() -> Result<(), RecvTimeoutError>) {
    loop {
        let is_over = wait() != Err(RecvTimeoutError::Timeout);
        // After an error the next call says everything anew.
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
