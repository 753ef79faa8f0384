//! Runs the commands that the documentation shows, as they are written.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::Scratch;

const PAGES: [&str; 6] = [
    "README.md",
    "crates/radixkv-replay/README.md",
    "crates/radixkv-replay/docs/looking.md",
    "crates/radixkv-replay/docs/replay.md",
    "crates/radixkv-replay/docs/tools.md",
    "crates/radixkv-replay/traces/README.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a checkout")
}

/// The lines of a page's shell blocks, without comments; a line that ends with a backslash is
/// joined with the next.
fn commands(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).expect("a page").replace("\\\n", "");
    let mut is_shell = false;
    let mut found = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(kind) => is_shell = kind == "sh",
            None if is_shell => found.push(line.split(" #").next().unwrap_or_default().trim().to_owned()),
            None => {}
        }
    }
    found
}

/// The arguments of a line that runs `radixkv` from the root of the repository.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let rest = line.strip_prefix("cargo run --release -- ").or_else(|| line.strip_prefix("radixkv "))?;
    Some(rest.split_whitespace().collect())
}

/// Every trace that the README names is in the repository, and its commands succeed from the root.
/// Other tests cover the seeded workloads (`replay` without a trace).
#[test]
fn the_commands_of_the_readme_run_as_written() {
    let scratch = Scratch::new("tools-pages");
    let crates = scratch.0.join("crates");
    let _ = fs::remove_file(&crates);
    // Commands write to the scratch folder, and find their inputs there.
    std::os::unix::fs::symlink(root().join("crates"), &crates).expect("a link");
    let lines = commands("README.md");
    let of_traces: Vec<_> = lines.iter().filter(|line| line.contains(".jsonl")).collect();
    assert!(!of_traces.is_empty(), "no command of a trace in {lines:?}");
    for line in of_traces {
        let arguments = arguments(line).unwrap_or_else(|| panic!("{line} does not run the command radixkv"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
        let output = command.current_dir(&scratch.0).args(&arguments).output().expect("the command runs");
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_command_that_a_page_shows_is_known() {
    let known =
        ["bench", "completions", "convert", "explain", "follow", "inspect", "region", "replay", "size", "sweep", "top"];
    let mut count = 0;
    for page in PAGES {
        for line in commands(page) {
            let Some(arguments) = arguments(&line) else { continue };
            assert!(known.contains(&arguments[0]), "{page}: {line}");
            count += 1;
        }
        let text = fs::read_to_string(root().join(page)).expect("a page");
        assert!(!text.contains("cargo install radixkv"), "{page}: no package is on a registry yet");
    }
    assert!(count > 5, "{count} commands on all pages");
}

#[cfg(not(feature = "follow"))]
#[test]
fn follow_says_how_it_is_built_where_it_is_not() {
    for arguments in [&["follow"][..], &["follow", "--help"], &["follow", "tcp://127.0.0.1:5557", "--once"]] {
        let said = super::complaint(arguments);
        assert!(said.contains("cargo install --path crates/radixkv-replay --features follow"), "{arguments:?}: {said}");
    }
}

#[cfg(not(feature = "region"))]
#[test]
fn region_says_how_it_is_built_where_it_is_not() {
    for arguments in [&["region"][..], &["region", "--help"], &["region", "inspect", "kv"]] {
        let said = super::complaint(arguments);
        assert!(said.contains("cargo install --path crates/radixkv-replay --features region"), "{arguments:?}: {said}");
    }
}
