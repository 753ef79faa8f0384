//! The commands `radixkv sweep`, `size`, `convert` and `explain`: what they accept, their error
//! messages, and their output.
#![cfg(feature = "cli")]

#[path = "tools_cli/convert.rs"]
mod convert;
#[path = "tools_cli/explain.rs"]
mod explain;
#[path = "tools_cli/pages.rs"]
mod pages;
#[path = "tools_cli/size.rs"]
mod size;
#[path = "tools_cli/strange.rs"]
mod strange;
#[path = "tools_cli/sweep.rs"]
mod sweep;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// A model with 327,680 bytes of KV per token.
const LLAMA: &str = r#"{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16"}"#;

/// A folder that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a name").to_owned()
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), bytes).expect("a file");
        self.path(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the command with lines of this many columns.
fn run_at(columns: usize, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    command.env("COLUMNS", columns.to_string()).args(arguments).stdin(Stdio::null()).output().expect("the command runs")
}

/// The output of a run that succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = run_at(80, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[arguments, &["--json"]].concat())).expect("one JSON object")
}

/// The message of a run that exited with 2 and printed nothing else.
fn complaint(arguments: &[&str]) -> String {
    let output = run_at(80, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty() && !said.contains("panicked"), "{said}");
    said
}

/// Runs the command with `text` on standard input.
fn fed(arguments: &[&str], text: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("the command reads");
    child.wait_with_output().expect("the command ends")
}

/// Width of the longest line on a terminal; each East Asian character in the tests takes two
/// columns.
fn widest(text: &str) -> usize {
    let columns = |line: &str| line.chars().map(|character| 1 + usize::from(character >= '\u{2e80}')).sum();
    text.lines().map(columns).max().unwrap_or(0)
}

// Holds: RP14.
#[test]
fn every_table_fits_its_screen() {
    let scratch = Scratch::new("tools-screen");
    let model = scratch.file("config.json", LLAMA);
    let trace = scratch
        .file("a trace whose name is longer than a narrow screen is wide, and then some more.jsonl", sweep::rows());
    let (a, b) = (scratch.file("a", "1 2 3 4"), scratch.file("b", "1 2 9"));
    let all = "lru,lfu,fifo,mru,filo,slru,level,priority";
    let commands: [&[&str]; 4] = [
        &["sweep", &trace, "--policy", all, "--block-size", "1,16,64"],
        &["sweep", &trace, "--policy", all, "--capacity", "1GiB,50%", "--model-config", &model],
        &["size", "--model-config", &model, "--gpu-memory", "640GiB"],
        &["explain", &a, &b],
    ];
    for command in commands {
        for columns in [40, 60, 80, 120, 200] {
            let output = run_at(columns, command);
            let text = String::from_utf8(output.stdout).expect("text");
            assert!(output.status.success() && widest(&text) <= columns, "{command:?} at {columns}:\n{text}");
            assert!(!text.contains('\u{1b}'), "colours without a terminal");
        }
    }
    let wide = printed(&[commands[0], &["--wide"]].concat());
    assert!(all.split(',').all(|policy| wide.contains(policy)) && !wide.contains("--wide"), "{wide}");
    assert!(printed(commands[0]).contains("--wide shows more columns"));
    for command in ["sweep", "size", "convert", "explain"] {
        let help = printed(&[command, "--help"]);
        assert!(widest(&help) <= 80, "{help}");
    }
}
