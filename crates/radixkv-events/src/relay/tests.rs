use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

/// A relay before a socket that only reads. The first channel gets a message when the first bytes
/// of a connection arrive, the second one its byte count when it ends.
async fn relayed(bounds: Bounds) -> (SocketAddr, Relay, UnboundedReceiver<()>, UnboundedReceiver<usize>) {
    let [outer, inner] = [(); 2].map(|()| async { TcpListener::bind("127.0.0.1:0").await.unwrap() });
    let (outer, inner) = (outer.await, inner.await);
    let (address, behind) = (outer.local_addr().unwrap(), inner.local_addr().unwrap());
    let ((arrived, arrives), (heard, hears)) = (unbounded_channel(), unbounded_channel());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = inner.accept().await {
            let (arrived, heard) = (arrived.clone(), heard.clone());
            tokio::spawn(async move {
                let mut bytes = vec![0; 1];
                if stream.read_exact(&mut bytes).await.is_ok() {
                    let _ = arrived.send(());
                } else {
                    bytes.clear();
                }
                let _ = stream.read_to_end(&mut bytes).await;
                let _ = heard.send(bytes.len());
            });
        }
    });
    (address, Relay::inward(outer, behind, bounds), arrives, hears)
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
        let (address, relay, _, mut heard) = relayed(Bounds { greeting, ..Bounds::OF_ANY }).await;
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
        let (address, relay, mut arrives, mut heard) = relayed(Bounds { peers: 2, ..Bounds::OF_ANY }).await;
        let mut peers = Vec::new();
        for _ in 0..3 {
            let mut peer = TcpStream::connect(address).await.unwrap();
            peer.write_all(&begun()).await.unwrap();
            // Before the next one connects, which may end the first.
            assert_eq!(arrives.recv().await, Some(()));
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
