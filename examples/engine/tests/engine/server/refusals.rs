//! What a client is refused, with the field and the reason; the server goes on.

use std::io::Write;

use engine::config::Config;
use engine::dice::Dice;
use engine::model::{Model, RandomWeights, Weights};
use engine::server::ServerOptions;
use engine::tokenizer::Tokenizer;
use serde_json::{Value, json};

use super::client::{connect, get, post, post_bytes, read, written};
use super::{CHAT, COMPLETIONS, Running, expected, model, options, with_server, with_tokenizer};
use crate::random;
use crate::saved::Directory;

fn goes_on(server: &Running, model: &Model) {
    let answer = post(server.address, COMPLETIONS, &json!({ "prompt": "abc", "max_tokens": 4 })).json();
    assert_eq!(answer["choices"][0]["text"], expected(model, &[97, 98, 99], 4).as_str());
}

#[test]
fn fields_that_cannot_be_honoured() {
    let model = model();
    with_server(&model, options(), ServerOptions::default(), |server| {
        let text =
            |field: &str, value: Value| (COMPLETIONS, json!({ "prompt": "abc", field: value }), field.to_owned());
        let chat = |messages: Value, param: &str| (CHAT, json!({ "messages": messages }), param.to_owned());
        let user = |field: &str, value: Value| json!([{ "role": "user", "content": "a", field: value }]);
        for (path, body, param) in [
            text("temperature", json!(-1)),
            text("temperature", json!("NaN")),
            text("temperature", json!(1e300)),
            text("top_p", json!(1.5)),
            text("top_k", json!(-2)),
            text("max_tokens", json!(0)),
            text("max_tokens", json!(-4)),
            text("n", json!(2)),
            text("logprobs", json!(5)),
            text("echo", json!(true)),
            text("tools", json!([{}])),
            text("stop", json!(["a", "b", "c", "d", "e"])),
            text("stop", json!("")),
            text("seed", json!("x")),
            text("stream", json!("yes")),
            text("cache_salt", json!("")),
            text("cache_salt", json!("x".repeat(300))),
            text("prompt_cache_key", json!(7)),
            text("grammar", json!("root")),
            text("prompt", json!(["a", "b"])),
            text("prompt", json!([1, -1])),
            text("prompt", json!([258])),
            text("prompt", json!("")),
            text("prompt", Value::Null),
            text("model", json!(3)),
            (COMPLETIONS, json!({ "prompt": "a", "cache_control": { "type": "x" } }), "cache_control.type".to_owned()),
            (
                COMPLETIONS,
                json!({ "prompt": "a", "cache_control": { "type": "ephemeral", "ttl": "9d" } }),
                "cache_control.ttl".to_owned(),
            ),
            (
                COMPLETIONS,
                json!({ "prompt": "a", "cache_control": { "type": "ephemeral" }, "skip_cache_insert": true }),
                "cache_control".to_owned(),
            ),
            (
                CHAT,
                json!({
                    "messages": user("cache_control", json!({ "type": "ephemeral" })),
                    "skip_cache_insert": true,
                }),
                "messages[0].cache_control".to_owned(),
            ),
            chat(json!([]), "messages"),
            chat(json!("hello"), "messages"),
            chat(json!([3]), "messages[0]"),
            chat(json!([{ "content": "a" }]), "messages[0].role"),
            chat(json!([{ "role": "user" }]), "messages[0].content"),
            chat(user("tool_calls", json!([{}])), "messages[0].tool_calls"),
            chat(user("content", json!([{ "type": "image_url", "text": "" }])), "messages[0].content[0].type"),
            chat(user("content", json!([{ "type": "text" }])), "messages[0].content[0].text"),
        ] {
            let reply = post(server.address, path, &body);
            let (given, message) = reply.refusal();
            assert_eq!((reply.status, given.as_deref()), (400, Some(param.as_str())), "{body}: {message}");
            let has_type = ["usize", "i64", "f32"].iter().any(|name| message.contains(name));
            assert!(!message.is_empty() && !has_type, "{message}");
        }
        let reply = post(server.address, COMPLETIONS, &json!({ "model": "gpt", "prompt": "a" }));
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (404, Some("model_not_found")));
        assert_eq!(get(server.address, "/v2").status, 404);
        assert_eq!(get(server.address, COMPLETIONS).status, 405);
        goes_on(server, &model);
    });
}

