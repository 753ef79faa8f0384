//! What the publisher's thread does.

use std::{
    future, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::SyncSender,
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc},
    time::{Instant, sleep, timeout},
};
use zeromq::{
    Endpoint, PubSocket, RouterRecvHalf, RouterSendHalf, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage,
};

use super::{PublishError, PublisherBuilder, Snapshot, ring::Ring};
use crate::{
    batch::{Batch, Numbered, now},
    endpoint,
    relay::{Bounds, Relay},
    wire::{self, END, Format, SNAPSHOT},
};

/// How long what was sent has to reach the relays before the sockets close.
const LINGER: Duration = Duration::from_millis(100);
/// How long the relays may then take to pass it on; a peer that reads more slowly loses it.
const DRAIN: Duration = Duration::from_millis(500);
/// Bytes of a subscription, and of all those of a subscriber, whether they were taken back or not.
const SUBSCRIBER: Bounds = Bounds { message: 64 << 10, all: 1 << 20, ..Bounds::OF_ANY };
/// Bytes of a request. Requests are read one after the other: all of them may be as many as there are.
const ASKER: Bounds = Bounds { message: 1 << 10, ..Bounds::OF_ANY };
/// How long one that asked may take for each batch of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Answers that are given at the same time; who asks beyond that gets none, and asks again.
const ANSWERS: usize = 8;
/// Events of a snapshot that go into one batch.
const SNAPSHOT_EVENTS: usize = 64;

type Bound = Result<(String, Option<String>), PublishError>;

