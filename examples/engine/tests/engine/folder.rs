//! What a model's directory says is read as transformers reads it, or refused by the name of the
//! field.

use std::collections::HashMap;
use std::fs;

use engine::command::run;
use engine::config::{Config, Rope};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::input::refused;
use crate::saved::{Tensor, change, directory, write};
use crate::tiny;

/// The cell of the first run's row in this column.
pub fn cell(arguments: &[&str], column: usize) -> String {
    let mut out = Vec::new();
    run(["engine"].iter().chain(arguments).map(Into::into), &mut out).expect("answers");
    let text = String::from_utf8(out).expect("text");
    let row = text.lines().find(|line| line.contains("with the cache")).expect("a row");
    row.split(['│', '┆']).nth(column).expect("a cell").trim().to_owned()
}

/// The column of the prompt's tokens.
pub const PROMPT_TOKENS: usize = 3;

#[test]
fn the_base_of_the_wavelengths_is_read_wherever_it_stands() {
    let directory = directory("rope", &tiny()).0;
    let read = |fields: Value| {
        change(&directory, "config.json", |config| {
            let config = config.as_object_mut().expect("an object");
            ["rope_theta", "rope_scaling", "rope_parameters"].iter().for_each(|name| drop(config.remove(*name)));
            config.extend(fields.as_object().expect("an object").clone());
        });
        Config::read(directory.path()).map(|config| config.rope).map_err(|error| error.to_string())
    };
    let plain = |theta| Ok(Rope { theta, scaling: None });
    assert_eq!(read(json!({})), plain(10_000.0));
    assert_eq!(read(json!({ "rope_theta": 5e5 })), plain(5e5));
    assert_eq!(read(json!({ "rope_scaling": { "rope_type": "default", "rope_theta": 5e5 } })), plain(5e5));
    assert_eq!(read(json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 5e5 } })), plain(5e5));
    assert_eq!(read(json!({ "rope_theta": 5e5, "rope_parameters": { "rope_theta": 5e5 } })), plain(5e5));
    let llama3 = json!({
        "type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_theta": 5e5,
    });
    let rope = read(json!({ "rope_scaling": llama3 })).expect("supported");
    assert_eq!((rope.theta, rope.scaling.map(|scaling| scaling.factor)), (5e5, Some(8.0)));

    for (fields, field) in [
        (json!({ "rope_theta": "500000" }), "rope_theta \"500000\""),
        (json!({ "rope_scaling": { "rope_theta": "5e5" } }), "rope_scaling.rope_theta"),
        (json!({ "rope_theta": 1e4, "rope_parameters": { "rope_theta": 5e5 } }), "rope_parameters.rope_theta 500000"),
        (json!({ "rope_theta": 0 }), "rope_theta 0"),
        (json!({ "rope_scaling": { "type": "yarn" } }), "rope_scaling.rope_type \"yarn\""),
        (json!({ "rope_scaling": { "factor": 2.0 } }), "rope_scaling.factor"),
        (json!({ "rope_scaling": { "rope_type": "llama3", "factor": 8.0 } }), "rope_scaling"),
        (json!({ "rope_parameters": "linear" }), "rope_parameters"),
        (json!({ "rope_parameters": { "partial_rotary_factor": 0.5 } }), "partial_rotary_factor"),
    ] {
        let error = read(fields.clone()).expect_err("a refusal");
        assert!(error.contains(field) && error.contains("config.json"), "{fields}: {error}");
    }
}

#[test]
fn models_that_are_not_computed_are_refused_by_the_field() {
    let (model, _) = directory("fields", &tiny());
    let path = model.path().display().to_string();
    let config = fs::read_to_string(model.path().join("config.json")).expect("a file");
    for (field, value) in [
        ("architectures", json!(["Qwen3ForSequenceClassification"])),
        ("architectures", json!(["LlamaForCausalLM"])),
        ("quantization_config", json!({ "quant_method": "fp8" })),
        ("layer_types", json!(["full_attention", "sliding_attention"])),
        ("partial_rotary_factor", json!(0.5)),
        ("eos_token_id", json!("2")),
        ("rms_norm_eps", json!(-1.0)),
    ] {
        model.write("config.json", &config);
        change(&model, "config.json", |config| config[field] = value);
        refused(&["--model", &path], 1, &["config.json", field]);
    }
}

