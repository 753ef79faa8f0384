//! Follows a publisher over ZeroMQ: the thread of a [`Subscriber`], which feeds a [`Follower`] and
//! requests missing batches.

mod ask;

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use zeromq::{Host, Socket, SocketEvent, SocketOptions, SocketRecv, SubSocket};

use crate::{
    endpoint::{self, EndpointError},
    event::Event,
    follower::{FollowError, Follower, Update, Verdict},
    relay::{Bounds, Relay},
    wire::{self, MAX_PAYLOAD, SNAPSHOT},
};

/// How long a publisher may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(1);
/// Limits for a publisher: a message has the bytes of its payload and up to 1 MiB for the topic.
/// The total is not limited.
const PUBLISHER: Bounds = Bounds { message: MAX_PAYLOAD as u64 + (1 << 20), ..Bounds::OF_ANY };
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Follows a publisher on its own thread: subscribes, and requests missing batches.
///
/// It waits for a publisher that has not started yet, and reconnects if a publisher disappears. It
/// handles a gap as [`Follower`] describes: it requests the missing batches, then a snapshot, and
/// then accepts the gap.
///
/// A message has at most [`wire::MAX_PAYLOAD`] bytes of payload; if a publisher announces more, the
/// subscriber closes the connection and connects again. Each block that the publisher reports takes
/// memory here; [`SubscriberBuilder::max_bytes`] limits it.
///
/// # Examples
///
/// ```no_run
/// use radixkv_events::Subscriber;
///
/// let subscriber = Subscriber::builder("tcp://127.0.0.1:5557").replay("tcp://127.0.0.1:5558").start()?;
/// std::thread::sleep(std::time::Duration::from_secs(1));
/// subscriber.with(|follower| println!("{} blocks", follower.holdings().len()));
/// # Ok::<_, radixkv_events::SubscribeError>(())
/// ```
#[derive(Debug)]
pub struct Subscriber {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Settings of a [`Subscriber`].
pub struct SubscriberBuilder {
    endpoint: String,
    replay: Option<String>,
    topic: String,
    follower: Follower,
}

/// Why a subscriber could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The endpoint is invalid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The system could not start a thread.
    #[error("starting a thread failed: {0}")]
    Thread(#[source] io::Error),
}

#[derive(Debug)]
struct Shared {
    follower: Mutex<Follower>,
    is_connected: AtomicBool,
    failure: Mutex<Option<FollowError>>,
    stop: Notify,
}

impl SubscriberBuilder {
    /// Sets the endpoint that replays batches and serves snapshots. Default: none, so gaps cannot
    /// be filled.
    pub fn replay(self, endpoint: impl Into<String>) -> Self {
        Self { replay: Some(endpoint.into()), ..self }
    }

    /// Follows batches whose topic begins with this text. Default: all.
    pub fn topic(self, topic: impl Into<String>) -> Self {
        Self { topic: topic.into(), ..self }
    }

    /// Sets the block size that the worker must have. Call it first: it replaces the settings of
    /// [`max_bytes`](Self::max_bytes) and [`watched`](Self::watched). Default: the block size of
    /// the first event.
    pub fn block_size(self, block_size: u32) -> Self {
        Self { follower: Follower::with_block_size(block_size), ..self }
    }

    /// Limits the memory of the worker's blocks, in bytes; a worker beyond it is refused. Call it
    /// after [`block_size`](Self::block_size). Default: no limit.
    pub fn max_bytes(self, bytes: usize) -> Self {
        Self { follower: self.follower.max_bytes(bytes), ..self }
    }

