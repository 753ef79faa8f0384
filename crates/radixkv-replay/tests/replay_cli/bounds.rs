//! Traces and options that need more memory or more threads than there are.

use std::{io::Read, path::Path};

use super::{ROWS, Scratch, complaint, json, run, said};

/// Numbers that may cause overflows, and texts that are not numbers.
pub(super) const EXTREMES: [&str; 14] = [
    "0",
    "1",
    "2147483647",
    "2147483648",
    "4294967294",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "",
    "1e9",
    "NaN",
];

/// Options that take a number.
pub(super) const NUMERIC: [&str; 11] = [
    "--unit",
    "--block-size",
    "--capacity",
    "--threads",
    "--longest",
    "--checks",
    "--prefill-rate",
    "--max-line-bytes",
    "--max-rows",
    "--max-request-tokens",
    "--max-tokens",
];

/// A row with one hash id.
fn row(id: u64, tokens: u64) -> String {
    format!("{{\"timestamp\": 0, \"input_length\": {tokens}, \"output_length\": 0, \"hash_ids\": [{id}]}}\n")
}

/// An archive that decompresses to `text`, followed by `bytes` times `byte`.
#[cfg(unix)]
fn archive(text: &str, byte: u8, bytes: u64) -> Vec<u8> {
    zstd::encode_all(text.as_bytes().chain(std::io::repeat(byte).take(bytes)), 1).expect("compresses")
}

#[test]
#[cfg(unix)]
fn endless_blank_lines_are_refused() {
    let scratch = Scratch::new("blank-lines");
    let trace = scratch.file("t.zst", archive("", b'\n', 20_000_000));
    let said = complaint(Some(&trace), &[]);
    assert!(said.contains("t.zst:10000001: the trace has more than 10000000 rows"), "{said}");
}

/// Runs the command with this much address space, in KiB.
#[cfg(unix)]
fn within(kib: usize, trace: &Path, options: &[&str]) -> (Option<i32>, String) {
    let output = super::run_in_shell(&format!("ulimit -v {kib};"), "", trace, options);
    (output.status.code(), said(&output))
}

// Holds: RP6.
#[test]
#[cfg(unix)]
fn an_endless_line_is_refused() {
    let scratch = Scratch::new("endless-line");
    for byte in [b' ', b'['] {
        let trace = scratch.file("t.zst", archive(ROWS, byte, 1 << 30));
        let (code, said) = within(400_000, &trace, &[]);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("t.zst:4: the line has more than 67108864 bytes; raise the limit with --max-line-bytes"),
            "{said}"
        );
    }
}

// Holds: RP6.
#[test]
fn the_limit_on_lines_can_be_raised() {
    let scratch = Scratch::new("line-bound");
    let longest = ROWS.lines().map(str::len).max().expect("rows").to_string();
    let trace = scratch.file("t.jsonl", ROWS);
    assert_eq!(json(Some(&trace), &["--max-line-bytes", &longest])["requests"], 3);
    let said = complaint(Some(&trace), &["--max-line-bytes", "80"]);
    assert!(said.contains("t.jsonl:1: the line has more than 80 bytes"), "{said}");
    let spaced = scratch.file("spaced.jsonl", format!("{ROWS}{}\n{ROWS}", " ".repeat(70 << 20)));
    assert!(complaint(Some(&spaced), &[]).contains("spaced.jsonl:4: the line has more"));
    assert_eq!(json(Some(&spaced), &["--max-line-bytes", "100000000"])["requests"], 6);
}

// Holds: RP6.
#[test]
fn rows_are_bounded() {
    let scratch = Scratch::new("rows-bound");
    let trace = scratch.file("t.jsonl", format!("{ROWS}\n\n{ROWS}"));
    let said = complaint(Some(&trace), &["--max-rows", "7"]);
    let expected = "t.jsonl:8: the trace has more than 7 rows, blank lines included; raise the limit with --max-rows";
    assert!(said.contains(expected), "{said}");
    assert_eq!(json(Some(&trace), &["--max-rows", "8"])["requests"], 6);
}

#[test]
#[cfg(unix)]
fn rows_that_do_not_fit_into_memory_are_refused() {
    let scratch = Scratch::new("rows-memory");
    let trace = scratch.file("t.zst", zstd::encode_all(row(1, 70).repeat(400_000).as_bytes(), 1).expect("compresses"));
    let (code, said) = within(60_000, &trace, &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("not enough memory"), "{said}");
}

// Holds: RP6.
#[test]
fn tokens_of_the_trace_are_bounded() {
    let scratch = Scratch::new("tokens-bound");
    // The rows have 5, 3 and 4 hash ids, then 2 prompt tokens and 1 generated one.
    let spelled = "{\"timestamp\": 9, \"input_tok_ids\": [1, 2], \"output_tok_ids\": [3]}\n";
    let trace = scratch.file("t.jsonl", format!("{ROWS}{spelled}"));
    let said = complaint(Some(&trace), &["--max-tokens", "14"]);
    assert!(
        said.contains("t.jsonl:4: the trace has more than 14 hash ids and tokens; raise the limit with --max-tokens"),
        "{said}"
    );
    assert_eq!(json(Some(&trace), &["--max-tokens", "15", "--capacity", "1", "--block-size", "8"])["requests"], 4);
}

