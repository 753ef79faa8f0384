//! Records KV events of a replay's cache, and publishes them as an engine does for routers.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use clap::{Args, ValueEnum};
use radixkv::{PrefixCache, Subscription};
use radixkv_events::{CacheRecorder, ChangeError, HashScheme, PublishError, Publisher, PublisherBuilder};

use crate::{console, serving::address};

/// How often events are read from the cache.
const PERIOD: Duration = Duration::from_millis(2);

/// The heading of these options in the help.
const HEADING: &str = "KV events";

/// Options for recording and publishing the cache's events.
#[derive(Args)]
pub(crate) struct EventsOptions {
    /// Record KV events of the cache on a separate thread; blocks are named as in vLLM
    /// (sha256-cbor), as in SGLang (sglang), or by 64-bit XXH3 (xxh3). With `unread` nothing reads
    /// the cache's events
    #[arg(long, help_heading = HEADING, value_name = "SCHEME", requires = "trace")]
    pub(crate) events: Option<Scheme>,
    /// Publish the events at this endpoint, such as tcp://127.0.0.1:5557, for `radixkv follow`;
    /// port 0 is any free port
    #[arg(long, help_heading = HEADING, value_name = "ENDPOINT", requires = "events", value_parser = endpoint)]
    publish: Option<String>,
    /// Endpoint that replays events for followers that missed some or started late
    #[arg(long, help_heading = HEADING, value_name = "ENDPOINT", requires = "publish", value_parser = endpoint)]
    publish_replay: Option<String>,
}

/// Parses a TCP endpoint; the host `*` means every address of this machine.
fn endpoint(text: &str) -> Result<String, &'static str> {
    let is_endpoint = text.strip_prefix("tcp://").is_some_and(|place| address(place).is_ok());
    if is_endpoint { Ok(text.to_owned()) } else { Err("not tcp://HOST:PORT, such as tcp://127.0.0.1:5557") }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheme {
    Sha256Cbor,
    Sglang,
    Xxh3,
    Unread,
}

/// Why events cannot be recorded or published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EventsError {
    #[error("--publish cannot be combined with --events unread")]
    Unread,
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("starting a thread for events failed: {0}")]
    Thread(#[source] io::Error),
    /// The cache has a bug.
    #[error("the cache's events contradict each other: {0}")]
    Contradiction(#[from] ChangeError),
}

/// The events of a replay; recording starts with the first served request.
pub(crate) struct Events<'a> {
    arguments: &'a EventsOptions,
    listener: Mutex<Option<Result<Listener, EventsError>>>,
}

enum Listener {
    /// A subscription that is held but not read.
    Unread(#[expect(dead_code, reason = "dropping it ends it")] Subscription),
    Reading {
        stop: SyncSender<()>,
        thread: JoinHandle<Result<(), ChangeError>>,
    },
}

impl<'a> Events<'a> {
    /// Creates the recorder; it starts with the first request that is served.
    ///
    /// # Errors
    ///
    /// Fails if events are to be published but nothing reads them.
    pub(crate) fn new(arguments: &'a EventsOptions) -> Result<Self, EventsError> {
        match (arguments.events, &arguments.publish) {
            (Some(Scheme::Unread), Some(_)) => Err(EventsError::Unread),
            _ => Ok(Self { arguments, listener: Mutex::new(None) }),
        }
    }

    /// Starts listening to the cache that serves the trace, unless it has already started.
    pub(crate) fn listen(&self, cache: &PrefixCache) {
        if let Some(scheme) = self.arguments.events {
            let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
            listener.get_or_insert_with(|| self.start(cache, scheme));
        }
    }

    /// Records the remaining events, and ends the thread.
    ///
    /// # Errors
    ///
    /// [`EventsError`].
    pub(crate) fn end(self) -> Result<(), EventsError> {
        match self.listener.into_inner().unwrap_or_else(PoisonError::into_inner).transpose()? {
            None | Some(Listener::Unread(_)) => Ok(()),
            Some(Listener::Reading { stop, thread }) => {
                drop(stop);
                Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
            }
        }
    }

    fn start(&self, cache: &PrefixCache, scheme: Scheme) -> Result<Listener, EventsError> {
        let scheme = match scheme {
            Scheme::Sha256Cbor => HashScheme::sha256_cbor("0"),
            Scheme::Sglang => HashScheme::sglang(),
            Scheme::Xxh3 => HashScheme::xxh3(),
            Scheme::Unread => return Ok(Listener::Unread(cache.subscribe(1))),
        };
        let recorder = CacheRecorder::builder(cache, scheme).build();
        let builder = self.arguments.publish.as_ref().map(Publisher::builder);
        let builder = builder.map(|builder| builder.snapshot(recorder.snapshots()));
        let builder = match &self.arguments.publish_replay {
            Some(endpoint) => builder.map(|builder| builder.replay(endpoint)),
            None => builder,
        };
        let publisher = builder.map(PublisherBuilder::build).transpose()?;
        if let Some(publisher) = &publisher {
            let replay = publisher.replay_endpoint().map_or(String::new(), |replay| format!(", replays at {replay}"));
            console::say(format_args!("radixkv: KV events at {}{replay}", publisher.endpoint()));
        }
        let (stop, stopped) = mpsc::sync_channel(0);
        let read = move || read(recorder, publisher.as_ref(), &|| stopped.recv_timeout(PERIOD));
        let thread = thread::Builder::new().name("events".to_owned()).spawn(read).map_err(EventsError::Thread)?;
        Ok(Listener::Reading { stop, thread })
    }
}

/// Reads events periodically until `wait` no longer times out; then reads the rest and returns.
fn read(
    mut recorder: CacheRecorder,
    publisher: Option<&Publisher>,
    wait: &dyn Fn() -> Result<(), RecvTimeoutError>,
) -> Result<(), ChangeError> {
    loop {
        let is_over = wait() != Err(RecvTimeoutError::Timeout);
        match publisher {
            Some(publisher) => _ = recorder.pump(publisher)?,
            None => while recorder.next()?.is_some() {},
        }
        if is_over {
            return Ok(());
        }
    }
}
