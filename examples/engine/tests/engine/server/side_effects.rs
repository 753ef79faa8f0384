//! What is refused changes nothing: no block is evicted, no lookup is counted, no salt is dropped
//! for it.

use std::time::{Duration, Instant};

use engine::serve::Options;
use engine::server::ServerOptions;
use serde_json::{Value, json};

use super::client::post;
use super::{CHAT, COMPLETIONS, Running, model, options, with_server};

/// A device of 32 blocks of 8 tokens over a host tier.
fn tiered() -> Options {
    Options { blocks: 32, host_blocks: 256, ..options() }
}

fn cached_tokens(server: &Running, body: &Value) -> u64 {
    let answer = post(server.address, COMPLETIONS, body).json();
    answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
}

/// What a refusal may not change.
fn state(server: &Running) -> (u64, u64, u64, usize) {
    server.cache.settle();
    let stats = server.cache.stats();
    (stats.lookups, stats.query_tokens, stats.evicted_blocks, stats.free_blocks)
}

#[test]
fn a_refused_request_changes_nothing() {
    let model = model();
    let server_options = ServerOptions { retained_blocks: 8, ..ServerOptions::default() };
    // One worker: a second one may find too few free blocks while the first serves a prompt, and
    // evict later.
    let options = Options { threads: 1, ..tiered() };
    with_server(&model, options, server_options, |server| {
        for number in 0..4 {
            let prompt = format!("{number} {}", "maps of the coast ".repeat(3));
            assert_eq!(cached_tokens(server, &json!({ "prompt": prompt, "max_tokens": 1 })), 0);
        }
        // After the answer, the worker gives the last blocks back and evicts until a quarter of the
        // blocks is free.
        let end = Instant::now() + Duration::from_secs(60);
        let is_at_rest = || {
            server.cache.settle();
            let stats = server.cache.stats();
            stats.reserved_blocks == 0 && stats.free_blocks >= stats.capacity_blocks / 4
        };
        while !is_at_rest() {
            assert!(Instant::now() < end, "the worker does not come to rest");
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = state(server);
        let text =
            |prompt: Value, max_tokens: u64| (COMPLETIONS, json!({ "prompt": prompt, "max_tokens": max_tokens }));
        let long = json!([{ "role": "user", "content": "x".repeat(3_000) }]);
        for (path, body) in [
            text(json!("x".repeat(3_000)), 1),
            text(json!("x".repeat(40_000)), 1),
            // Beside what may be retained there is no room.
            text(json!("x".repeat(200)), 1),
            text(json!("x".repeat(100)), 1_000_000),
            text(json!("x".repeat(100)), 0),
            text(json!([vec![1; 100], vec![999_999]].concat()), 1),
            text(json!(""), 1),
            (CHAT, json!({ "messages": long, "max_tokens": 1 })),
        ] {
            for salt in [Value::Null, json!("of a refused request")] {
                let mut body = body.clone();
                body["cache_salt"] = salt;
                let reply = post(server.address, path, &body);
                assert_eq!((reply.status, state(server)), (400, before), "{}", reply.refusal().1);
            }
        }
    });
}

#[test]
fn a_prompt_is_looked_up_once() {
    let model = model();
    with_server(&model, tiered(), ServerOptions::default(), |server| {
        let mut tokens = 0;
        for number in 0..3 {
            let prompt = format!("{number} {}", "maps of the coast ".repeat(2));
            for found in [false, true] {
                assert_eq!(cached_tokens(server, &json!({ "prompt": prompt, "max_tokens": 1 })) > 0, found);
                // The last token is computed in any case, and not looked up.
                tokens += prompt.len() as u64 - 1;
            }
        }
        let stats = server.cache.stats();
        assert_eq!((stats.lookups, stats.query_tokens), (6, tokens));
    });
}

#[test]
fn refused_prompts_drop_no_salt() {
    let model = model();
    with_server(&model, options(), ServerOptions::default(), |server| {
        let kept = json!({ "prompt": "Where are the maps of the coast?", "max_tokens": 1, "cache_salt": "kept" });
        assert_eq!(cached_tokens(server, &kept), 0);
        for number in 0..1_100 {
            let empty = json!({ "prompt": "", "cache_salt": format!("salt {number}") });
            assert_eq!(post(server.address, COMPLETIONS, &empty).status, 400);
        }
        assert_eq!(cached_tokens(server, &kept), 24);
    });
}