#[test]
fn prompts_that_do_not_fit() {
    let model = model();
    with_server(&model, options(), ServerOptions::default(), |server| {
        for (length, new_tokens, part) in
            [(4_000, 4, "501 blocks, the pool has 256"), (40_000, 4, "the model takes 32768")]
        {
            let body = json!({ "prompt": "x".repeat(length), "max_tokens": new_tokens });
            let reply = post(server.address, COMPLETIONS, &body);
            let (param, message) = reply.refusal();
            assert_eq!((reply.status, param.as_deref()), (400, Some("prompt")), "{message}");
            assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
            assert!(message.contains(part), "{message}");
        }
        let body = json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": u64::MAX });
        assert_eq!(post(server.address, CHAT, &body).refusal().0.as_deref(), Some("messages"));
        goes_on(server, &model);
    });
}

#[test]
fn bodies_of_any_bytes() {
    let model = model();
    let server_options = ServerOptions { body_bytes: 10_000, ..ServerOptions::default() };
    with_server(&model, options(), server_options, |server| {
        let dice = &mut Dice::new(3);
        let whole = json!({ "prompt": "abc", "max_tokens": 2, "temperature": 0.5, "stop": ["x"] }).to_string();
        for round in 0..300 {
            let body: Vec<u8> = match round % 3 {
                0 => (0..dice.below(200)).map(|_| dice.below(256) as u8).collect(),
                1 => whole.bytes().take(dice.below(whole.len())).collect(),
                _ => whole.bytes().map(|byte| if dice.below(20) == 0 { dice.below(256) as u8 } else { byte }).collect(),
            };
            let reply = post_bytes(server.address, COMPLETIONS, &body);
            assert!([200, 400, 404].contains(&reply.status), "{body:?}: {reply:?}");
            assert!(reply.status == 200 || !reply.refusal().1.is_empty());
        }
        let deep = "[".repeat(5_000);
        assert_eq!(post_bytes(server.address, COMPLETIONS, deep.as_bytes()).status, 400);
        assert_eq!(post_bytes(server.address, COMPLETIONS, &vec![b' '; 20_000]).status, 413);
        goes_on(server, &model);
    });
}

#[test]
fn heads_that_are_too_large_or_none() {
    let model = model();
    with_server(&model, options(), ServerOptions::default(), |server| {
        let many: String = (0..500).map(|number| format!("x-{number}: {number}\r\n")).collect();
        let long = |bytes| format!("x-long: {}\r\n", "y".repeat(bytes));
        // With the rest of the head, 32 KiB.
        let most = (32 << 10) - "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-long: \r\n\r\n".len();
        let heads = [200_000, 40_000, most + 1].map(|bytes| (long(bytes), 431));
        for (head, status) in heads.into_iter().chain([(many, 431), (long(most), 200), (long(30_000), 200)]) {
            let mut stream = connect(server.address);
            // The server may refuse before all of it is written.
            drop(
                stream.write_all(
                    format!("GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{head}\r\n").as_bytes(),
                ),
            );
            if let Ok(reply) = read(&mut stream) {
                assert_eq!(reply.status, status);
            }
        }
        let mut stream = connect(server.address);
        stream.write_all(b"\x16\x03\x01 no HTTP at all\r\n\r\n").expect("written");
        assert_eq!(read(&mut stream).expect("an answer").status, 400);
        // A body that is shorter than promised: the client is gone before its end.
        let whole = written("POST", COMPLETIONS, b"{\"prompt\": \"abc\"}");
        connect(server.address).write_all(&whole[..whole.len() - 5]).expect("written");
        goes_on(server, &model);
    });
}

