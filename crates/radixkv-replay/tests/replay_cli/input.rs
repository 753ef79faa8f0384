//! A trace on standard input, and warnings about rows that look wrong.

use std::path::Path;

use serde_json::Value;

use super::{ROWS, Scratch, gzip, run, run_in_shell, said, zstd};

const AMPLE: [&str; 2] = ["--capacity", "100"];

// Holds: RP26.
#[test]
fn a_dash_reads_standard_input_whatever_its_compression() {
    let scratch = Scratch::new("stdin");
    for (name, bytes) in [("t", ROWS.as_bytes().to_vec()), ("t.gz", gzip(ROWS)), ("t.zst", zstd(ROWS))] {
        let file = scratch.file(name, bytes);
        let output =
            run_in_shell("", &format!("< {}", file.display()), Path::new("-"), &["--json", "--capacity", "100"]);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        assert_eq!((&report["trace"], &report["hit_tokens"]), (&"standard input".into(), &96.into()));
    }
    let piped = run_in_shell("cat trace.jsonl 2>&1 |", "", Path::new("-"), &AMPLE);
    assert!(said(&piped).contains("standard input:1: not a JSON object"), "{}", said(&piped));
    assert!(
        said(&run_in_shell("", "< /dev/null", Path::new("-"), &AMPLE)).contains("standard input: the trace is empty")
    );
}

#[test]
fn standard_input_is_never_written_to() {
    let scratch = Scratch::new("stdin-as-output");
    let trace = scratch.file("t.jsonl", ROWS);
    let options = ["--requests", trace.to_str().expect("a name")];
    let output = run_in_shell("", &format!("< {}", trace.display()), Path::new("-"), &options);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("not written: it is the trace"), "{}", said(&output));
    assert_eq!(std::fs::read_to_string(&trace).expect("the trace"), ROWS);
}

// Holds: RP26.
#[test]
fn rows_that_look_wrong_are_doubted_aloud() {
    let scratch = Scratch::new("doubts");
    let trace = scratch.file("t.jsonl", ROWS);
    let cases: [(&[&str], &str); 4] = [
        (&AMPLE, "warning: time goes backwards in 1 rows, first in line 3"),
        (&["--unit", "64"], "warning: 64 tokens per hash id are too many for 3 rows"),
        (&["--unit", "4"], "warning: 4 tokens per hash id are too few for 3 rows"),
        (&["--capacity", "1"], "warning: every request was bypassed: each is larger than the cache of 1 blocks"),
    ];
    for (options, expected) in cases {
        let output = run(Some(&trace), options);
        assert_eq!(output.status.code(), Some(0), "a warning is no error");
        assert!(said(&output).contains(expected), "{options:?}: {}", said(&output));
    }
    assert!(!said(&run(Some(&trace), &AMPLE)).contains("bypassed"));
}
