//! Too many requests, clients that do not read, and the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use engine::config::Config;
use engine::server::ServerOptions;
use radixkv_scheduler::SchedulerConfig;
use serde_json::json;

use super::client::{connect, metric, post, read, written};
use super::{COMPLETIONS, options, with_server};
use crate::random;

/// A model that ends no text by itself, on one thread that serves one request at a time.
fn one_at_a_time() -> (engine::model::Model, engine::serve::Options) {
    let scheduler = SchedulerConfig::default().max_running(1).max_batch_tokens(64).max_chunk_tokens(64);
    let model = random(Config { end_tokens: vec![], ..Config::small() }, 4);
    (model, engine::serve::Options { threads: 1, scheduler, ..options() })
}

/// A request whose answer has begun and is not read.
fn begun(address: std::net::SocketAddr, max_tokens: usize) -> TcpStream {
    let body = json!({ "prompt": "abc", "max_tokens": max_tokens, "stream": true }).to_string();
    let mut stream = connect(address);
    stream.write_all(&written("POST", COMPLETIONS, body.as_bytes())).expect("written");
    stream.read_exact(&mut [0; 16]).expect("the beginning of an answer");
    stream
}

#[test]
fn too_many_requests_are_told_when_to_come_again() {
    let (model, options) = one_at_a_time();
    let options = engine::serve::Options { blocks: 4_096, ..options };
    let server_options = ServerOptions { waiting: 2, ..ServerOptions::default() };
    with_server(&model, options, server_options, |server| {
        // It must not end before the others are refused, however slow this thread is.
        let running = begun(server.address, 30_000);
        let body = json!({ "prompt": "abc", "max_tokens": 1 });
        let waiting = written("POST", COMPLETIONS, body.to_string().as_bytes());
        let ask = |_| {
            let mut stream = connect(server.address);
            stream.write_all(&waiting).expect("written");
            stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
            stream
        };
        let mut streams: Vec<_> = (0..16).map(ask).collect();
        let end = Instant::now() + Duration::from_secs(30);
        let mut refusals = Vec::new();
        // Until each refusal that the server counts has been read, and no more.
        while refusals.is_empty() || metric(server.address, "radixkv_requests_refused_total") != refusals.len() as f64 {
            assert!(Instant::now() < end, "{} refusals read", refusals.len());
            streams.retain_mut(|stream| match read(stream) {
                Ok(reply) if reply.status == 429 => {
                    refusals.push(reply);
                    false
                }
                Ok(_) => false,
                Err(_) => true,
            });
        }
        let refused = &refusals[0];
        let after = refused.head.lines().find_map(|line| line.strip_prefix("retry-after: ")).expect("a delay");
        assert!((1..=60).contains(&after.trim().parse::<u64>().expect("seconds")), "{after}");
        assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
        // Clients that go make room.
        drop((running, streams));
        let free = || post(server.address, COMPLETIONS, &body).status == 200;
        assert!((0..3_000).any(|_| free() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }));
    });
}

#[test]
fn nothing_is_computed_for_a_client_that_has_gone() {
    let (model, options) = one_at_a_time();
    let options = engine::serve::Options { blocks: 4_096, ..options };
    with_server(&model, options, ServerOptions::default(), |server| {
        let value = |name: &str| metric(server.address, name);
        let running = |wanted: f64| {
            (0..6_000).any(|_| {
                std::thread::sleep(Duration::from_millis(5));
                value("vllm:num_requests_running") == wanted
            })
        };
        for stream in [false, true] {
            let body = json!({ "prompt": "abc", "max_tokens": 30_000, "stream": stream }).to_string();
            let mut socket = connect(server.address);
            socket.write_all(&written("POST", COMPLETIONS, body.as_bytes())).expect("written");
            assert!(running(1.0), "it is served");
            drop(socket);
            assert!(running(0.0), "it goes on");
        }
        assert_eq!(value("vllm:request_success_total"), 0.0);
    });
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    let (model, options) = one_at_a_time();
    with_server(&model, options, ServerOptions::default(), |server| {
        let unread = begun(server.address, 500);
        for _ in 0..3 {
            let reply = post(server.address, COMPLETIONS, &json!({ "prompt": "abd", "max_tokens": 2 }));
            assert_eq!(reply.status, 200);
        }
        drop(unread);
    });
}

#[test]
fn the_end_waits_for_what_was_accepted() {
    let (model, options) = one_at_a_time();
    let mut last = None;
    let last = &mut last;
    with_server(&model, options, ServerOptions::default(), |server| {
        *last = Some(begun(server.address, 300));
    });
    // The server has ended; the answer is whole.
    let mut rest = String::new();
    last.take().expect("an answer").read_to_string(&mut rest).expect("text");
    assert!(rest.contains("data: [DONE]") && rest.contains("\"length\""), "{rest}");
}

#[test]
fn the_end_does_not_wait_for_ever() {
    let (model, options) = one_at_a_time();
    let server_options = ServerOptions { drain: Duration::from_millis(50), ..ServerOptions::default() };
    let mut kept = None;
    let kept = &mut kept;
    with_server(&model, options, server_options, |server| {
        *kept = Some((begun(server.address, 2_000), begun_later(server.address)));
    });
}

/// A request that waits behind others.
fn begun_later(address: std::net::SocketAddr) -> TcpStream {
    let body = json!({ "prompt": "abc", "max_tokens": 2_000 }).to_string();
    let mut stream = connect(address);
    stream.write_all(&written("POST", COMPLETIONS, body.as_bytes())).expect("written");
    stream
}
