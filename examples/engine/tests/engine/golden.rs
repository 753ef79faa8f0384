//! Logits of another program: `golden.py` computes them from the same weights and prompt with
//! Hugging Face's transformers.
//!
//! To make `golden.json` anew: `cargo test --test engine -- --ignored golden`, then `golden.py` on
//! the directory that it names.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use engine::config::Config;
use engine::model::Model;
use radixkv_attention::Dtype;

use crate::naive::logits;
use crate::saved::{Recorded, write_config_to, write_to};
use crate::tiny;
use crate::weights::{PROMPT_TOKENS, llama, prompt};

const SEED: u64 = 20;

fn models() -> [(&'static str, Config); 2] {
    [("qwen3", tiny()), ("llama", llama())]
}

#[test]
fn logits_are_those_of_transformers() {
    let golden: HashMap<String, Vec<f32>> = serde_json::from_str(include_str!("golden.json")).expect("numbers");
    for (name, config) in models() {
        let Ok(model) = Model::load(config, &engine::model::RandomWeights::new(SEED), |_| {});
        let computed = logits(&model, Dtype::F32, &prompt());
        let theirs = &golden[name];
        let largest = theirs.iter().map(|logit| logit.abs()).fold(0.0, f32::max);
        let worst = computed.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f32::max);
        assert_eq!(computed.len(), theirs.len());
        assert!(worst < 2e-5 * largest, "{name}: off by {worst:e}, the largest logit is {largest}");
    }
}

#[test]
#[ignore = "writes the models that golden.py reads; run by ci/nightly.sh"]
fn write_models() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden");
    for (name, config) in models() {
        let path = directory.join(name);
        fs::create_dir_all(&path).expect("a directory");
        let recorded = Recorded::new(SEED, safetensors::Dtype::F32);
        let Ok(_) = Model::load(config.clone(), &recorded, |_| {});
        write_to(&path.join("model.safetensors"), &recorded.tensors.into_inner());
        write_config_to(&path, &config);
    }
    println!("{PROMPT_TOKENS} tokens: {}", directory.display());
}
