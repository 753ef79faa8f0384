//! Answers: the same as without a cache, whole and in pieces, with what the cache saved.

use std::time::{Duration, Instant};

use engine::prompts::Message;
use engine::server::ServerOptions;
use engine::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::client::{accepting, get, metric, post};
use super::{CHAT, COMPLETIONS, bytes, expected, model, options, with_server};

const QUESTION: &str = "Where do I find the maps of the coast, and may I take one home?";

#[test]
fn texts_and_chats_are_answered_as_without_a_cache() {
    let model = model();
    with_server(&model, options(), ServerOptions::default(), |server| {
        let text = expected(&model, &bytes(QUESTION), 12);
        for prompt in [json!(QUESTION), json!([QUESTION]), json!(bytes(QUESTION))] {
            let body = json!({ "model": "seeded", "prompt": prompt, "max_tokens": 12, "user": "x" });
            let answer = post(server.address, COMPLETIONS, &body).json();
            assert_eq!(answer["choices"][0]["text"], text.as_str(), "{answer}");
            assert_eq!(answer["object"], "text_completion");
            assert_eq!(answer["usage"]["prompt_tokens"], QUESTION.len());
        }
        let message = |role: &str, content: &str| Message { role: role.to_owned(), content: content.to_owned() };
        let chat = [message("system", "Be brief."), message("user", QUESTION)];
        let tokens = Tokenizer::Bytes.chat(&chat, true).expect("bytes");
        let parts = json!([{ "type": "text", "text": &QUESTION[..9] }, { "type": "text", "text": &QUESTION[9..] }]);
        let messages = json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": parts }]);
        let body = json!({ "messages": messages, "max_completion_tokens": 9 });
        let answer = post(server.address, CHAT, &body).json();
        let text = expected(&model, &tokens, 9);
        assert_eq!(answer["choices"][0]["message"], json!({ "role": "assistant", "content": text, "refusal": null }));
        assert_eq!(answer["usage"]["prompt_tokens"], tokens.len());
    });
}

