//! A model that is saved and loaded is the same model.

use std::collections::HashMap;

use engine::checkpoint::Checkpoint;
use engine::config::{Architecture, Config, Llama3Scaling, Rope};
use engine::model::Model;
use engine::tokenizer::Tokenizer;
use radixkv::Token;
use radixkv_attention as attention;
use safetensors::tensor::Dtype;

use crate::naive::{bits, logits};
use crate::saved::{Directory, Recorded, Tensor, write, write_config, write_tokenizer};
use crate::tiny;

/// Tokens of a prompt that is longer than the positions from which on rotary wavelengths are
/// stretched.
pub const PROMPT_TOKENS: u32 = 150;

pub fn prompt() -> Vec<Token> {
    (0..PROMPT_TOKENS).map(|i| i * 29 % 64).collect()
}

pub fn llama() -> Config {
    let scaling = Llama3Scaling {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 64.0,
    };
    let rope = Rope { theta: 500_000.0, scaling: Some(scaling) };
    Config { architecture: Architecture::Llama, tied: false, rope, ..tiny() }
}

/// Writes the tensors to one file, or to three with an index.
fn save(directory: &Directory, tensors: &HashMap<String, Tensor>, files: usize) {
    if files == 1 {
        return write(directory, "model.safetensors", tensors);
    }
    let mut names: Vec<&String> = tensors.keys().collect();
    names.sort();
    let file = |at: usize| format!("model-{:05}-of-{files:05}.safetensors", at + 1);
    for part in 0..files {
        let some = names.iter().skip(part).step_by(files).map(|name| ((*name).clone(), tensors[*name].clone()));
        write(directory, &file(part), &some.collect());
    }
    let map: HashMap<&String, String> = names.iter().enumerate().map(|(at, name)| (*name, file(at % files))).collect();
    directory.write("model.safetensors.index.json", serde_json::json!({ "weight_map": map }).to_string());
}

#[test]
fn logits_are_the_same() {
    for (name, config) in [("qwen3", tiny()), ("llama", llama())] {
        for (dtype, files) in [(Dtype::F32, 1), (Dtype::BF16, 1), (Dtype::F32, 3)] {
            let recorded = Recorded::new(11, dtype);
            let Ok(model) = Model::load(config.clone(), &recorded, |_| {});
            let directory = Directory::new(&format!("{name}-{dtype:?}-{files}"));
            save(&directory, &recorded.tensors.into_inner(), files);
            write_config(&directory, &config);

            let read = Config::read(directory.path()).expect("a configuration");
            assert_eq!(read, config);
            let checkpoint = Checkpoint::open(directory.path()).expect("weights");
            let loaded = Model::load(read, &checkpoint, |_| {}).expect("all tensors");
            let [saved, loaded] = [&model, &loaded].map(|model| bits(&logits(model, attention::Dtype::F32, &prompt())));
            assert!(saved == loaded, "{name} in {files} files of {dtype:?}");
        }
    }
}

#[test]
fn a_tokenizer_is_read() {
    let directory = Directory::new("tokenizer");
    write_tokenizer(&directory, 27);
    let tokenizer = Tokenizer::read(directory.path(), 64, 1_000).expect("a tokenizer");
    let tokens = tokenizer.text("a cab").expect("letters");
    assert_eq!(tokens, [0, 26, 2, 0, 1]);
    assert_eq!(tokenizer.decode(&tokens), "a cab");
}