    /// Calls `watcher` for each change of the holdings, on the subscriber's thread, as
    /// [`Follower::watched`]. Call it after [`block_size`](Self::block_size).
    pub fn watched(self, watcher: impl FnMut(Update<'_>) + Send + 'static) -> Self {
        Self { follower: self.follower.watched(watcher), ..self }
    }

    /// Starts the thread. The publisher need not exist yet.
    ///
    /// # Errors
    ///
    /// [`SubscribeError`], if an endpoint is invalid, or if no thread can be started.
    pub fn start(self) -> Result<Subscriber, SubscribeError> {
        let publisher = endpoint::parse(&self.endpoint)?;
        let replay = self.replay.as_deref().map(endpoint::parse).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(SubscribeError::Thread)?;
        let shared = Arc::new(Shared {
            follower: Mutex::new(self.follower),
            is_connected: AtomicBool::new(false),
            failure: Mutex::new(None),
            stop: Notify::new(),
        });
        let follow = Follow { publisher, replay, topic: self.topic, shared: Arc::clone(&shared) };
        let run = move || runtime.block_on(follow.run());
        let thread = thread::Builder::new().name("kv-follow".to_owned()).spawn(run).map_err(SubscribeError::Thread)?;
        Ok(Subscriber { shared, thread: Some(thread) })
    }
}

impl Subscriber {
    /// Configures a subscriber to the publisher at an endpoint such as `tcp://host:5557`.
    pub fn builder(endpoint: impl Into<String>) -> SubscriberBuilder {
        let follower = Follower::new();
        SubscriberBuilder { endpoint: endpoint.into(), replay: None, topic: String::new(), follower }
    }

    /// Calls a function with the follower, which has the worker's holdings. The follower is locked
    /// meanwhile, so no events are applied.
    pub fn with<T>(&self, look: impl FnOnce(&Follower) -> T) -> T {
        look(&self.shared.follower())
    }

