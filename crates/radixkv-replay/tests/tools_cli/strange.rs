//! Names with control characters, endless files, and streams that are closed.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use super::{Scratch, complaint, printed, run_at, sweep, widest};

/// Whether a text has no control characters except newlines.
fn is_plain(text: impl AsRef<[u8]>) -> bool {
    String::from_utf8_lossy(text.as_ref()).chars().all(|character| character == '\n' || !character.is_control())
}

fn assert_plain(output: &Output) {
    assert!(is_plain(&output.stdout) && is_plain(&output.stderr), "{output:?}");
}

// Holds: RP15.
#[test]
fn control_characters_of_a_name_reach_no_terminal_and_no_picture() {
    let scratch = Scratch::new("tools-control");
    let trace = scratch.file("a\u{1b}[31m\nb.jsonl", sweep::rows());
    let [svg, html, live, tree] = ["s.svg", "r.html", "live.json", "t.svg"].map(|name| scratch.path(name));
    let commands: [&[&str]; 5] = [
        &["sweep", &trace, "--svg", &svg],
        &["replay", &trace, "--report", &html, "--live", &live],
        &["inspect", &trace, "--svg", &tree, "--text"],
        &["explain", &trace, &trace, "--tokenizer", "bytes"],
        &["top", "--live", &live],
    ];
    for command in commands {
        let output = run_at(80, command);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_plain(&output);
    }
    for file in ["s.svg", "r.html", "t.svg"] {
        assert!(is_plain(scratch.text(file)), "{file}");
    }
    assert!(scratch.text("s.svg").contains("a\\u{1b}[31m\\nb.jsonl"));
    assert_plain(&run_at(80, &["size", "--model-config", &trace, "--gpu-memory", "1GiB"]));
    assert_plain(&run_at(80, &["convert", &trace, "--format", "vllm"]));
    assert_plain(&run_at(80, &["replay", &(trace + "\u{1b}[31m")]));
}

/// The file of `replay --live` may come from an untrusted source.
// Holds: RP15.
#[test]
fn control_characters_of_a_live_file_reach_no_terminal() {
    let scratch = Scratch::new("tools-live");
    let (trace, live) = (scratch.file("t.jsonl", sweep::rows()), scratch.path("live.json"));
    printed(&["replay", &trace, "--live", &live]);
    let state = scratch.text("live.json").replace("t.jsonl", "\\u001b[2Jt").replace("\"lru\"", "\"\\u0007\"");
    scratch.file("live.json", state);
    let output = run_at(40, &["top", "--live", &live]);
    assert_plain(&output);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("\\u{7}") && widest(&text) <= 40, "{text}");
}

// Holds: RP14.
#[test]
fn tables_fit_where_characters_take_two_columns() {
    let scratch = Scratch::new("tools-wide");
    let trace = scratch.file(&("日本語の長い名前の".repeat(6) + ".jsonl"), sweep::rows());
    for columns in [40, 80, 120] {
        for command in ["replay", "sweep", "inspect"] {
            let output = run_at(columns, &[command, &trace]);
            let text = String::from_utf8(output.stdout).expect("text");
            assert!(output.status.success() && widest(&text) <= columns, "{command} at {columns}:\n{text}");
        }
    }
}

// Holds: RP15.
#[cfg(unix)]
#[test]
fn a_file_without_an_end_is_refused() {
    let prompt = Scratch::new("tools-endless");
    let prompt = prompt.path("none");
    let commands: [(&[&str], &str); 3] = [
        (&["size", "--model-config", "/dev/zero", "--gpu-memory", "1GiB"], "more than 16.0 MiB"),
        (&["explain", "/dev/zero", &prompt], "more than 64.0 MiB"),
        (&["top", "--live", "/dev/zero"], "more than 16.0 MiB"),
    ];
    for (command, said) in commands {
        let complained = complaint(command);
        assert!(complained.contains("/dev/zero: cannot be read") && complained.contains(said), "{complained}");
    }
}

#[test]
fn a_converted_trace_goes_to_standard_output_under_the_name_of_a_dash() {
    let scratch = Scratch::new("tools-dash");
    let log = scratch.file("log.jsonl", sweep::rows());
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    command.current_dir(&scratch.0).args(["convert", &log, "--format", "mooncake", "--output", "-"]);
    let output = command.output().expect("the command runs");
    assert!(output.status.success() && output.stdout.starts_with(b"{\"timestamp\""), "{output:?}");
    assert_eq!(fs::read_dir(&scratch.0).expect("a folder").count(), 1);
}

/// Only `convert` writes to standard output under the name `-`.
#[test]
fn a_dash_is_no_file_to_be_written() {
    let scratch = Scratch::new("tools-no-dash");
    let trace = scratch.file("t.jsonl", sweep::rows());
    let commands: [&[&str]; 4] = [
        &["sweep", &trace, "--csv", "-"],
        &["replay", &trace, "--report", "-"],
        &["replay", &trace, "--live", "-"],
        &["inspect", &trace, "--svg", "-"],
    ];
    for command in commands {
        assert!(complaint(command).contains("-: not written: a file is needed here"), "{command:?}");
    }
}

// Holds: RP15.
#[test]
fn a_reader_may_close_a_converted_trace_early() {
    let scratch = Scratch::new("tools-closed");
    // The trace is larger than the buffer of a pipe.
    let log = scratch.file("log.jsonl", sweep::rows().repeat(200));
    for output in [&[][..], &["--output", "/dev/stdout"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
        command.args(["convert", &log, "--format", "mooncake"]).args(output);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(0) && !said.contains("cannot"), "{said}");
    }
}

#[test]
fn a_text_with_a_byte_order_mark_is_read() {
    let scratch = Scratch::new("tools-mark");
    let (plain, marked) = (sweep::rows(), format!("\u{feff}{}", sweep::rows()));
    let [plain, marked] = [scratch.file("plain", plain), scratch.file("marked", marked)];
    let rows = |path: &str| printed(&["convert", path, "--format", "mooncake"]);
    assert_eq!(rows(&marked), rows(&plain));
    assert!(printed(&["replay", &marked]).contains("hit tokens"));
}

#[test]
fn an_empty_picture_is_explained() {
    let scratch = Scratch::new("tools-nothing");
    let trace = scratch.file("t.jsonl", sweep::rows());
    let said = |capacity: &str, at: &str| {
        let output = run_at(80, &["inspect", &trace, "--capacity", capacity, "--at", at]);
        String::from_utf8(output.stderr).expect("text")
    };
    assert!(said("1", "3").contains("warning: nothing is cached"), "{}", said("1", "3"));
    assert!(!said("1", "0").contains("nothing is cached") && !said("100000", "3").contains("nothing is cached"));
}
