//! What stands between `zeromq` and its peers: how many there are, and how much they send.
//!
//! `zeromq` believes each length that a peer announces, and asks the system for so much memory at once: nine bytes would end the process.
//! So its sockets have ports of the loopback interface, and their peers are reached through a relay, which reads the lengths
//! first and closes the connection of a peer that announces too much.

mod frames;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader, copy_buf},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout_at},
};

use zeromq::Host;

pub(crate) use frames::Bounds;
use frames::Frames;

/// Connections at once; further ones wait. Each takes three of the files that a process may have open.
const CONNECTIONS: usize = 128;
/// How long a peer may take for its greeting and its first frame.
const GREETING: Duration = Duration::from_secs(5);
/// Between two tries where no connection can be taken, because the process has too many files open.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes that are passed on at once.
const PART: usize = 64 << 10;

/// Passes bytes between a socket of `zeromq` and its peers.
pub(crate) struct Relay {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Lets peers that come to `listener` through to the socket at `inner`.
    pub(crate) fn inward(listener: TcpListener, inner: SocketAddr, bounds: Bounds) -> Self {
        Self::start(listener, move |peer| async move {
            if let Ok(socket) = TcpStream::connect(inner).await {
                pass(peer, socket, bounds).await;
            }
        })
    }

    /// Lets a socket that connects to the endpoint returned through to a peer.
    ///
    /// # Errors
    ///
    /// If the loopback interface has no port left.
    pub(crate) async fn outward((host, port): &(Host, u16), bounds: Bounds) -> io::Result<(String, Self)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let endpoint = format!("tcp://{}", listener.local_addr()?);
        let (host, port) = (Arc::<str>::from(host.to_string()), *port);
        let relay = Self::start(listener, move |socket| {
            let host = Arc::clone(&host);
            async move {
                if let Ok(peer) = TcpStream::connect((&*host, port)).await {
                    pass(peer, socket, bounds).await;
                }
            }
        });
        Ok((endpoint, relay))
    }

    fn start<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            tokio::select! {
                () = accept(&listener, &mut open, serve) => {}
                _ = stopped => {}
            }
            drop(listener);
            while open.join_next().await.is_some() {}
        });
        Self { stop, task }
    }

    /// Takes no more connections, and waits for those that there are to end, until then.
    pub(crate) async fn end(self, until: Instant) {
        let _ = self.stop.send(());
        let _ = timeout_at(until, self.task).await;
    }
}

async fn accept<F>(listener: &TcpListener, open: &mut JoinSet<()>, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        tokio::select! {
            Some(_) = open.join_next() => {}
            accepted = listener.accept(), if open.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => drop(open.spawn(serve(stream))),
                Err(_) => sleep(PAUSE).await,
            },
        }
    }
}

/// Passes bytes both ways until one side ends, or the peer sends too much or begins too slowly.
async fn pass(peer: TcpStream, socket: TcpStream, bounds: Bounds) {
    // Without it messages may be late, and nothing else.
    let _ = (peer.set_nodelay(true), socket.set_nodelay(true));
    let ((mut from_peer, mut to_peer), (from_socket, mut to_socket)) = (peer.into_split(), socket.into_split());
    let inward = async {
        let (mut frames, mut part, begin) = (Frames::new(bounds), vec![0; PART], Instant::now() + GREETING);
        loop {
            let read = from_peer.read(&mut part);
            let read = if frames.has_begun() { read.await } else { timeout_at(begin, read).await.unwrap_or(Ok(0)) };
            let Ok(read @ 1..) = read else { return };
            if !frames.pass(&part[..read]) || to_socket.write_all(&part[..read]).await.is_err() {
                return;
            }
        }
    };
    let outward = async {
        let _ = copy_buf(&mut BufReader::with_capacity(PART, from_socket), &mut to_peer).await;
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
}