    /// Same as [`with`](Self::with), but returns `None` if the follower is locked at the moment.
    pub fn try_with<T>(&self, look: impl FnOnce(&Follower) -> T) -> Option<T> {
        match self.shared.follower.try_lock() {
            Ok(follower) => Some(look(&follower)),
            Err(TryLockError::Poisoned(follower)) => Some(look(&follower.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Whether the subscriber is connected to the publisher, as far as the system knows.
    pub fn is_connected(&self) -> bool {
        // Relaxed: the flag is only displayed.
        self.shared.is_connected.load(Relaxed)
    }

    /// The reason why the publisher is no longer followed; `None` while it is.
    pub fn failure(&self) -> Option<FollowError> {
        *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn follower(&self) -> MutexGuard<'_, Follower> {
        // Only a caller's function panics while it is locked, and it cannot change the follower.
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the subscriber's thread.
struct Follow {
    publisher: (Host, u16),
    replay: Option<(Host, u16)>,
    topic: String,
    shared: Arc<Shared>,
}

/// A request that may fill a gap.
#[derive(Clone, Copy)]
enum Remedy {
    Replay,
    Snapshot,
}

/// The publisher's answer to a request for a snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// No complete answer, or no endpoint for requests.
    None,
    /// The publisher has no snapshot.
    Empty,
    /// A snapshot, which the follower has restored.
    Some,
}

impl Follow {
    /// Follows until the subscriber is dropped or the publisher is refused.
    async fn run(&self) {
        tokio::select! {
            failure = self.follow() => {
                *self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            }
            () = self.shared.stop.notified() => {}
        }
    }

    async fn follow(&self) -> FollowError {
        loop {
            let mut options = SocketOptions::default();
            options.connect_timeout(CONNECT);
            let mut socket = SubSocket::with_options(options);
            let mut connections = socket.monitor();
            if let Ok((endpoint, _relay)) = Relay::outward(&self.publisher, PUBLISHER).await
                && socket.connect(&endpoint).await.is_ok()
                && socket.subscribe(&self.topic).await.is_ok()
            {
                break self.listen(socket, || connections.try_recv().ok()).await;
            }
            sleep(PAUSE).await;
        }
    }

    /// Receives messages until the publisher is refused. The socket reconnects automatically, and
    /// reports it through `connection`.
    async fn listen(&self, mut socket: SubSocket, mut connection: impl FnMut() -> Option<SocketEvent>) -> FollowError {
        loop {
            while let Some(event) = connection() {
                let is_connected = matches!(event, SocketEvent::Connected(..));
                // Relaxed: the flag is only displayed.
                self.shared.is_connected.store(is_connected, Relaxed);
                if let (true, Err(refused)) = (is_connected, self.begin().await) {
                    return refused;
                }
            }
            let Ok(received) = timeout(PAUSE, socket.recv()).await else { continue };
            let Ok(message) = received else {
                sleep(PAUSE).await;
                continue;
            };
            let frames = message.into_vec();
            let Some((seq, payload)) = ask::numbered(&frames) else { continue };
            if let Err(refused) = self.receive(seq, payload).await {
                return refused;
            }
        }
    }

    /// Requests a snapshot, or, if the publisher has none, the batches from the next number on. So
    /// the holdings of an idle worker become known.
    async fn begin(&self) -> Result<(), FollowError> {
        if self.restore().await? == Answer::Empty {
            let next = self.shared.follower().next_seq().unwrap_or(0);
            self.ask_from(next).await?;
        }
        Ok(())
    }

    /// Processes a live message, and first requests the batches that are missing before it.
    async fn receive(&self, seq: u64, payload: &[u8]) -> Result<(), FollowError> {
        let is_new = self.shared.follower().next_seq().is_none();
        let (mut remedies, mut is_restarted) = (remedies(is_new), false);
        let decoded = wire::decode(payload);
        loop {
            let verdict = self.shared.follower().receive_decoded(seq, &decoded);
            match verdict {
                Ok(Verdict::Applied | Verdict::Duplicate) => return Ok(()),
                Ok(Verdict::Restarted) if is_restarted => {
                    // A second restart: the message is from a publisher that no longer runs. Take
                    // the new publisher's snapshot, and ignore the message.
                    self.restore().await?;
                    return Ok(());
                }
                Ok(Verdict::Restarted) => (remedies, is_restarted) = (self::remedies(true), true),
                Ok(Verdict::Gap { missing }) => match remedies.next() {
                    // A request that is not answered is followed by the next one: a publisher that
                    // was busy may answer that.
                    Some(Remedy::Replay) => self.ask_from(missing.start).await?,
                    Some(Remedy::Snapshot) => drop(self.restore().await?),
                    None => self.shared.follower().accept_gap(seq),
                },
                Err(FollowError::Garbage(_)) => {
                    self.restore().await?;
                    return Ok(());
                }
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Requests the batches from `seq` on, and feeds them to the follower up to the first gap.
    async fn ask_from(&self, seq: u64) -> Result<(), FollowError> {
        for (seq, payload) in self.ask(seq.to_be_bytes()).await.unwrap_or_default() {
            let decoded = wire::decode(&payload);
            let verdict = self.shared.follower().receive_decoded(seq, &decoded);
            match verdict {
                Ok(Verdict::Applied | Verdict::Duplicate) => {}
                Ok(Verdict::Gap { .. } | Verdict::Restarted) | Err(FollowError::Garbage(_)) => break,
                Err(refused) => return Err(refused),
            }
        }
        Ok(())
    }

    /// Requests a snapshot, and replaces the holdings by it if the publisher has one.
    async fn restore(&self) -> Result<Answer, FollowError> {
        let Some(answers) = self.ask(SNAPSHOT).await else { return Ok(Answer::None) };
        let Some(&(next, _)) = answers.first() else { return Ok(Answer::Empty) };
        let (mut events, mut epoch): (Vec<Event>, _) = (Vec::new(), None);
        for (_, payload) in answers {
            let Ok(decoded) = wire::decode(&payload) else { return Ok(Answer::Empty) };
            events.extend(decoded.batch.events);
            epoch = epoch.or(decoded.batch.epoch);
        }
        self.shared.follower().restore(next, epoch, &events)?;
        Ok(Answer::Some)
    }

    /// Sends a request. Returns `None` if there is no endpoint for requests, or if the answer is
    /// incomplete.
    async fn ask(&self, what: [u8; 8]) -> Option<Vec<(u64, bytes::Bytes)>> {
        ask::ask(self.replay.as_ref()?, what).await
    }
}

/// The requests to try for a gap, in order. A follower without holdings needs everything, so it
/// requests a snapshot first.
fn remedies(is_new: bool) -> std::slice::Iter<'static, Remedy> {
    if is_new {
        [Remedy::Snapshot, Remedy::Replay].iter()
    } else {
        [Remedy::Replay, Remedy::Snapshot, Remedy::Replay].iter()
    }
}

impl std::fmt::Debug for SubscriberBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("SubscriberBuilder");
        out.field("endpoint", &self.endpoint).field("replay", &self.replay).finish_non_exhaustive()
    }
}
