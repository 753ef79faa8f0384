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
mod tests {
    use super::*;

    /// A relay before a socket that only reads. The channel gets the byte count of each connection
    /// when it ends.
    async fn relayed(bounds: Bounds) -> (SocketAddr, Relay, tokio::sync::mpsc::UnboundedReceiver<usize>) {
        let [outer, inner] = [(); 2].map(|()| async { TcpListener::bind("127.0.0.1:0").await.unwrap() });
        let (outer, inner) = (outer.await, inner.await);
        let (address, behind) = (outer.local_addr().unwrap(), inner.local_addr().unwrap());
        let (heard, hears) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = inner.accept().await {
                let heard = heard.clone();
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    let _ = stream.read_to_end(&mut bytes).await;
                    let _ = heard.send(bytes.len());
                });
            }
        });
        (address, Relay::inward(outer, behind, bounds), hears)
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), test).await.expect("a hang") });
    }

    /// A greeting of 64 bytes, and a frame of one byte.
    fn begun() -> Vec<u8> {
        [vec![0; 64], vec![0, 1, 7]].concat()
    }

    #[test]
    fn one_that_does_not_begin_is_cut_off_and_one_that_has_begun_may_be_silent() {
        run(async {
            let greeting = Duration::from_millis(100);
            let (address, relay, mut heard) = relayed(Bounds { greeting, ..Bounds::OF_ANY }).await;
            let mut begins = TcpStream::connect(address).await.unwrap();
            begins.write_all(&begun()).await.unwrap();
            let mut slow = TcpStream::connect(address).await.unwrap();
            slow.write_all(&[0; 65]).await.unwrap();
            assert_eq!(slow.read(&mut [0]).await.unwrap(), 0, "it is cut off");
            assert_eq!(heard.recv().await, Some(65));
            sleep(2 * greeting).await;
            assert!(heard.is_empty(), "the other goes on");
            begins.write_all(&[0, 1]).await.unwrap();
            sleep(greeting).await;
            begins.write_all(&[7]).await.unwrap();
            sleep(greeting).await;
            assert!(heard.is_empty(), "it may be slow as well");
            drop(begins);
            assert_eq!(heard.recv().await, Some(70));
            drop(relay);
        });
    }

    #[test]
    fn a_further_peer_takes_the_place_of_the_first() {
        run(async {
            let (address, relay, mut heard) = relayed(Bounds { peers: 2, ..Bounds::OF_ANY }).await;
            let mut peers = Vec::new();
            for _ in 0..3 {
                let mut peer = TcpStream::connect(address).await.unwrap();
                peer.write_all(&begun()).await.unwrap();
                // Keeps the order of the connections.
                sleep(Duration::from_millis(50)).await;
                peers.push(peer);
            }
            assert_eq!(heard.recv().await, Some(67), "the first has ended");
            assert_eq!(peers[0].read(&mut [0]).await.unwrap_or(0), 0);
            sleep(Duration::from_millis(50)).await;
            assert!(heard.is_empty(), "the others go on");
            peers.clear();
            for _ in 0..2 {
                assert_eq!(heard.recv().await, Some(67));
            }
            relay.end(Instant::now() + Duration::from_secs(10)).await;
            assert!(TcpStream::connect(address).await.is_err(), "it listens no more");
        });
    }

    /// Bytes that the socket sent before it closed reach the peer, even if the relay is told to
    /// end.
    #[test]
    fn the_end_waits_for_what_is_under_way() {
        run(async {
            let (outer, inner) =
                (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
            let (address, behind) = (outer.local_addr().unwrap(), inner.local_addr().unwrap());
            let relay = Relay::inward(outer, behind, Bounds::OF_ANY);
            let mut peer = TcpStream::connect(address).await.unwrap();
            let (mut socket, _) = inner.accept().await.unwrap();
            let sent = vec![7; 1 << 20];
            let send = async {
                socket.write_all(&sent).await.unwrap();
                drop(socket);
                relay.end(Instant::now() + Duration::from_secs(10)).await;
            };
            let mut received = Vec::new();
            let (_, read) = tokio::join!(send, peer.read_to_end(&mut received));
            assert_eq!((read.unwrap(), received == sent), (1 << 20, true));
        });
    }
}