#[test]
fn end_tokens_are_those_of_the_generation_config() {
    let (model, _) = directory("ends", &Config { end_tokens: vec![7], ..tiny() });
    let ends = || Config::read(model.path()).map(|config| config.end_tokens).map_err(|error| error.to_string());
    assert_eq!(ends(), Ok(vec![7]));
    model.write("generation_config.json", json!({ "eos_token_id": [3, 4], "temperature": 0.6 }).to_string());
    assert_eq!(ends(), Ok(vec![3, 4]));
    model.write("generation_config.json", json!({ "eos_token_id": 5 }).to_string());
    assert_eq!(ends(), Ok(vec![5]));
    model.write("generation_config.json", "{}");
    assert_eq!(ends(), Ok(vec![]));
    model.write("generation_config.json", json!({ "eos_token_id": -1 }).to_string());
    let error = ends().expect_err("no token");
    assert!(error.contains("generation_config.json") && error.contains("eos_token_id"), "{error}");
}

#[test]
fn tensors_that_the_model_does_not_have() {
    let (model, tensors) = directory("unread", &tiny());
    let path = model.path().display().to_string();
    let arguments = ["--model", &path, "--text", "cab", "--new-tokens", "1"];
    let with = |name: &str, tensor: &Tensor| {
        let mut more = tensors.clone();
        more.insert(name.to_owned(), tensor.clone());
        write(&model, "model.safetensors", &more);
    };
    let embedding = &tensors["model.embed_tokens.weight"];
    let bias = "model.layers.0.self_attn.q_proj.bias";
    with(bias, &tensors["model.norm.weight"]);
    refused(&arguments, 1, &["model.safetensors", bias]);
    let mut other = embedding.clone();
    other.bytes[1] ^= 1;
    with("lm_head.weight", &other);
    refused(&arguments, 1, &["model.safetensors", "tie_word_embeddings", "lm_head.weight"]);

    with("lm_head.weight", embedding);
    assert_eq!(cell(&arguments, PROMPT_TOKENS), "3");
    with("model.layers.0.self_attn.rotary_emb.inv_freq", &tensors["model.norm.weight"]);
    assert_eq!(cell(&arguments, PROMPT_TOKENS), "3");
}

#[test]
fn weights_and_logits_that_are_no_numbers() {
    let (model, tensors) = directory("finite", &tiny());
    let path = model.path().display().to_string();
    let arguments = ["--model", &path, "--text", "cab", "--new-tokens", "1"];
    let name = "model.layers.1.mlp.up_proj.weight";
    let with = |name: &str, first: f32| {
        let mut changed: HashMap<String, Tensor> = tensors.clone();
        changed.get_mut(name).expect("a tensor").bytes[..4].copy_from_slice(&first.to_le_bytes());
        write(&model, "model.safetensors", &changed);
    };
    for number in [f32::NAN, f32::INFINITY] {
        with(name, number);
        refused(&arguments, 1, &["model.safetensors", name, "not finite"]);
    }
    let half = Tensor { dtype: Dtype::F16, shape: vec![32], bytes: [0x7c00_u16.to_le_bytes(); 32].concat() };
    let mut changed = tensors.clone();
    changed.insert("model.norm.weight".to_owned(), half);
    write(&model, "model.safetensors", &changed);
    refused(&arguments, 1, &["model.safetensors", "model.norm.weight", "not finite"]);
    // Finite weights whose sums are not.
    let huge = Tensor { dtype: Dtype::F32, shape: vec![32], bytes: [f32::MAX.to_le_bytes(); 32].concat() };
    changed.insert("model.norm.weight".to_owned(), huge);
    write(&model, "model.safetensors", &changed);
    refused(&arguments, 1, &["logits of request", "not finite"]);
}