#[test]
fn a_stream_has_the_same_text_in_pieces() {
    let model = model();
    with_server(&model, options(), ServerOptions::default(), |server| {
        let body = json!({
            "prompt": QUESTION, "max_tokens": 20, "stream": true, "stream_options": { "include_usage": true }
        });
        let reply = post(server.address, COMPLETIONS, &body);
        assert!(reply.head.contains("content-type: text/event-stream"), "{}", reply.head);
        let events = reply.events();
        let text = |event: &Value| event["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
        let all: String = events.iter().map(text).collect();
        assert_eq!(all, expected(&model, &bytes(QUESTION), 20));
        let (usage, pieces) = events.split_last().expect("events");
        assert_eq!(usage["choices"], json!([]));
        assert_eq!(usage["usage"]["prompt_tokens"], QUESTION.len());
        let reasons: Vec<&Value> = pieces.iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
        assert!(reasons[..reasons.len() - 1].iter().all(|reason| reason.is_null()), "{reasons:?}");
        assert!(["stop", "length"].contains(&reasons[reasons.len() - 1].as_str().expect("a reason")));

        let body = json!({ "messages": [{ "role": "user", "content": "Hm?" }], "stream": true, "max_tokens": 5 });
        let events = post(server.address, CHAT, &body).events();
        assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(events[0]["object"], "chat.completion.chunk");
    });
}

#[test]
fn what_the_cache_saved_is_reported() {
    let model = model();
    with_server(&model, options(), ServerOptions::default(), |server| {
        let cached = |extra: Value| {
            let mut body = json!({ "prompt": QUESTION, "max_tokens": 3 });
            body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
            let answer = post(server.address, COMPLETIONS, &body).json();
            answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number")
        };
        // Whole blocks of all but the last token.
        let all = (QUESTION.len() as u64 - 1) / 8 * 8;
        assert_eq!(cached(json!({ "skip_cache_insert": true })), 0);
        assert_eq!(cached(json!({})), 0, "nothing was stored");
        assert_eq!(cached(json!({ "prompt_cache_key": "any" })), all);
        assert_eq!(cached(json!({ "skip_cache_insert": true })), all, "what is stored is matched");
        assert_eq!(cached(json!({ "cache_salt": "tenant" })), 0, "another namespace");
        assert_eq!(cached(json!({ "cache_salt": "tenant" })), all);
        assert_eq!(cached(json!({ "cache_salt": "other" })), 0);

        let text = String::from_utf8(get(server.address, "/metrics").body).expect("text");
        // Each salt has its numbers, and none is told.
        assert_eq!(
            text.lines().filter(|line| line.starts_with("radixkv_namespace_lookups_total")).count(),
            4,
            "{text}"
        );
        assert!(!text.contains("tenant"), "{text}");
        let value = |name: &str| metric(server.address, name);
        // The last token is computed in any case, and not looked up.
        let queries = 7.0 * (QUESTION.len() - 1) as f64;
        assert_eq!(value("vllm:prefix_cache_queries_total"), queries);
        assert_eq!(value("vllm:prompt_tokens_total"), 7.0 * QUESTION.len() as f64);
        assert_eq!(value("vllm:prefix_cache_hits_total"), 3.0 * all as f64);
        assert_eq!(value("sglang:cache_hit_rate"), 3.0 * all as f64 / queries);
        assert_eq!(value("vllm:num_requests_waiting"), 0.0);
        assert_eq!(value("sglang:num_running_reqs"), 0.0);
        assert_eq!(value("sglang:token_usage"), 0.0);
        assert!(text.contains("model_name=\"seeded\"") && !text.contains("# EOF"), "{text}");
        let open = accepting(server.address, "/metrics", "application/openmetrics-text; version=1.0.0");
        assert!(open.head.contains("application/openmetrics-text") && open.body.ends_with(b"# EOF\n"), "{}", open.head);
    });
}

#[test]
fn a_marked_prefix_is_retained() {
    let model = model();
    let server_options = ServerOptions { retained_blocks: 64, ..ServerOptions::default() };
    with_server(&model, options(), server_options, |server| {
        // 193 blocks: it would wait for what may be retained.
        let body = json!({ "prompt": "x".repeat(193 * 8), "max_tokens": 1 });
        assert!(post(server.address, COMPLETIONS, &body).refusal().1.contains("193 blocks, 192 of 256"));
        let ask = |content: Value, control: Value| {
            let system = json!({ "role": "system", "content": content });
            let messages = json!([system, { "role": "user", "content": "Why?" }]);
            let body = json!({ "messages": messages, "max_tokens": 2, "cache_control": control });
            assert_eq!(post(server.address, CHAT, &body).status, 200);
            server.cache.evict(256);
            server.cache.stats().protected_blocks
        };
        let instructions = "You are a librarian who answers in few words, and names the shelf.";
        assert_eq!(ask(json!(instructions), Value::Null), 0);
        let control = json!({ "type": "ephemeral", "ttl": "1h" });
        let part = json!([{ "type": "text", "text": instructions, "cache_control": control }]);
        // The first message, with its mark and `system: `.
        assert_eq!(ask(part, Value::Null), (instructions.len() + 9) / 8);
        let whole = ask(json!(instructions), control);
        assert_eq!(whole, (instructions.len() + 9 + "_user: Why?_assistant: ".len()) / 8);
        // An hour is longer than the test.
        server.cache.clear();
    });
}

#[test]
fn a_seed_repeats_and_another_does_not() {
    let model = model();
    with_server(&model, options(), ServerOptions::default(), |server| {
        let draw = |seed: Value| {
            let body = json!({ "prompt": QUESTION, "max_tokens": 16, "temperature": 1.5, "top_p": 0.9, "seed": seed });
            post(server.address, COMPLETIONS, &body).json()["choices"][0]["text"].clone()
        };
        assert_eq!(draw(json!(7)), draw(json!(7)));
        assert_ne!(draw(json!(7)), draw(json!(8)));
        assert_ne!(draw(Value::Null), draw(Value::Null));
        assert_eq!(draw(json!(-7)), draw(json!(-7)));
    });
}

#[test]
fn a_stop_text_ends_an_answer() {
    let model = model();
    let text = expected(&model, &bytes(QUESTION), 30);
    let stop: String = text.chars().skip(4).take(2).collect();
    let before = &text[..text.find(&stop).expect("a part")];
    with_server(&model, options(), ServerOptions::default(), |server| {
        let body = json!({ "prompt": QUESTION, "max_tokens": 30, "stop": [stop, "never in it"] });
        let answer = post(server.address, COMPLETIONS, &body).json();
        assert_eq!(answer["choices"][0]["text"], before, "{answer}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    });
}

/// A stop text ends an answer as an end token does.
#[test]
fn an_answer_that_ends_with_a_stop_text_is_counted_and_retained() {
    let model = model();
    let text = expected(&model, &bytes(QUESTION), 30);
    let stop: String = text.chars().skip(4).take(2).collect();
    let server_options = ServerOptions { retained_blocks: 64, ..ServerOptions::default() };
    with_server(&model, options(), server_options, |server| {
        let control = json!({ "type": "ephemeral", "ttl": "1h" });
        let body = json!({ "prompt": QUESTION, "max_tokens": 30, "stop": stop, "cache_control": control });
        let answer = post(server.address, COMPLETIONS, &body).json();
        assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
        // The sequence ends with the step after the answer.
        let end = Instant::now() + Duration::from_secs(60);
        while metric(server.address, "vllm:request_success_total") < 1.0 {
            assert!(Instant::now() < end, "the request does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(metric(server.address, "vllm:prompt_tokens_total"), QUESTION.len() as f64);
        server.cache.settle();
        assert_eq!(server.cache.stats().protected_blocks, QUESTION.len() / 8);
        // An hour is longer than the test.
        server.cache.clear();
    });
}

#[test]
fn the_server_says_what_it_serves() {
    let model = model();
    with_server(&model, options(), ServerOptions::default(), |server| {
        assert_eq!(get(server.address, "/v1/models").json()["data"][0]["id"], "seeded");
        assert_eq!(get(server.address, "/health").json(), json!({ "status": "ok" }));
    });
}
