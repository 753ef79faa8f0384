//! Clients that are stuck: idle, in the middle of a body, or not reading. Others are answered
//! meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use engine::server::ServerOptions;
use serde_json::json;

use super::client::{Reply, connect, get, post, read, written};
use super::{COMPLETIONS, Running, model, options, with_server};

/// Less than the server waits for a head or a body, and far more than an answer takes.
const SOON: Duration = Duration::from_secs(5);

fn assert_served(server: &Running) {
    let began = Instant::now();
    for path in ["/health", "/metrics"] {
        assert_eq!(get(server.address, path).status, 200);
    }
    let body = json!({ "prompt": "abc", "max_tokens": 1 });
    assert_eq!(post(server.address, COMPLETIONS, &body).status, 200);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

/// A client that sends so many bytes of a body of 16,000.
fn unfinished(address: SocketAddr, bytes: usize) -> TcpStream {
    let whole = written("POST", COMPLETIONS, &[b' '; 16_000]);
    let mut stream = connect(address);
    stream.write_all(&whole[..whole.len() - 16_000 + bytes]).expect("written");
    stream
}

fn soon(stream: &mut TcpStream) -> std::io::Result<Reply> {
    stream.set_read_timeout(Some(SOON)).expect("a socket");
    read(stream)
}

#[test]
fn idle_connections_give_way() {
    let server_options = ServerOptions { connections: 8, ..ServerOptions::default() };
    with_server(&model(), options(), server_options, |server| {
        let mut idle: Vec<_> = (0..24).map(|_| connect(server.address)).collect();
        assert_served(server);
        idle[0].set_read_timeout(Some(SOON)).expect("a socket");
        assert_eq!(idle[0].read(&mut [0; 1]).expect("it is closed"), 0);
    });
}

#[test]
fn unfinished_bodies_give_way() {
    let server_options =
        ServerOptions { body_bytes: 20_000, bodies_bytes: 64_000, connections: 32, ..ServerOptions::default() };
    with_server(&model(), options(), server_options, |server| {
        let mut stuck: Vec<_> = (0..20).map(|_| unfinished(server.address, 15_000)).collect();
        assert_served(server);
        let reply = soon(&mut stuck[0]).expect("an answer before its time is over");
        assert_eq!((reply.status, reply.head.contains("retry-after: 1")), (503, true), "{reply:?}");
        // Unfinished bodies keep out no other connection either.
        stuck.extend((0..40).map(|_| unfinished(server.address, 10)));
        assert_served(server);
    });
}

#[test]
fn connections_in_use_leave_health_and_metrics_alone() {
    let server_options = ServerOptions { connections: 3, ..ServerOptions::default() };
    with_server(&model(), options(), server_options, |server| {
        let unread: Vec<_> = (0..3)
            .map(|_| {
                let body = json!({ "prompt": "abc", "max_tokens": 1_900, "stream": true }).to_string();
                let mut stream = connect(server.address);
                stream.write_all(&written("POST", COMPLETIONS, body.as_bytes())).expect("written");
                stream.read_exact(&mut [0; 16]).expect("the beginning of an answer");
                stream
            })
            .collect();
        let mut others: Vec<_> = (0..4)
            .map(|_| {
                let mut stream = connect(server.address);
                let body = json!({ "prompt": "abc", "max_tokens": 1 }).to_string();
                stream.write_all(&written("POST", COMPLETIONS, body.as_bytes())).expect("written");
                stream
            })
            .collect();
        for path in ["/health", "/metrics"] {
            let mut stream = connect(server.address);
            stream.write_all(&written("GET", path, b"")).expect("written");
            assert_eq!(soon(&mut stream).expect("an answer").status, 200);
        }
        for other in &mut others {
            let reply = soon(other).expect("an answer");
            assert!([200, 503].contains(&reply.status));
            // A refused client connects again, so that it is served as soon as there is room.
            assert!(reply.status == 200 || other.read(&mut [0; 1]).expect("it is closed") == 0);
        }
        drop(unread);
    });
}