#[test]
fn files_of_tensors_that_are_not_whole() {
    let (model, _) = directory("layout", &tiny());
    let path = model.path().display().to_string();
    let file = |header: &str, bytes: usize| {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.resize(file.len() + bytes, 0);
        model.write("model.safetensors", file);
    };
    let tensor = |shape: &str, from: u64, to: u64| {
        format!(r#"{{"dtype": "F32", "shape": {shape}, "data_offsets": [{from}, {to}]}}"#)
    };
    let two = |a: String, b: String| format!(r#"{{"a": {a}, "b": {b}}}"#);
    for (header, bytes, parts) in [
        (two(tensor("[2]", 0, 8), tensor("[2]", 4, 12)), 12, &["tensor b", "overlaps"][..]),
        (two(tensor("[2]", 0, 8), tensor("[2]", 0, 8)), 8, &["tensor b", "overlaps"]),
        (two(tensor("[2]", 0, 8), tensor("[2]", 12, 20)), 20, &["tensor b", "hole"]),
        (format!(r#"{{"a": {}}}"#, tensor("[2]", 4, 12)), 12, &["tensor a", "hole"]),
        (two(tensor("[2]", 0, 8), tensor("[2]", 8, 16)), 20, &["4 bytes after the last tensor"]),
        (format!(r#"{{"a": {0}, "a": {0}}}"#, tensor("[2]", 0, 8)), 8, &["tensor a"]),
        (format!(r#"{{"a": {}, "a": {}}}"#, tensor("[2]", 0, 8), tensor("[1]", 8, 12)), 12, &["tensor a stands twice"]),
        (format!(r#"{{"a": {}}}"#, tensor("[3]", 0, 8)), 8, &["tensor a has 8 bytes, its shape needs 12"]),
        (
            format!(r#"{{"a": {}}}"#, tensor("[4294967296, 4294967296]", 0, 8)),
            8,
            &["no tensor has the shape [4294967296, 4294967296]"],
        ),
        (format!(r#"{{"a": {}}}"#, tensor("[1]", 0, u64::MAX)), 8, &["tensor a lies from 0 to 18446744073709551615"]),
    ] {
        file(&header, bytes);
        refused(&["--model", &path], 1, &[&["model.safetensors"], parts].concat());
    }
}

#[test]
fn an_index_and_its_files_agree() {
    let (model, tensors) = directory("index", &tiny());
    let path = model.path().display().to_string();
    fs::remove_file(model.path().join("model.safetensors")).expect("a file");
    let index = |file: &dyn Fn(&str) -> &'static str| {
        let map: HashMap<&String, &str> = tensors.keys().map(|name| (name, file(name))).collect();
        model.write("model.safetensors.index.json", json!({ "weight_map": map }).to_string());
    };
    let norm: HashMap<_, _> = [("model.norm.weight".to_owned(), tensors["model.norm.weight"].clone())].into();
    write(&model, "one.safetensors", &tensors);
    write(&model, "two.safetensors", &norm);
    index(&|name| if name == "model.norm.weight" { "two.safetensors" } else { "one.safetensors" });
    refused(&["--model", &path], 1, &["two.safetensors", "model.norm.weight is in another file too"]);
    let mut rest = tensors.clone();
    rest.remove("model.norm.weight");
    write(&model, "one.safetensors", &rest);
    index(&|name| if name == "model.norm.weight" { "one.safetensors" } else { "two.safetensors" });
    refused(&["--model", &path], 1, &["safetensors", "no tensor"]);
    index(&|name| if name == "model.norm.weight" { "two.safetensors" } else { "one.safetensors" });
    assert_eq!(cell(&["--model", &path, "--text", "cab", "--new-tokens", "1"], PROMPT_TOKENS), "3");
}

#[test]
fn sampling_by_no_numbers() {
    for (argument, value) in [
        ("--temperature", "NaN"),
        ("--temperature", "-1"),
        ("--temperature", "inf"),
        ("--top-p", "NaN"),
        ("--top-p", "-0.5"),
        ("--top-p", "1.5"),
    ] {
        let argument_value = format!("{argument}={value}");
        refused(&[&argument_value], 2, &[&argument[2..].replace('-', "_"), " is "]);
    }
}
