//! Long prompts: what is tokenized at all, how many of them wait, and for whom.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Instant;

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
        let statuses: Vec<u16> = thread::scope(|scope| {
            let ask = || scope.spawn(|| post(server.address, COMPLETIONS, &long()).status);
            let asked: Vec<_> = (0..12).map(|_| ask()).collect();
            asked.into_iter().map(|asked| asked.join().expect("an answer")).collect()
        });
        assert!(statuses.contains(&429) && statuses.contains(&400), "{statuses:?}");
    });
}

#[test]
fn nothing_is_tokenized_for_clients_that_have_gone() {
    with_library_tokenizer("gone", 512, ServerOptions::default(), |server| {
        let (long, began) = (long(), Instant::now());
        let mut sockets: Vec<_> = (0..16).map(|_| send(server.address, &long)).collect();
        sockets.iter_mut().for_each(|socket| assert_eq!(read(socket).expect("an answer").status, 400));
        let all = began.elapsed();
        (0..16).for_each(|_| drop(send(server.address, &long)));
        let began = Instant::now();
        assert_eq!(post(server.address, COMPLETIONS, &json!({ "prompt": "abc", "max_tokens": 1 })).status, 200);
        assert!(began.elapsed() < all / 4, "{:?}, and the prompts of clients that stay take {all:?}", began.elapsed());
    });
}

#[test]
fn long_texts_leave_threads_to_short_ones() {
    with_library_tokenizer("long", 1_024, ServerOptions::default(), |server| {
        let long = json!({ "prompt": "word ".repeat(20_000), "max_tokens": 1 });
        let mut sockets: Vec<_> = (0..8).map(|_| send(server.address, &long)).collect();
        while metric(server.address, "vllm:num_requests_waiting") < 8.0 {
            thread::yield_now();
        }
        assert_eq!(post(server.address, COMPLETIONS, &json!({ "prompt": "abc", "max_tokens": 1 })).status, 200);
        let is_answered = |socket: &TcpStream| {
            socket.set_nonblocking(true).expect("a socket");
            socket.peek(&mut [0; 1]).is_ok()
        };
        let answered = sockets.iter().filter(|socket| is_answered(socket)).count();
        assert!(answered <= 4, "{answered} of 8 long texts were tokenized first");
        for socket in &mut sockets {
            socket.set_nonblocking(false).expect("a socket");
            assert_eq!(read(socket).expect("an answer").status, 400);
        }
    });
}
