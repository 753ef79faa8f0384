//! Bad input is refused with one line that says what is wrong, and an exit code.

use std::fs;
use std::path::Path;

use engine::command::run;
use safetensors::tensor::Dtype;

use crate::saved::{Directory, Tensor, directory, write, write_tokenizer};
use crate::tiny;

/// The command's refusal.
fn refusal(arguments: &[&str]) -> (String, u8) {
    let arguments = ["engine"].iter().chain(arguments).map(Into::into);
    let error = run(arguments, &mut Vec::new()).expect_err("a refusal");
    (error.to_string(), error.code())
}

#[track_caller]
pub fn refused(arguments: &[&str], code: u8, parts: &[&str]) {
    let (line, given) = refusal(arguments);
    assert!(!line.trim().contains('\n'), "{line}");
    assert!(parts.iter().all(|part| line.contains(part)), "{line} has not {parts:?}");
    assert_eq!(given, code, "{line}");
}

#[test]
fn a_prompt_longer_than_the_pool() {
    // 40 tokens of prompt and 9 of output that are computed, in blocks of 4.
    let text = "x".repeat(40);
    let pool = ["--block-size", "4", "--blocks", "10", "--new-tokens", "10"];
    refused(&[&pool[..], &["--text", &text]].concat(), 2, &["prompt 1", "13 blocks", "the pool has 10"]);
}

#[test]
fn an_empty_prompt() {
    refused(&["--text", "words", "--text", ""], 2, &["prompt 2 is empty"]);
}

#[test]
fn no_new_tokens() {
    refused(&["--new-tokens", "0"], 2, &["0 new tokens requested: at least 1 is needed"]);
}

#[test]
fn options_that_no_cache_can_have() {
    refused(&["--blocks", "0"], 2, &["0 blocks"]);
    refused(&["--block-size", "0"], 2, &["0 tokens"]);
    refused(&["--host-blocks", "18446744073709551615"], 1, &["more than ids or addresses can name"]);
    refused(&["--running", "0"], 1, &["0 request slots"]);
}

#[test]
fn arguments_that_are_none() {
    for arguments in [&["--threads", "0"][..], &["--device", "tpu"], &["--dtype", "int8"], &["--order", "odd"]] {
        assert_eq!(refusal(arguments).1, 2, "{arguments:?}");
    }
}

#[test]
fn a_gpu_that_is_not_there() {
    if cfg!(not(feature = "cuda")) {
        refused(&["--device", "cuda"], 2, &["built without the feature `cuda`"]);
    } else if Path::new("/dev/nvidiactl").exists() {
        eprintln!("skipped: there is a GPU");
    } else {
        refused(&["--device", "cuda"], 1, &["no NVIDIA driver"]);
    }
}

#[test]
fn prompts_that_are_none() {
    let directory = Directory::new("prompts");
    let file = |name: &str, content: &str| {
        directory.write(name, content);
        directory.path().join(name).display().to_string()
    };
    let bad = file("bad.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}\n{\"messages\": 3}\n");
    refused(&["--prompts", &bad], 2, &["bad.jsonl:2", "expected a sequence"]);
    let none = file("none.jsonl", "\n\n");
    refused(&["--prompts", &none], 2, &["none.jsonl: no prompts"]);
    let silent = file("silent.jsonl", "{\"messages\": []}");
    refused(&["--prompts", &silent], 2, &["prompt 1 is empty"]);
    refused(&["--prompts", "/no/such/file.jsonl"], 2, &["/no/such/file.jsonl"]);
}

#[test]
fn chats_are_answered() {
    let directory = Directory::new("chats");
    let chat = |question: &str| {
        let parts = serde_json::json!([{ "type": "text", "text": question }]);
        let system = serde_json::json!({ "role": "system", "content": "Answer with care and in few words." });
        serde_json::json!({ "messages": [system, { "role": "user", "content": parts }] }).to_string()
    };
    directory.write("chats.jsonl", [chat("Why?"), chat("Where to?")].join("\n"));
    let path = directory.path().join("chats.jsonl").display().to_string();
    let mut out = Vec::new();
    let arguments = ["engine", "--prompts", &path, "--new-tokens", "4", "--temperature", "1.5", "--cascade"];
    run(arguments.map(Into::into), &mut out).expect("answers");
    let text = String::from_utf8(out).expect("text");
    assert!(text.contains("outputs are the same"), "{text}");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(['│', '┆']).map(str::trim).collect()).collect();
    let cells = |name: &str| rows.iter().find(|row| row.get(1) == Some(&name)).expect("a row");
    assert_eq!(cells("without")[4], "0");
    assert_ne!(cells("with the cache")[4], "0", "{text}");
}

