//! 64 clients at once, many of which go before their answer: no block leaks, and every answer is
//! the one without a cache.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use engine::dice::Dice;
use engine::server::ServerOptions;
use radixkv_host::TieredCache;
use serde_json::{Value, json};

use super::client::{connect, post, read, written};
use super::{COMPLETIONS, bytes, expected, model, options, with_server};

const CLIENTS: u64 = 64;
const NEW_TOKENS: usize = 8;

/// How long they ask; `ENGINE_CROWD_SECONDS` says otherwise.
fn duration() -> Duration {
    let seconds = std::env::var("ENGINE_CROWD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

/// Prompts that share prefixes.
fn prompts() -> Vec<String> {
    let dice = &mut Dice::new(21);
    let words = ["tide ", "moss ", "bridge ", "bell ", "paper ", "salt "];
    let mut prompts: Vec<String> = vec![words.concat()];
    while prompts.len() < 12 {
        let other = &prompts[dice.below(prompts.len())];
        let mut prompt = other[..dice.below(other.len() + 1)].to_owned();
        (0..1 + dice.below(20)).for_each(|_| prompt += words[dice.below(words.len())]);
        prompts.push(prompt);
    }
    prompts
}

fn ask(address: SocketAddr, dice: &mut Dice, prompts: &[(String, String)], answered: &AtomicUsize) {
    let (prompt, expected) = &prompts[dice.below(prompts.len())];
    let stream = dice.below(2) == 0;
    let mut body = json!({ "prompt": prompt, "max_tokens": NEW_TOKENS, "stream": stream });
    match dice.below(6) {
        0 => body["cache_salt"] = json!(format!("tenant {}", dice.below(3))),
        1 => body["skip_cache_insert"] = json!(true),
        2 => body["cache_control"] = json!({ "type": "ephemeral", "ttl": "1s" }),
        _ => {}
    }
    if dice.below(3) == 0 {
        // Goes before the answer, or in the middle of it, or of the request.
        let whole = written("POST", COMPLETIONS, body.to_string().as_bytes());
        let mut socket = connect(address);
        let len = if dice.below(4) == 0 { dice.below(whole.len()) } else { whole.len() };
        socket.write_all(&whole[..len]).expect("written");
        thread::sleep(Duration::from_millis(dice.below(20) as u64));
        if dice.below(2) == 0 && len == whole.len() {
            drop(socket.read(&mut [0; 64]));
        }
        return;
    }
    let mut socket = connect(address);
    socket.write_all(&written("POST", COMPLETIONS, body.to_string().as_bytes())).expect("written");
    let reply = read(&mut socket).expect("an answer");
    assert_eq!(reply.status, 200, "{reply:?}");
    let text = |value: &Value| value["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
    let text: String = if stream { reply.events().iter().map(text).collect() } else { text(&reply.json()) };
    assert_eq!(text, *expected, "{body}");
    answered.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn clients_that_come_and_go() {
    come_and_go(0);
}

// Holds: HT16.
#[test]
fn clients_that_come_and_go_over_a_host_tier() {
    come_and_go(300);
}

fn come_and_go(host_blocks: usize) {
    let model = model();
    let prompts: Vec<(String, String)> = prompts()
        .into_iter()
        .map(|prompt| {
            let expected = expected(&model, &bytes(&prompt), NEW_TOKENS);
            (prompt, expected)
        })
        .collect();
    let answered = AtomicUsize::new(0);
    // A pool that is too small for all of them.
    let options = engine::serve::Options { blocks: 96, host_blocks, ..options() };
    let server_options = ServerOptions { retained_blocks: 24, ..ServerOptions::default() };
    with_server(&model, options, server_options, |server| {
        let until = Instant::now() + duration();
        // A slow machine may take longer for as many answers, and for copies in both directions.
        let end = until + Duration::from_secs(60);
        let is_copied = || {
            let stats = server.tiers.as_ref().map(TieredCache::stats);
            stats.is_none_or(|stats| stats.offloaded_tokens > 0 && stats.onboarded_tokens > 0)
        };
        let is_enough = || answered.load(Ordering::Relaxed) > CLIENTS as usize && is_copied();
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (prompts, answered, address, is_enough) = (&prompts, &answered, server.address, &is_enough);
                scope.spawn(move || {
                    let dice = &mut Dice::new(client);
                    while Instant::now() < until || !is_enough() && Instant::now() < end {
                        ask(address, dice, prompts, answered);
                    }
                });
            }
        });
        let body = json!({ "prompt": prompts[0].0, "max_tokens": NEW_TOKENS });
        assert_eq!(post(server.address, COMPLETIONS, &body).json()["choices"][0]["text"], prompts[0].1.as_str());
        if let Some(tiers) = &server.tiers {
            let stats = tiers.stats();
            assert!(stats.offloaded_tokens > 0 && stats.onboarded_tokens > 0, "{stats:?}");
        }
    });
    assert!(answered.into_inner() > CLIENTS as usize, "too few answers");
}