#[test]
fn a_request_of_billions_of_tokens_is_bypassed_or_refused() {
    let scratch = Scratch::new("huge-request");
    let trace = scratch.file("t.jsonl", format!("{ROWS}{}", row(7, u64::from(u32::MAX))));
    for options in [&["--capacity", "100%"][..], &["--capacity", "100%", "--verify", "--threads", "4"]] {
        let said = complaint(Some(&trace), options);
        let expected = "row 3 (counted from 0): the request has 4294967280 tokens, more than the limit of 16777216";
        assert!(said.contains(expected) && said.contains("--max-request-tokens"), "{said}");
    }
    for options in [&["--capacity", "100"][..], &["--capacity", "100%", "--longest", "100"]] {
        let report = json(Some(&trace), &[options, &["--unit", "16"]].concat());
        assert_eq!((&report["bypassed_requests"], &report["hit_tokens"]), (&1.into(), &96.into()), "{options:?}");
    }
    let small = scratch.file("small.jsonl", ROWS);
    assert!(
        complaint(Some(&small), &["--max-request-tokens", "63", "--capacity", "100"])
            .contains("the request has 64 tokens")
    );
    assert_eq!(json(Some(&small), &["--max-request-tokens", "64", "--capacity", "100"])["requests"], 3);
}

#[test]
fn what_the_cache_keeps_is_bounded() {
    let scratch = Scratch::new("cached-bound");
    // A hundred different requests of sixteen million tokens.
    let trace = scratch.file("t.jsonl", (0..100).map(|id| row(id, 16 << 20)).collect::<String>());
    let said = complaint(Some(&trace), &["--capacity", "100%"]);
    assert!(said.contains("the cache could hold 1677721600 tokens, more than the limit of 268435456"), "{said}");
    assert!(said.contains("--max-tokens"), "{said}");
    // The keys have 90 blocks, 4 of them distinct: 64 tokens. The rows have 108 hash ids.
    let small = scratch.file("small.jsonl", ROWS.repeat(9));
    let bounded = |most: &str| run(Some(&small), &["--capacity", "100", "--unit", "16", "--max-tokens", most]);
    assert_eq!(bounded("108").status.code(), Some(0));
    assert_eq!(bounded("107").status.code(), Some(2));
}

#[test]
#[cfg(unix)]
fn the_largest_cache_can_be_verified() {
    let scratch = Scratch::new("largest-verified");
    let trace = scratch.file("t.jsonl", ROWS);
    // Takes a bit for each of 2^32 blocks, and stamps for those that were used.
    let (code, said) = within(1_500_000, &trace, &["--capacity", "4294967295", "--verify"]);
    assert_eq!(code, Some(0), "{said}");
    // Either the bits do not fit, or the byte per block that a check takes.
    for (kib, checks) in [(300_000, "0"), (1_500_000, "1")] {
        let (code, said) = within(kib, &trace, &["--capacity", "4294967295", "--checks", checks]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("not enough memory"), "{said}");
    }
}

// Holds: RP6.
#[test]
fn threads_are_bounded() {
    let scratch = Scratch::new("many-threads");
    let trace = scratch.file("t.jsonl", ROWS);
    for threads in ["1025", "100000", "18446744073709551615"] {
        assert!(complaint(Some(&trace), &["--threads", threads]).contains("at most 1024"));
    }
    assert_eq!(json(Some(&trace), &["--threads", "1024", "--verify", "--checks", "2"])["verify_errors"], 0);
}

/// Reaches the system's limit on threads, which does not apply to the superuser.
#[test]
#[cfg(unix)]
fn threads_that_the_system_refuses_are_an_error() {
    let scratch = Scratch::new("refused-threads");
    let trace = scratch.file("t.jsonl", ROWS.repeat(500));
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", "ulimit -u 2; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_radixkv"), "replay"]).arg(&trace);
    let output = shell.args(["--threads", "1000"]).output().expect("a shell");
    let said = said(&output);
    match output.status.code() {
        Some(2) => assert!(said.contains("threads were started"), "{said}"),
        code => assert_eq!(code, Some(0), "{said}"),
    }
}

#[test]
fn extreme_numbers_are_taken_or_refused() {
    let scratch = Scratch::new("extremes");
    let trace = scratch.file("t.jsonl", ROWS);
    for option in NUMERIC {
        for number in EXTREMES {
            let output = run(Some(&trace), &[&format!("{option}={number}")]);
            let said = said(&output);
            assert_ne!(output.status.code(), Some(1), "{option} {number}: {said}");
            assert_eq!(output.status.success(), !output.stdout.is_empty(), "{option} {number}: {said}");
        }
    }
    for rate in ["1e-320", "1e-7", "1e308"] {
        let output = run(Some(&trace), &["--json", "--prefill-rate", rate]);
        assert!(!String::from_utf8_lossy(&output.stdout).contains("null,\"p50\""), "{rate}: {}", said(&output));
    }
}

// Holds: RP8.
#[test]
fn hash_ids_that_differ_in_any_bit_share_nothing() {
    let scratch = Scratch::new("wide-ids");
    let ids: Vec<u64> = [5].into_iter().chain((33..64).map(|bit| 5 | 1 << bit)).collect();
    let trace = scratch.file("t.jsonl", ids.iter().map(|&id| row(id, 64)).collect::<String>());
    let report = json(Some(&trace), &["--unit", "64", "--capacity", "100%", "--verify"]);
    assert_eq!((&report["hit_tokens"], &report["inserted_blocks"]), (&0.into(), &(4 * ids.len()).into()));
    let twice = scratch.file("twice.jsonl", format!("{0}{0}", row(u64::MAX, 64)));
    assert_eq!(json(Some(&twice), &["--unit", "64", "--capacity", "100%", "--verify"])["hit_tokens"], 64);
}