#[test]
fn a_directory_without_a_model() {
    let empty = Directory::new("empty");
    let path = empty.path().display().to_string();
    refused(&["--model", &path], 1, &["config.json"]);
    let (whole, _) = directory("without-weights", &tiny());
    let path = whole.path().display().to_string();
    fs::remove_file(whole.path().join("model.safetensors")).expect("a file");
    refused(&["--model", &path], 1, &["no model.safetensors"]);
    fs::remove_file(whole.path().join("tokenizer.json")).expect("a file");
    refused(&["--model", &path], 1, &["tokenizer.json"]);
}

#[test]
fn another_architecture() {
    let (other, _) = directory("architecture", &tiny());
    let path = other.path().display().to_string();
    let config = fs::read_to_string(other.path().join("config.json")).expect("a file");
    other.write("config.json", config.replace("qwen3", "mamba"));
    refused(&["--model", &path], 1, &["config.json", "mamba"]);
    other.write("config.json", config.replace("\"head_dim\":8", "\"head_dim\":6"));
    refused(&["--model", &path], 1, &["config.json", "head_dim of 6"]);
}

#[test]
fn weights_that_do_not_fit() {
    let (model, tensors) = directory("weights", &tiny());
    let path = model.path().display().to_string();
    let name = "model.layers.1.mlp.up_proj.weight";
    let with = |change: &dyn Fn(&mut Tensor)| {
        let mut changed = tensors.clone();
        changed.get_mut(name).into_iter().for_each(change);
        write(&model, "model.safetensors", &changed);
    };

    let mut fewer = tensors.clone();
    fewer.remove(name);
    write(&model, "model.safetensors", &fewer);
    refused(&["--model", &path], 1, &["model.safetensors", "no tensor", name]);

    with(&|tensor| tensor.dtype = Dtype::I32);
    refused(&["--model", &path], 1, &["model.safetensors", name, "type I32"]);
    with(&|tensor| tensor.shape.reverse());
    refused(&["--model", &path], 1, &["model.safetensors", name, "[32, 48]", "[48, 32]"]);

    write(&model, "model.safetensors", &tensors);
    let whole = fs::read(model.path().join("model.safetensors")).expect("a file");
    let needed = format!("{} bytes of {}", whole.len() - 100, whole.len());
    model.write("model.safetensors", &whole[..whole.len() - 100]);
    refused(&["--model", &path], 1, &["model.safetensors", "truncated", &needed]);
    model.write("model.safetensors", &whole[..100]);
    refused(&["--model", &path], 1, &["model.safetensors", "truncated", "100 bytes of"]);
    model.write("model.safetensors", &whole[..5]);
    refused(&["--model", &path], 1, &["model.safetensors", "truncated", "5 bytes of 8"]);
    let mut unknown = whole.clone();
    while let Some(at) = unknown.windows(5).position(|window| window == b"\"F32\"") {
        unknown[at..at + 5].copy_from_slice(b"\"Q4\" ");
    }
    model.write("model.safetensors", &unknown);
    refused(&["--model", &path], 1, &["model.safetensors", "type Q4"]);
    model.write("model.safetensors", b"\x08\0\0\0\0\0\0\0not json");
    refused(&["--model", &path], 1, &["model.safetensors", "not a safetensors file"]);
}

#[test]
fn a_tokenizer_of_another_model() {
    let (model, _) = directory("vocabulary", &tiny());
    let path = model.path().display().to_string();
    write_tokenizer(&model, 64);
    refused(&["--model", &path], 1, &["tokenizer.json", "token 64", "vocabulary of 64"]);
}

#[test]
fn a_whole_directory_answers() {
    let (model, _) = directory("whole", &tiny());
    let path = model.path().display().to_string();
    let mut out = Vec::new();
    let arguments = ["engine", "--model", &path, "--text", "a cab", "--text", "a car", "--new-tokens", "3"];
    run(arguments.map(Into::into), &mut out).expect("answers");
    let text = String::from_utf8(out).expect("text");
    assert!(text.contains("outputs are the same") && text.starts_with("1: "), "{text}");
}

#[test]
fn a_prompt_longer_than_the_model_takes() {
    let (model, _) = directory("positions", &engine::config::Config { max_positions: 8, ..tiny() });
    let path = model.path().display().to_string();
    refused(&["--model", &path, "--text", "abcdefg", "--new-tokens", "3"], 2, &["prompt 1", "10 tokens", "takes 8"]);
}

#[cfg(feature = "serve")]
#[test]
fn an_address_that_cannot_be_served_at() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    refused(&["--serve", &address], 2, &[&address, "in use"]);
    refused(&["--serve", "nowhere"], 2, &["cannot listen at nowhere", "such as localhost:8000"]);
    refused(&["--serve", "localhost:http"], 2, &["cannot listen at localhost:http"]);
}
