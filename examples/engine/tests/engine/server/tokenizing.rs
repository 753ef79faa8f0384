//! Long prompts: what is tokenized at all, how many of them wait, and for whom.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use engine::config::Config;
use engine::model::Model;
use engine::serve::Options;
use engine::server::ServerOptions;
use engine::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::client::{connect, metric, post, read, written};
use super::{COMPLETIONS, Running, options, with_tokenizer};
use crate::random;
use crate::saved::Directory;

/// Bytes of a prompt that takes long to tokenize and is too long for the pool.
const LONG: usize = 16 << 10;
/// Clients with such a prompt: far more than are tokenized at a time.
const CLIENTS: usize = 64;

/// Runs a server whose tokenizer is one of the library's.
fn with_library_tokenizer(name: &str, blocks: usize, server: ServerOptions, test: impl FnOnce(&Running)) {
    let directory = Directory::new(name);
    directory.write("tokenizer.json", include_str!("../chats/tokenizer.json"));
    let config = Config { vocab_size: 300, max_positions: 1 << 20, ..Config::small() };
    let tokenizer = Tokenizer::read(directory.path(), 300, config.max_positions).expect("a tokenizer");
    let model: Model = random(config, 4);
    with_tokenizer(&model, tokenizer, Options { blocks, ..options() }, server, test);
}

fn long() -> Value {
    json!({ "prompt": "word ".repeat(LONG / 5), "max_tokens": 1 })
}

fn send(address: SocketAddr, body: &Value) -> TcpStream {
    let mut socket = connect(address);
    socket.write_all(&written("POST", COMPLETIONS, body.to_string().as_bytes())).expect("written");
    socket
}

#[test]
fn a_text_is_refused_by_its_bytes() {
    with_library_tokenizer("bytes", 256, ServerOptions::default(), |server| {
        let reply = post(server.address, COMPLETIONS, &json!({ "prompt": "a".repeat(100_000), "max_tokens": 9 }));
        let (param, message) = reply.refusal();
        assert_eq!((reply.status, param.as_deref()), (400, Some("prompt")), "{message}");
        // 256 blocks of 8 tokens, of which the longest has 19 bytes.
        assert_eq!(
            message,
            format!("the text has 100000 bytes, {} are the most that fit beside 9 new tokens", (256 * 8 + 1 - 9) * 19)
        );
        assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
    });
}

#[test]
fn prompts_that_are_tokenized_wait_like_others() {
    let server_options = ServerOptions { waiting: 2, ..ServerOptions::default() };
    with_library_tokenizer("waiting", 512, server_options, |server| {
        let long = long();
        let statuses = || -> Vec<u16> {
            let mut sockets: Vec<_> = (0..12).map(|_| send(server.address, &long)).collect();
            sockets.iter_mut().map(|socket| read(socket).expect("an answer").status).collect()
        };
        // Where this thread is slow, each prompt may be tokenized before the next one is sent.
        let has_both = |statuses: Vec<u16>| statuses.contains(&429) && statuses.contains(&400);
        assert!((0..20).any(|_| has_both(statuses())), "none was refused because others waited");
    });
}

#[test]
fn nothing_is_tokenized_for_clients_that_have_gone() {
    with_library_tokenizer("gone", 512, ServerOptions::default(), |server| {
        let long = long();
        let send = || send(server.address, &long);
        let staying = || {
            let began = Instant::now();
            let mut sockets: Vec<_> = (0..CLIENTS).map(|_| send()).collect();
            sockets.iter_mut().for_each(|socket| assert_eq!(read(socket).expect("an answer").status, 400));
            began.elapsed()
        };
        let behind_gone = || {
            (0..CLIENTS).for_each(|_| drop(send()));
            let began = Instant::now();
            assert_eq!(post(server.address, COMPLETIONS, &json!({ "prompt": "abc", "max_tokens": 1 })).status, 200);
            began.elapsed()
        };
        // The shortest times of several rounds: those in which no thread was stopped.
        let (mut all, mut one) = (staying(), Duration::MAX);
        for _ in 0..20 {
            (all, one) = (all.min(staying()), one.min(behind_gone()));
            if one < all / 4 {
                return;
            }
        }
        panic!("{one:?}, and the prompts of clients that stay take {all:?}");
    });
}

#[test]
fn long_texts_leave_threads_to_short_ones() {
    with_library_tokenizer("long", 1_024, ServerOptions::default(), |server| {
        // Where this thread is slow, long texts may be tokenized before the short one is sent.
        assert!((0..20).any(|_| answered_first(server) <= 4), "more than 4 of 8 long texts were tokenized first");
    });
}

/// How many of eight long texts are answered before a short one that is sent after them.
fn answered_first(server: &Running) -> usize {
    let long = json!({ "prompt": "word ".repeat(20_000), "max_tokens": 1 });
    let mut sockets: Vec<_> = (0..8).map(|_| send(server.address, &long)).collect();
    let is_answered = |socket: &TcpStream| {
        socket.set_nonblocking(true).expect("a socket");
        socket.peek(&mut [0; 1]).is_ok()
    };
    while metric(server.address, "vllm:num_requests_waiting") < 8.0 && !sockets.iter().any(is_answered) {
        thread::yield_now();
    }
    assert_eq!(post(server.address, COMPLETIONS, &json!({ "prompt": "abc", "max_tokens": 1 })).status, 200);
    let answered = sockets.iter().filter(|socket| is_answered(socket)).count();
    for socket in &mut sockets {
        socket.set_nonblocking(false).expect("a socket");
        assert_eq!(read(socket).expect("an answer").status, 400);
    }
    answered
}