/// Binds, says how that went, and serves until the queue is closed and empty.
pub(super) async fn run(
    settings: PublisherBuilder,
    mut batches: mpsc::Receiver<Numbered>,
    ready: &SyncSender<Bound>,
    sent: &AtomicU64,
) {
    let (mut server, relays) = match Server::bind(settings).await {
        Ok((server, relays, bound)) => {
            let _ = ready.send(Ok(bound));
            (server, relays)
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    loop {
        tokio::select! {
            batch = batches.recv() => match batch {
                Some(numbered) => {
                    server.send(&numbered).await;
                    // Relaxed: a count.
                    sent.fetch_add(1, Relaxed);
                }
                None => break,
            },
            asked = next_request(server.asked.as_mut()) => server.answer(asked),
        }
    }
    sleep(LINGER).await;
    drop(server);
    let end = Instant::now() + DRAIN;
    for relay in relays {
        relay.end(end).await;
    }
}

struct Server {
    settings: PublisherBuilder,
    socket: PubSocket,
    asked: Option<RouterRecvHalf>,
    answers: Option<RouterSendHalf>,
    permits: Arc<Semaphore>,
    ring: Ring,
    topic: Bytes,
}

/// Who asks, and for what.
struct Request {
    identity: Bytes,
    what: [u8; 8],
}

impl Server {
    async fn bind(settings: PublisherBuilder) -> Result<(Self, Vec<Relay>, (String, Option<String>)), PublishError> {
        let mut relays = Vec::new();
        // First, so that a subscriber that is connected can ask.
        let (mut replay, mut halves) = (None, None);
        if let Some(endpoint) = &settings.replay {
            let mut router = RouterSocket::new();
            let (bound, relay) = bind(&mut router, endpoint, ASKER).await?;
            (replay, halves) = (Some(bound), Some(router.split()));
            relays.push(relay);
        }
        let (answers, asked) = halves.unzip();
        let mut socket = PubSocket::new();
        let (endpoint, relay) = bind(&mut socket, &settings.endpoint, SUBSCRIBER).await?;
        relays.push(relay);
        let server = Self {
            socket,
            asked,
            answers,
            permits: Arc::new(Semaphore::new(ANSWERS)),
            ring: Ring::new(settings.ring, settings.ring_bytes),
            topic: settings.topic.clone().into(),
            settings,
        };
        Ok((server, relays, (endpoint, replay)))
    }

    /// Sends a batch to those that subscribe, and keeps it.
    async fn send(&mut self, Numbered { seq, batch }: &Numbered) {
        let payload = Bytes::from(wire::encode(batch, self.settings.format));
        let frames = [self.topic.clone(), number(*seq), payload.clone()];
        // It only fails by itself where a socket sends to one peer; this one drops what a subscriber does not take.
        let _ = self.socket.send(message(frames)).await;
        self.ring.push(*seq, payload);
    }

    /// Answers on a task of its own, unless too many are answered already.
    fn answer(&mut self, Request { identity, what }: Request) {
        let (Some(mut socket), Ok(permit)) = (self.answers.clone(), Arc::clone(&self.permits).try_acquire_owned())
        else {
            return;
        };
        let payloads = match (what == SNAPSHOT, &mut self.settings.snapshot) {
            (false, _) => self.ring.from(u64::from_be_bytes(what)),
            (true, Some(snapshot)) => payloads(&snapshot(), self.settings.format),
            (true, None) => Vec::new(),
        };
        let topic = self.topic.clone();
        tokio::spawn(async move {
            let answers = payloads.into_iter().map(|(seq, payload)| [topic.clone(), number(seq), payload]);
            let end = [Bytes::new(), Bytes::copy_from_slice(&END), Bytes::new()];
            for [topic, seq, payload] in answers.chain([end]) {
                let frames = [identity.clone(), Bytes::new(), topic, seq, payload];
                if !matches!(timeout(PATIENCE, socket.send(message(frames))).await, Ok(Ok(()))) {
                    break;
                }
            }
            drop(permit);
        });
    }
}

/// A snapshot as payloads; one that holds nothing has one.
fn payloads(snapshot: &Snapshot, format: Format) -> Vec<(u64, Bytes)> {
    let batch = |events: &[_]| {
        let batch = Batch { time: now(), events: events.to_vec(), rank: None, epoch: snapshot.epoch };
        (snapshot.next, wire::encode(&batch, format).into())
    };
    if snapshot.events.is_empty() {
        return vec![batch(&[])];
    }
    snapshot.events.chunks(SNAPSHOT_EVENTS).map(batch).collect()
}

/// The next request that is one.
async fn next_request(asked: Option<&mut RouterRecvHalf>) -> Request {
    let Some(asked) = asked else { return future::pending().await };
    loop {
        let Ok(message) = asked.recv().await else {
            // A peer that broke off; the next one that asks is heard.
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let frames = message.into_vec();
        let [identity, empty, what] = frames.as_slice() else { continue };
        if let (true, Ok(what)) = (empty.is_empty(), <[u8; 8]>::try_from(what.as_ref())) {
            return Request { identity: identity.clone(), what };
        }
    }
}

/// Binds a socket behind a relay, which listens at the endpoint; where that is, with its port.
async fn bind(socket: &mut impl Socket, endpoint: &str, bounds: Bounds) -> Result<(String, Relay), PublishError> {
    let (host, port) = endpoint::parse(endpoint)?;
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => PublishError::Taken { endpoint: endpoint.to_owned() },
        _ => PublishError::System { endpoint: endpoint.to_owned(), source },
    };
    let inner = match socket.bind("tcp://127.0.0.1:0").await {
        Ok(Endpoint::Tcp(_, port)) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        other => return Err(refused(io::Error::other(format!("no port of the loopback interface: {other:?}")))),
    };
    let listener = TcpListener::bind((host.to_string().as_str(), port)).await.map_err(refused)?;
    let bound = Endpoint::Tcp(host, listener.local_addr().map_err(refused)?.port());
    Ok((bound.to_string(), Relay::inward(listener, inner, bounds)))
}

fn number(seq: u64) -> Bytes {
    Bytes::copy_from_slice(&seq.to_be_bytes())
}

fn message<const N: usize>(frames: [Bytes; N]) -> ZmqMessage {
    ZmqMessage::try_from(Vec::from(frames)).expect("there are frames")
}
