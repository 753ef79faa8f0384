//! A model's directory, written by the test.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use engine::config::{Architecture, Config};
use engine::matrix::Matrix;
use engine::model::{RandomWeights, Weights};
use safetensors::tensor::{Dtype, TensorView};

/// A directory that is removed with its value.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("radixkv-engine-{}-{name}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), content).expect("a file");
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A tensor of a file.
#[derive(Clone)]
pub struct Tensor {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// Random weights, rounded to an element type, that remember the tensors that were asked for.
pub struct Recorded {
    inner: RandomWeights,
    dtype: Dtype,
    pub tensors: RefCell<HashMap<String, Tensor>>,
}

impl Recorded {
    pub fn new(seed: u64, dtype: Dtype) -> Self {
        Self { inner: RandomWeights::new(seed), dtype, tensors: RefCell::default() }
    }

    fn keep(&self, name: &str, shape: &[usize], values: &mut [f32]) {
        let mut bytes = Vec::new();
        for value in values {
            if self.dtype == Dtype::BF16 {
                *value = f32::from_bits(value.to_bits() & 0xffff_0000);
                bytes.extend(((value.to_bits() >> 16) as u16).to_le_bytes());
            } else {
                bytes.extend(value.to_le_bytes());
            }
        }
        let tensor = Tensor { dtype: self.dtype, shape: shape.to_vec(), bytes };
        self.tensors.borrow_mut().insert(name.to_owned(), tensor);
    }
}

impl Weights for Recorded {
    type Error = std::convert::Infallible;

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, Self::Error> {
        let mut vector = self.inner.vector(name, len)?;
        self.keep(name, &[len], &mut vector);
        Ok(vector)
    }

    fn matrix(&self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix, Self::Error> {
        let matrix = self.inner.matrix(name, inputs, outputs)?;
        let mut rows = vec![0.0; inputs * outputs];
        (0..outputs).for_each(|output| matrix.row(output, &mut rows[output * inputs..(output + 1) * inputs]));
        self.keep(name, &[outputs, inputs], &mut rows);
        Ok(Matrix::from_f32(inputs, outputs, &rows))
    }
}

/// Writes tensors to a file of a directory.
pub fn write(directory: &Directory, file: &str, tensors: &HashMap<String, Tensor>) {
    write_to(&directory.path().join(file), tensors);
}

/// Writes tensors to a file.
pub fn write_to(path: &Path, tensors: &HashMap<String, Tensor>) {
    let views = tensors.iter().map(|(name, tensor)| {
        (name, TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).expect("a tensor"))
    });
    // transformers asks which program wrote the file.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    fs::write(path, safetensors::serialize(views, Some(metadata)).expect("tensors")).expect("a file");
}

/// Writes the configuration as Hugging Face has it.
pub fn write_config(directory: &Directory, config: &Config) {
    write_config_to(directory.path(), config);
}

/// Writes the configuration to the directory at `path`.
pub fn write_config_to(path: &Path, config: &Config) {
    let rope_scaling = config.rope.scaling.map(|scaling| {
        serde_json::json!({
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_max_position_embeddings,
        })
    });
    let json = serde_json::json!({
        "model_type": match config.architecture { Architecture::Llama => "llama", Architecture::Qwen3 => "qwen3" },
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.query_heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope.theta,
        "rope_scaling": rope_scaling,
        "tie_word_embeddings": config.tied,
        "max_position_embeddings": config.max_positions,
        "eos_token_id": config.end_tokens,
        "hidden_act": "silu",
        "torch_dtype": "float32",
        "architectures": match config.architecture {
            Architecture::Llama => ["LlamaForCausalLM"],
            Architecture::Qwen3 => ["Qwen3ForCausalLM"],
        },
    });
    fs::write(path.join("config.json"), json.to_string()).expect("a file");
}

/// Writes a tokenizer of single letters, which splits texts as Qwen's does; its largest token is
/// `largest`.
pub fn write_tokenizer(directory: &Directory, largest: usize) {
    let mut vocab: HashMap<String, usize> = ('a'..='z').map(String::from).zip(0..).collect();
    vocab.insert("Ġ".to_owned(), 26);
    vocab.insert("Z".to_owned(), largest);
    let split = serde_json::json!({
        "type": "Split",
        "pattern": { "Regex": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|\s+(?!\S)|\s+" },
        "behavior": "Isolated",
        "invert": false,
    });
    let bytes = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false
    });
    let json = serde_json::json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [split, bytes] },
        "post_processor": null,
        "decoder": bytes,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": [],
        },
    });
    directory.write("tokenizer.json", json.to_string());
}

/// Changes a JSON file of a directory.
pub fn change(directory: &Directory, name: &str, change: impl FnOnce(&mut serde_json::Value)) {
    let text = fs::read_to_string(directory.path().join(name)).expect("a file");
    let mut json = serde_json::from_str(&text).expect("JSON");
    change(&mut json);
    directory.write(name, json.to_string());
}

/// A whole directory of a model with random weights.
pub fn directory(name: &str, config: &Config) -> (Directory, HashMap<String, Tensor>) {
    let directory = Directory::new(name);
    let recorded = Recorded::new(3, Dtype::F32);
    let Ok(_) = engine::model::Model::load(config.clone(), &recorded, |_| {});
    let tensors = recorded.tensors.into_inner();
    write(&directory, "model.safetensors", &tensors);
    write_config(&directory, config);
    write_tokenizer(&directory, 27);
    (directory, tensors)
}
