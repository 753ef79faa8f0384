//! Two servers that publish their caches' events, and a router that follows them, beside round
//! robin.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use engine::model::Model;
use engine::prompts::Message;
use engine::server::{PublishedEvents, ServerOptions};
use engine::tokenizer::Tokenizer;
use radixkv::Token;
use radixkv_events::{Scope, Subscriber, Workers};
use serde_json::{Value, json};

use super::client::{metric, post};
use super::{CHAT, Running, model, options, with_server};

const ANY: &str = "tcp://127.0.0.1:0";
const NAMES: [&str; 2] = ["0", "1"];
/// An odd number of chats, so that round robin sends a chat's turns to both servers.
const CHATS: usize = 5;
const TURNS: usize = 5;

/// What the servers hold, by their events.
struct Followed {
    workers: Arc<Mutex<Workers>>,
    sources: Vec<(PublishedEvents, Subscriber)>,
}

impl Followed {
    fn new(servers: [&Running; 2]) -> Self {
        let workers = Arc::new(Mutex::new(Workers::new(options().block_size)));
        let follow = |(server, name): (&Running, &'static str)| {
            let events = PublishedEvents::start(&server.cache, ANY, Some(ANY)).expect("free ports");
            let index = Arc::clone(&workers);
            let subscriber = Subscriber::builder(events.endpoint())
                .replay(events.replay_endpoint().expect("it was asked for"))
                .block_size(options().block_size as u32)
                .watched(move |update| {
                    index.lock().expect("no panic").update(name, update).expect("one block size");
                })
                .start()
                .expect("an endpoint");
            (events, subscriber)
        };
        let sources = servers.into_iter().zip(NAMES).map(follow).collect();
        Self { workers, sources }
    }

    /// Waits until the events say what each server caches.
    fn catch_up(&self, servers: [&Running; 2]) {
        let is_right = || {
            let workers = self.workers.lock().expect("no panic");
            servers.into_iter().zip(NAMES).all(|(server, name)| {
                let stats = server.cache.stats();
                workers.blocks(name) == (stats.evictable_blocks + stats.protected_blocks) as u64
            })
        };
        let waits = || {
            thread::sleep(Duration::from_millis(2));
            is_right()
        };
        assert!((0..30_000).any(|_| waits()), "the events are not those of the caches");
        assert!(self.sources.iter().all(|(_, subscriber)| subscriber.failure().is_none()));
    }

    /// The server that holds more than half of a prompt, if one does.
    fn best(&self, prompt: &[Token]) -> Option<usize> {
        let matches = self.workers.lock().expect("no panic").matches(&Scope::default(), prompt);
        let (name, blocks) = matches.first()?;
        let holds_most = 2 * blocks * options().block_size > prompt.len();
        holds_most.then(|| NAMES.iter().position(|known| known == name).expect("a server"))
    }
}

/// Who serves the next request: `requests` were sent to each server.
type Route<'r> = dyn Fn(&[Token], [usize; 2]) -> usize + 'r;

/// Tokens of both servers together, by their own `/metrics`.
#[derive(Debug, Default, PartialEq)]
struct Tokens {
    cached: u64,
    prompt: u64,
}

impl Tokens {
    fn of(servers: [&Running; 2]) -> Self {
        let sum = |name: &str| servers.iter().map(|server| metric(server.address, name) as u64).sum();
        Self { cached: sum("vllm:prefix_cache_hits_total"), prompt: sum("vllm:prompt_tokens_total") }
    }
}

/// What the servers count of chats that go on in turns.
fn chats(servers: [&Running; 2], route: &Route<'_>, after: &dyn Fn()) -> Tokens {
    let (mut cached, mut sent) = (0, [0, 0]);
    let mut messages = vec![vec![json!({ "role": "system", "content": "Answer in few words, and be kind." })]; CHATS];
    for turn in 0..TURNS {
        for (chat, messages) in messages.iter_mut().enumerate() {
            let content = format!("Chat {chat}: what do the maps of coast {} show, in turn {turn}?", 17 * chat);
            messages.push(json!({ "role": "user", "content": content }));
            let server = route(&tokens(messages), sent);
            sent[server] += 1;
            let answer = post(servers[server].address, CHAT, &json!({ "messages": messages, "max_tokens": 8 })).json();
            cached += answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number");
            messages.push(answer["choices"][0]["message"].clone());
            messages.last_mut().and_then(Value::as_object_mut).expect("a message").remove("refusal");
            after();
        }
    }
    assert!(sent.iter().all(|&sent| sent >= CHATS), "both servers work: {sent:?}");
    let counted = Tokens::of(servers);
    assert_eq!(counted.cached, cached, "the servers tell clients what they count");
    counted
}

fn tokens(messages: &[Value]) -> Vec<Token> {
    let text = |message: &Value, field: &str| message[field].as_str().expect("a text").to_owned();
    let messages: Vec<Message> = messages
        .iter()
        .map(|message| Message { role: text(message, "role"), content: text(message, "content") })
        .collect();
    Tokenizer::Bytes.chat(&messages, true).expect("bytes")
}

fn with_two_servers(model: &Model, test: impl FnOnce([&Running; 2])) {
    with_server(model, options(), ServerOptions::default(), |one| {
        with_server(model, options(), ServerOptions::default(), |other| test([one, other]));
    });
}

// Holds: WE6.
#[test]
fn a_router_that_follows_events_finds_what_is_cached() {
    let model = model();
    let (mut robin, mut routed) = (Tokens::default(), Tokens::default());
    with_two_servers(&model, |servers| {
        robin = chats(servers, &|_, sent| sent.iter().sum::<usize>() % 2, &|| {});
    });
    with_two_servers(&model, |servers| {
        let followed = Followed::new(servers);
        let least = |sent: [usize; 2]| usize::from(sent[1] < sent[0]);
        let route = |prompt: &[Token], sent| followed.best(prompt).unwrap_or_else(|| least(sent));
        routed = chats(servers, &route, &|| followed.catch_up(servers));
        assert!(followed.sources.iter().all(|(_, subscriber)| subscriber.with(|follower| follower.is_complete())));
    });
    println!("{routed:?} by events, {robin:?} by round robin");
    assert_eq!(routed.prompt, robin.prompt, "the answers are the same");
    assert!(4 * routed.cached > 5 * robin.cached, "{routed:?} by events, {robin:?} by round robin");
}

// Holds: WE6.
#[test]
fn an_endpoint_that_is_none_or_taken_is_named() {
    let cache = radixkv::PrefixCache::builder(8, 16).build().expect("a cache");
    let events = PublishedEvents::start(&cache, ANY, None).expect("a free port");
    assert_eq!(events.replay_endpoint(), None);
    let taken = PublishedEvents::start(&cache, events.endpoint(), None).expect_err("one program listens");
    assert_eq!(taken.to_string(), format!("{} is in use by another program", events.endpoint()));
    let none = PublishedEvents::start(&cache, "127.0.0.1", None).expect_err("no scheme");
    assert!(none.to_string().contains("is not an endpoint"), "{none}");
}
