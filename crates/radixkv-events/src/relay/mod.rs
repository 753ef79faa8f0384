//! A TCP relay between a `zeromq` socket and its peers. It limits the number of peers and how much
//! each one sends. Publishers and subscribers use it for all their sockets.
//!
//! `zeromq` trusts each frame length that a peer announces, and allocates that much memory
//! immediately, so nine bytes could end the process. Therefore its sockets use only ports of the
//! loopback interface. The relay forwards their connections, reads the lengths of a peer's frames
//! first, and closes the connection if a peer announces too much.

mod frames;
mod peers;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout_at},
};

use zeromq::Host;

use frames::Frames;
use peers::{Peers, Progress};

/// Limits for the peers of a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Maximum number of connected peers; a further one replaces another ([`Peers`]). Each takes
    /// three file descriptors.
    pub(crate) peers: usize,
    /// Maximum time for the greeting and the first frame.
    pub(crate) greeting: Duration,
    /// Maximum bytes of a message, counted by [`Frames`].
    pub(crate) message: u64,
    /// Maximum bytes of all messages of a connection.
    pub(crate) all: u64,
}

impl Bounds {
    /// Limits for peers whose messages are not limited.
    pub(crate) const OF_ANY: Self =
        Self { peers: 128, greeting: Duration::from_secs(5), message: u64::MAX, all: u64::MAX };
}

/// Pause before the next `accept` after one failed, for example because the process has too many
/// open files.
const PAUSE: Duration = Duration::from_millis(20);
/// Size of the copy buffers in bytes.
const PART: usize = 64 << 10;

/// Passes bytes between a socket of `zeromq` and its peers.
pub(crate) struct Relay {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Forwards the connections of peers at `listener` to the socket at `inner`.
    pub(crate) fn inward(listener: TcpListener, inner: SocketAddr, bounds: Bounds) -> Self {
        Self::start(listener, bounds.peers, move |peer, progress| async move {
            if let Ok(socket) = TcpStream::connect(inner).await {
                pass(peer, socket, bounds, &progress).await;
            }
        })
    }

    /// Listens at a loopback endpoint, which is returned, and forwards connections there to a peer.
    ///
    /// # Errors
    ///
    /// If the loopback interface has no port left.
    pub(crate) async fn outward((host, port): &(Host, u16), bounds: Bounds) -> io::Result<(String, Self)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let endpoint = format!("tcp://{}", listener.local_addr()?);
        let (host, port) = (Arc::<str>::from(host.to_string()), *port);
        let relay = Self::start(listener, bounds.peers, move |socket, progress| {
            let host = Arc::clone(&host);
            async move {
                if let Ok(peer) = TcpStream::connect((&*host, port)).await {
                    pass(peer, socket, bounds, &progress).await;
                }
            }
        });
        Ok((endpoint, relay))
    }

    fn start<F>(listener: TcpListener, most: usize, serve: impl Fn(TcpStream, Progress) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut open = JoinSet::new();
            tokio::select! {
                () = accept(&listener, most, &mut open, serve) => {}
                _ = stopped => {}
            }
            drop(listener);
            while open.join_next().await.is_some() {}
        });
        Self { stop, task }
    }

    /// Accepts no more connections, and waits for the open ones to end, at most until `until`.
    pub(crate) async fn end(self, until: Instant) {
        let _ = self.stop.send(());
        let _ = timeout_at(until, self.task).await;
    }
}

async fn accept<F>(
    listener: &TcpListener,
    most: usize,
    open: &mut JoinSet<()>,
    serve: impl Fn(TcpStream, Progress) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut peers = Peers::default();
    loop {
        tokio::select! {
            Some(_) = open.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    peers.make_room(most);
                    let progress = Progress::default();
                    peers.add(progress.clone(), open.spawn(serve(stream, progress)));
                }
                Err(_) => sleep(PAUSE).await,
            },
        }
    }
}

/// Copies bytes in both directions until one side closes, the peer exceeds a limit, or the peer
/// begins too slowly.
async fn pass(peer: TcpStream, socket: TcpStream, bounds: Bounds, progress: &Progress) {
    // Errors are ignored: without the option, messages are only slower.
    let _ = (peer.set_nodelay(true), socket.set_nodelay(true));
    let ((mut from_peer, mut to_peer), (mut from_socket, mut to_socket)) = (peer.into_split(), socket.into_split());
    let inward = async {
        let (mut frames, mut part, begin) = (Frames::new(bounds), vec![0; PART], Instant::now() + bounds.greeting);
        loop {
            let read = from_peer.read(&mut part);
            let read = if frames.has_begun() { read.await } else { timeout_at(begin, read).await.unwrap_or(Ok(0)) };
            let Ok(read @ 1..) = read else { return };
            if frames.has_begun() {
                progress.begin();
            }
            if !frames.pass(&part[..read]) || to_socket.write_all(&part[..read]).await.is_err() {
                return;
            }
        }
    };
    let outward = async {
        let mut part = vec![0; PART];
        while let Ok(read @ 1..) = from_socket.read(&mut part).await {
            progress.write();
            if to_peer.write_all(&part[..read]).await.is_err() {
                return;
            }
            progress.written();
        }
    };
    tokio::select! {
        () = inward => {}
        () = outward => {}
    }
}

#[cfg(test)]
mod tests;