/// Weights that give no numbers for prompts with the byte `x`.
struct NotFinite(RandomWeights);

impl Weights for NotFinite {
    type Error = std::convert::Infallible;

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, Self::Error> {
        self.0.vector(name, len)
    }

    fn matrix(&self, name: &str, inputs: usize, outputs: usize) -> Result<engine::matrix::Matrix, Self::Error> {
        let matrix = self.0.matrix(name, inputs, outputs)?;
        let mut rows = vec![0.0; inputs * outputs];
        (0..outputs).for_each(|output| matrix.row(output, &mut rows[output * inputs..(output + 1) * inputs]));
        if name == "model.embed_tokens.weight" {
            rows[usize::from(b'x') * inputs..][..inputs].fill(f32::NAN);
        }
        Ok(engine::matrix::Matrix::from_f32(inputs, outputs, &rows))
    }
}

#[test]
fn numbers_that_are_not_finite_are_no_answer() {
    // An output layer of its own, so that other prompts are not concerned.
    let Ok(model) = Model::load(Config { tied: false, ..Config::small() }, &NotFinite(RandomWeights::new(4)), |_| {});
    with_server(&model, options(), ServerOptions::default(), |server| {
        for stream in [false, true] {
            let body = json!({ "prompt": "abcx", "max_tokens": 4, "stream": stream });
            let reply = post(server.address, COMPLETIONS, &body);
            let error = if stream { reply.events()[0].clone() } else { reply.json() };
            assert_eq!(reply.status, if stream { 200 } else { 500 });
            assert!(error["error"]["message"].as_str().expect("a message").contains("finite"), "{error}");
        }
        goes_on(server, &model);
    });
}

#[test]
fn chats_that_the_folder_has_no_words_for() {
    let directory = Directory::new("served-chats");
    directory.write("tokenizer.json", include_str!("../chats/tokenizer.json"));
    let read = || Tokenizer::read(directory.path(), 300, 100).expect("a tokenizer");
    let model = random(Config { vocab_size: 300, ..Config::small() }, 4);
    let user = |content: &str| json!({ "messages": [{ "role": "user", "content": content }], "max_tokens": 2 });
    let refused = |server: &Running, body: &Value, part: &str| {
        let reply = post(server.address, CHAT, body);
        let (param, message) = reply.refusal();
        assert_eq!((reply.status, param.as_deref()), (400, Some("messages")), "{message}");
        assert!(message.contains(part), "{message}");
    };
    with_tokenizer(&model, read(), options(), ServerOptions::default(), |server| {
        refused(server, &user("a"), "no chat template");
        assert_eq!(post(server.address, COMPLETIONS, &json!({ "prompt": "a<|im_end|>", "max_tokens": 2 })).status, 200);
        let long = json!({ "prompt": "a".repeat(10_000), "max_tokens": 2 });
        assert_eq!(post(server.address, COMPLETIONS, &long).json()["error"]["code"], "context_length_exceeded");
    });
    directory.write("chat_template.jinja", "{% for %}");
    let error = read().check_chat_template().expect_err("a broken template").to_string();
    assert!(error.contains("chat_template.jinja"), "{error}");
    with_tokenizer(&model, read(), options(), ServerOptions::default(), |server| {
        refused(server, &user("a"), "the model's chat template cannot be used");
        let path = directory.path().display().to_string();
        assert!(!post(server.address, CHAT, &user("a")).refusal().1.contains(&path));
    });
    directory.write("chat_template.jinja", include_str!("../chats/blocks.jinja"));
    with_tokenizer(&model, read(), options(), ServerOptions::default(), |server| {
        assert_eq!(post(server.address, CHAT, &user("a")).status, 200);
        refused(
            server,
            &user("<|im_end|>\u{f0000}"),
            "messages[0].content has the text of the special token <|im_end|>",
        );
        let tool = json!({ "messages": [{ "role": "tool", "content": "a" }] });
        refused(server, &tool, "refuses the messages: no role tool");
    });
}
