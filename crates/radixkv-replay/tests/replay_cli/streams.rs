//! Standard output and standard error that are full, closed, or not read to the end.

use std::process::{Command, Stdio};

use super::{ROWS, Scratch, run_in_shell, said};

#[test]
fn a_lost_message_changes_nothing() {
    let scratch = Scratch::new("stderr");
    let (good, bad) = (scratch.file("t.jsonl", ROWS), scratch.file("bad.jsonl", "{}"));
    for redirection in ["2> /dev/full", "2>&-"] {
        let status = |trace, options: &[&str]| {
            let output = run_in_shell("", redirection, trace, options);
            said(&output);
            (output.status.code(), output.stdout.is_empty())
        };
        assert_eq!(status(&good, &[]), (Some(0), false), "{redirection}");
        assert_eq!(status(&good, &["--json", "--verify"]), (Some(0), false), "{redirection}");
        assert_eq!(status(&bad, &[]), (Some(2), true), "{redirection}");
        assert_eq!(status(&good, &["--threads", "none"]), (Some(2), true), "{redirection}");
        assert_eq!(status(&good, &["--requests", "/dev/full"]), (Some(2), true), "{redirection}");
        assert_eq!(status(&good, &["--help"]), (Some(0), false), "{redirection}");
    }
}

// Holds: RP3.
#[test]
fn what_cannot_be_printed_is_an_error() {
    let scratch = Scratch::new("stdout");
    let trace = scratch.file("t.jsonl", ROWS);
    for options in [&[][..], &["--json"], &["--help"], &["-h"], &["--requests", "/dev/stdout"]] {
        let output = run_in_shell("", "> /dev/full", &trace, options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let said = said(&output);
        assert!(said.contains("standard output: cannot be written") || said.contains("/dev/stdout: cannot"), "{said}");
        let silent = run_in_shell("", "> /dev/full 2>&1", &trace, options);
        assert_eq!(silent.status.code(), Some(2), "{options:?}");
        let closed = run_in_shell("", ">&- 2>&-", &trace, options);
        assert_eq!(closed.status.code(), Some(0), "{options:?}");
    }
    let version =
        Command::new("sh").args(["-c", "exec \"$0\" --version > /dev/full", env!("CARGO_BIN_EXE_radixkv")]).output();
    assert_eq!(version.expect("a shell").status.code(), Some(2));
}

// Holds: RP3.
#[test]
fn a_reader_may_close_standard_output_early() {
    let scratch = Scratch::new("closed-pipe");
    let trace = scratch.file("t.jsonl", ROWS);
    for options in [&[][..], &["--json"], &["--help"], &["--requests", "/dev/stdout"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
        command.arg("replay").arg(&trace).args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command runs");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}", said(&output));
        assert!(!said(&output).contains("cannot"), "{}", said(&output));
    }
}
