//! The publisher's thread: encodes and sends queued batches, and answers requests for replays and
//! snapshots.

use std::{
    future, io, iter,
    net::{Ipv4Addr, SocketAddr},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering::Relaxed, mpsc::SyncSender},
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

use super::{Counts, PublishError, PublisherBuilder, Snapshot, ring::Ring};
use crate::{
    batch::{Batch, Numbered, now},
    divide::{self, divide},
    endpoint,
    relay::{Bounds, Relay},
    wire::{self, END, Format, MAX_HASHES, SNAPSHOT},
};

/// How long the thread waits before it closes the sockets, so that sent messages reach the relays.
const LINGER: Duration = Duration::from_millis(100);
/// How long the relays may then take to pass the messages on. A slower peer loses them.
const DRAIN: Duration = Duration::from_millis(500);
/// Limits for a subscriber: bytes of one subscription, and of all its subscriptions together,
/// including cancelled ones.
const SUBSCRIBER: Bounds = Bounds { message: 64 << 10, all: 1 << 20, ..Bounds::OF_ANY };
/// Limits for a peer that sends requests: bytes of one request. The total is unlimited, because
/// requests are read one at a time.
const ASKER: Bounds = Bounds { message: 1 << 10, ..Bounds::OF_ANY };
/// How long the peer may take to accept each batch of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of concurrent answers. A request beyond it gets no answer; the peer has to repeat
/// it.
const ANSWERS: usize = 8;

/// Limits of a batch of a snapshot: less than followers read, because each must arrive in a short
/// time.
const SNAPSHOT_BATCH: divide::Bounds = divide::Bounds { events: 64, bytes: 4 << 20, hashes: MAX_HASHES };

/// The numbers and payloads of an answer.
type Payloads = Box<dyn Iterator<Item = (u64, Bytes)> + Send>;
type Bound = Result<(String, Option<String>), PublishError>;

/// Binds, reports the result to `ready`, and serves until the queue is closed and empty.
pub(super) async fn run(
    settings: PublisherBuilder,
    mut batches: mpsc::Receiver<Numbered>,
    ready: &SyncSender<Bound>,
    counts: &Counts,
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
                    counts.sent.fetch_add(1, Relaxed);
                }
                None => break,
            },
            asked = next_request(server.asked.as_mut()) => server.answer(asked, counts),
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

/// A request for a replay or a snapshot, and the peer that sent it.
struct Request {
    identity: Bytes,
    what: [u8; 8],
}

impl Server {
    async fn bind(settings: PublisherBuilder) -> Result<(Self, Vec<Relay>, (String, Option<String>)), PublishError> {
        let mut relays = Vec::new();
        // Bound first, so that a subscriber that is connected can already send requests.
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

    /// Sends a batch to all subscribers, and keeps it for replays.
    async fn send(&mut self, Numbered { seq, batch }: &Numbered) {
        let payload = Bytes::from(wire::encode(batch, self.settings.format));
        let frames = [self.topic.clone(), number(*seq), payload.clone()];
        // A PUB socket drops messages that a subscriber does not accept, and returns no error for
        // them.
        let _ = self.socket.send(message(frames)).await;
        self.ring.push(*seq, payload);
    }

    /// Answers a request on a new task; does nothing if [`ANSWERS`] tasks are already answering.
    fn answer(&mut self, Request { identity, what }: Request, counts: &Counts) {
        let (Some(mut socket), Ok(permit)) = (self.answers.clone(), Arc::clone(&self.permits).try_acquire_owned())
        else {
            return;
        };
        let kept = |seq| Box::new(self.ring.from(seq).into_iter()) as Payloads;
        let payloads = match (what == SNAPSHOT, &mut self.settings.snapshot) {
            (false, _) => kept(u64::from_be_bytes(what)),
            // A panic of the source must not end the thread, which also sends the batches.
            (true, Some(snapshot)) => match catch_unwind(AssertUnwindSafe(snapshot)) {
                Ok(snapshot) => payloads(snapshot, self.settings.format),
                Err(_) => {
                    // Relaxed: a count.
                    counts.snapshot_panics.fetch_add(1, Relaxed);
                    Box::new(iter::empty())
                }
            },
            (true, None) => Box::new(iter::empty()),
        };
        let topic = self.topic.clone();
        tokio::spawn(async move {
            let answers = payloads.map(|(seq, payload)| [topic.clone(), number(seq), payload]);
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

/// Encodes a snapshot as payloads that followers read, each when it is sent. An empty snapshot has
/// one payload without events.
fn payloads(Snapshot { next, epoch, events }: Snapshot, format: Format) -> Payloads {
    let batches =
        divide(events, SNAPSHOT_BATCH).into_iter().map(move |events| Batch { time: now(), events, rank: None, epoch });
    Box::new(batches.map(move |batch| (next, wire::encode(&batch, format).into())))
}

/// Waits for the next valid request. Ignores other messages.
async fn next_request(asked: Option<&mut RouterRecvHalf>) -> Request {
    let Some(asked) = asked else { return future::pending().await };
    loop {
        let Ok(message) = asked.recv().await else {
            // A peer disconnected. Requests of other peers can still arrive.
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

/// Binds a socket to a loopback port, and starts a relay that listens at the endpoint. Returns the
/// endpoint with its port.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockHash, Event, Follower, Stored};

    /// A snapshot with more bytes than a payload may have, in one event and in all.
    // Holds: WE11.
    #[test]
    fn a_snapshot_beyond_a_payload_is_divided() {
        let block_size = 1 << 18;
        let stored = |from: u64, blocks: u64| {
            let tokens = vec![u32::MAX; blocks as usize * block_size];
            let hashes = (from..from + blocks).map(BlockHash::Unsigned).collect();
            Event::Stored(Stored { hashes, tokens, block_size: block_size as u32, ..Stored::default() })
        };
        let snapshot = Snapshot { next: 5, epoch: Some(1), events: vec![stored(0, 52), stored(100, 4)] };
        let (mut events, mut count) = (Vec::new(), 0);
        for (next, payload) in payloads(snapshot, Format::Maps) {
            let batch = wire::decode(&payload).expect("a batch that followers read").batch;
            assert_eq!((next, batch.epoch), (5, Some(1)));
            events.extend(batch.events);
            count += 1;
        }
        let mut follower = Follower::new();
        follower.restore(5, Some(1), &events).expect("of one block size");
        assert_eq!((follower.holdings().len(), follower.holdings().unrooted()), (56, 0));
        assert!(count > 1, "{count} payloads");
    }
}
