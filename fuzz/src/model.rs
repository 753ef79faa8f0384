//! The engine's readers of a model's directory on garbage: what they refuse they refuse with the
//! file's name, and a model that loads is whole.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::checkpoint::Checkpoint;
use engine::config::Config;
use engine::model::Model;
use engine::tokenizer::Tokenizer;

/// Bytes of elements behind a header whose length is right.
const ELEMENTS: usize = 1 << 12;

/// Tokens and positions of the model that a tokenizer is for.
const VOCABULARY: usize = 1 << 10;
const POSITIONS: usize = 1 << 10;

/// A directory for one run.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("radixkv-fuzz-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory for garbage");
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).expect("a file of garbage");
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that cannot be removed is no finding.
        _ = fs::remove_dir_all(&self.0);
    }
}

/// The first byte says which file the rest is: the configuration, a file of weights, its header
/// alone, or an index; from 128 on a tokenizer.
pub fn run(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else {
        return;
    };
    let directory = Directory::new();
    if kind >= 128 {
        return directory.tokenize(bytes);
    }
    match kind % 4 {
        0 => directory.write("config.json", bytes),
        1 => directory.write("model.safetensors", bytes),
        2 => directory.write("model.safetensors", &with_elements(bytes)),
        _ => {
            directory.write("model.safetensors.index.json", bytes);
            directory.write("part.safetensors", &with_elements(b"{}"));
        }
    }
    let config = match Config::read(&directory.0) {
        Ok(config) => config,
        Err(error) => {
            directory.judge(&error.to_string());
            Config::small()
        }
    };
    match Checkpoint::open(&directory.0) {
        Ok(checkpoint) => match Model::load(config, &checkpoint, |_| {}) {
            Ok(model) => assert!(model.config().layers > 0),
            Err(error) => directory.judge(&error.to_string()),
        },
        Err(error) => directory.judge(&error.to_string()),
    }
}

impl Directory {
    /// A tokenizer that is read neither panics nor makes tokens that the model does not have.
    fn tokenize(&self, bytes: &[u8]) {
        self.write("tokenizer.json", bytes);
        with_caught_panics(|| self.read_and_use_tokenizer());
    }

    fn read_and_use_tokenizer(&self) {
        let tokenizer = match Tokenizer::read(&self.0, VOCABULARY, POSITIONS) {
            Ok(tokenizer) => tokenizer,
            Err(error) => return self.judge(&error.to_string()),
        };
        for text in ["", "a", "abba Grüße <|im_end|>", "ab ab  \n ab"] {
            if let Ok(tokens) = tokenizer.text(text) {
                assert!(tokens.iter().all(|token| (*token as usize) < VOCABULARY), "{tokens:?}");
                drop(tokenizer.decode(&tokens));
            }
        }
    }

    /// An error says which file is at fault.
    fn judge(&self, message: &str) {
        let place = self.0.display().to_string();
        assert!(message.starts_with(&place), "no file in {message:?}");
    }
}

/// A header with its length before it and elements behind it.
fn with_elements(header: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.resize(file.len() + ELEMENTS, 0);
    file
}

/// Runs what catches panics of the library below it, without the fuzzer's hook, which takes each of
/// them for a finding. One that is not caught stays a finding.
fn with_caught_panics(run: impl FnOnce()) {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(hook);
    if let Err(panic) = result {
        let message = panic.downcast_ref::<String>().cloned();
        panic!("a tokenizer: {}", message.as_deref().or(panic.downcast_ref::<&str>().copied()).unwrap_or("no text"));
    }
}
