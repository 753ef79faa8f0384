//! The command `radixkv replay`: what it accepts, its error messages, and its output.
#![cfg(feature = "cli")]

#[path = "replay_cli/bounds.rs"]
mod bounds;
#[cfg(unix)]
#[path = "replay_cli/files.rs"]
mod files;
#[cfg(unix)]
#[path = "replay_cli/input.rs"]
mod input;
#[path = "replay_cli/metrics.rs"]
mod metrics;
#[path = "replay_cli/random.rs"]
mod random;
#[path = "replay_cli/screen.rs"]
mod screen;
#[cfg(unix)]
#[path = "replay_cli/streams.rs"]
mod streams;
#[path = "replay_cli/tiers.rs"]
mod tiers;

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

const ROWS: &str = r#"{"timestamp": 0, "input_length": 70, "output_length": 5, "hash_ids": [1, 2, 3, 4, 5]}
{"timestamp": 3, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 9]}
{"timestamp": 2, "input_length": 64, "output_length": 5, "hash_ids": [1, 2, 3, 4]}
"#;

/// A folder that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(trace: Option<&Path>, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    command.arg("replay").args(trace).args(options).output().expect("the command runs")
}

fn json(trace: Option<&Path>, options: &[&str]) -> Value {
    let output = run(trace, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Runs the command in a shell that first sets a limit or redirects a stream.
#[cfg(unix)]
fn run_in_shell(preparation: &str, redirection: &str, trace: &Path, options: &[&str]) -> Output {
    let script = format!("{preparation} exec \"$@\" {redirection}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_radixkv"), "replay"]).arg(trace).args(options);
    shell.output().expect("a shell")
}

/// The messages of a run, which must not have ended by a signal or a panic.
fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0..=2)), "{}: {said}", output.status);
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// The message of a run that exited with 2 and printed nothing else.
fn complaint(trace: Option<&Path>, options: &[&str]) -> String {
    let output = run(trace, options);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
    assert!(output.stdout.is_empty());
    assert!(!said.contains("panicked"), "{said}");
    said
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).expect("compresses");
    encoder.finish().expect("compresses")
}

fn zstd(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 3).expect("compresses")
}

#[test]
fn the_version_is_that_of_the_command_and_not_of_its_package() {
    let output = Command::new(env!("CARGO_BIN_EXE_radixkv")).arg("--version").output().expect("the command runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("radixkv {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn compression_is_known_by_content_not_by_name() {
    let scratch = Scratch::new("compression");
    let digests: BTreeSet<String> = [
        scratch.file("plain.zst", ROWS),
        scratch.file("gzip.jsonl", gzip(ROWS)),
        scratch.file("zstd.gz", zstd(ROWS)),
        scratch.file("two-frames", [zstd(&ROWS[..100]), zstd(&ROWS[100..])].concat()),
        scratch.file("two-members", [gzip(&ROWS[..100]), gzip(&ROWS[100..])].concat()),
    ]
    .iter()
    .map(|path| json(Some(path), &["--capacity", "100"])["match_digest"].to_string())
    .collect();
    assert_eq!(digests.len(), 1);
}

#[test]
fn the_report_has_the_keys_of_the_oracle_and_more() {
    let scratch = Scratch::new("keys");
    let path = scratch.file("trace.jsonl", ROWS);
    let report = json(Some(&path), &["--capacity", "100", "--verify", "--prefill-rate", "1000"]);
    let keys = "policy granularity flavor capacity block_size outputs requests prompt_tokens hit_tokens hit_rate \
                hit_tokens_capped hit_rate_capped inserted_blocks evicted_blocks peak_blocks final_blocks \
                bypassed_requests bypassed_tokens match_digest seconds tokens_per_second match_ns insert_ns evict_ns \
                index_bytes index_bytes_peak index_ratio_peak threads unit trace verify_errors ttft";
    for key in keys.split_whitespace() {
        assert!(report.get(key).is_some(), "{key} is missing in {report}");
    }
    for operation in ["match_ns", "insert_ns", "evict_ns"] {
        let keys: Vec<&String> = report[operation].as_object().expect("percentiles").keys().collect();
        assert_eq!(keys, ["p50", "p99", "p999"]);
    }
    // Served in the order of time: the first inserts 4 blocks, the second hits all 4, the third 2.
    assert_eq!(report["hit_tokens"], 96);
    assert_eq!(report["hit_tokens_capped"], 80);
    assert_eq!((&report["inserted_blocks"], &report["final_blocks"]), (&4.into(), &4.into()));
    assert_eq!((&report["unit"], &report["verify_errors"]), (&16.into(), &0.into()));
    assert_eq!(report["trace"], path.display().to_string());
}

#[test]
fn a_given_unit_is_taken_and_an_inferred_one_is_printed() {
    let scratch = Scratch::new("unit");
    let path = scratch.file("trace.jsonl", ROWS);
    let said = |options: &[&str]| String::from_utf8_lossy(&run(Some(&path), options).stderr).into_owned();
    assert!(said(&[]).contains("16 tokens per hash id, inferred"));
    assert!(!said(&["--unit", "14"]).contains("per hash id"));
    assert_eq!(json(Some(&path), &["--unit", "14", "--capacity", "100"])["unit"], 14);
}

#[test]
fn the_table_has_the_same_figures() {
    let scratch = Scratch::new("table");
    let path = scratch.file("trace.jsonl", ROWS);
    let output = run(Some(&path), &["--capacity", "100"]);
    let table = String::from_utf8(output.stdout).expect("text");
    assert!(table.contains("96 (55.17 %)"), "{table}");
    let widths: BTreeSet<usize> = table.lines().map(|line| line.chars().count()).collect();
    assert_eq!(widths.len(), 1, "lines are equally wide:\n{table}");
}

#[test]
fn requests_are_written_in_replay_order() {
    let scratch = Scratch::new("requests");
    let (path, csv) = (scratch.file("trace.jsonl", ROWS), scratch.path("requests.csv"));
    json(Some(&path), &["--capacity", "4", "--longest", "4", "--requests", csv.to_str().expect("a name")]);
    let written = fs::read_to_string(&csv).expect("the file");
    let expected = "request,prompt_tokens,prefix_hit_len,computed_tokens,timestamp,namespace,miss_reason,queue_wait\n\
                    0,70,0,70,0,,new,\n2,64,64,0,2,,,\n1,40,32,8,3,,partial,\n";
    assert_eq!(written, expected);
    let in_time = ["--capacity", "4", "--service", "35,5,1", "--time-unit", "s", "--requests"];
    json(Some(&path), &[&in_time[..], &[csv.to_str().expect("a name")]].concat());
    let written = fs::read_to_string(&csv).expect("the file");
    let waits: Vec<_> = written.lines().skip(1).map(|line| line.rsplit(',').next().expect("a field")).collect();
    // The first takes two seconds of prefill and one of decode; the second arrives after two.
    assert_eq!(waits[..2], ["0", "1"], "{written}");
}

#[test]
fn large_requests_are_bypassed() {
    let scratch = Scratch::new("bypass");
    let path = scratch.file("trace.jsonl", ROWS);
    let report = json(Some(&path), &["--capacity", "100", "--longest", "3"]);
    assert_eq!((&report["bypassed_requests"], &report["bypassed_tokens"]), (&2.into(), &134.into()));
    assert_eq!(json(Some(&path), &["--capacity", "3"])["match_digest"], report["match_digest"]);
}

#[test]
fn the_naive_cache_hits_nothing() {
    let scratch = Scratch::new("naive");
    let path = scratch.file("trace.jsonl", ROWS);
    let report = json(Some(&path), &["--cache", "naive", "--capacity", "100"]);
    for key in ["hit_tokens", "inserted_blocks", "evicted_blocks", "final_blocks", "bypassed_requests"] {
        assert_eq!(report[key], 0, "{key}");
    }
}

// Holds: RP7.
#[test]
fn malformed_rows_are_named_by_file_line_and_field() {
    let scratch = Scratch::new("rows");
    let bad_rows = [
        (r#"{"timestamp": 0, "input_length": -5, "output_length": 1, "hash_ids": [1]}"#, "input_length"),
        (r#"{"timestamp": 0, "input_length": 2.5, "output_length": 1, "hash_ids": [1]}"#, "input_length"),
        (r#"{"timestamp": 0, "input_length": 5000000000, "output_length": 1, "hash_ids": [1]}"#, "input_length"),
        (r#"{"timestamp": 0, "input_length": 5, "output_length": "1", "hash_ids": [1]}"#, "output_length"),
        (r#"{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": 1}"#, "hash_ids"),
        (r#"{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, "2"]}"#, "hash_ids"),
        (r#"{"timestamp": 0, "input_length": 5, "output_length": 1}"#, "hash_ids"),
        (r#"{"timestamp": 0, "input_length": 2, "output_length": 1, "hash_ids": [1, 2, 3]}"#, "hash_ids"),
        (r#"{"timestamp": null, "input_length": 5, "output_length": 1, "hash_ids": [1]}"#, "timestamp"),
        (r#"{"timestamp": 0, "input_length": 5, "output_length": 1, "input_tok_ids": [1, 2]}"#, "input_length"),
        (r#"{"timestamp": 0, "output_length": 1, "input_tok_ids": [1, 4294967296]}"#, "input_tok_ids"),
        (r#"{"timestamp": 0, "input_length": 5, "output_le"#, "the row ends early"),
        ("timestamp,input_length", "not a JSON object"),
    ];
    for (row, named) in bad_rows {
        let path = scratch.file("bad.jsonl", format!("{ROWS}{row}\n"));
        let said = complaint(Some(&path), &[]);
        assert!(said.contains("bad.jsonl:4: ") && said.contains(named), "{row}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn unreadable_traces_are_named() {
    let scratch = Scratch::new("unreadable");
    let rows = ROWS.repeat(1000);
    let (gzip, zstd) = (gzip(&rows), zstd(&rows));
    let cases = [
        (scratch.path("missing.jsonl"), "missing.jsonl: cannot be opened"),
        (scratch.file("cut.zst", &zstd[..zstd.len() - 9]), "the archive is truncated"),
        (scratch.file("cut.gz", &gzip[..gzip.len() - 9]), "the archive is truncated"),
        (scratch.file("empty.jsonl", ""), "empty.jsonl: the trace is empty"),
        (scratch.file("blank.jsonl", "\n  \n"), "blank.jsonl: the trace is empty"),
        (scratch.0.clone(), "unreadable: cannot be"),
    ];
    for (path, expected) in cases {
        let said = complaint(Some(&path), &[]);
        assert!(said.contains(expected), "{said}");
        assert!(said.contains(path.to_str().expect("a name")), "{said}");
    }
    let csv = scratch.path("no/such/folder.csv");
    let said = complaint(Some(&scratch.file("t.jsonl", ROWS)), &["--requests", csv.to_str().expect("a name")]);
    assert!(said.contains("folder.csv: cannot be written"), "{said}");
}

#[test]
fn impossible_options_are_refused() {
    let scratch = Scratch::new("options");
    let path = scratch.file("trace.jsonl", ROWS);
    let cases: [(&[&str], &str); 10] = [
        (&["--policy", "best"], "best"),
        (&["--capacity", "0"], "more than zero"),
        (&["--capacity", "0%"], "more than zero"),
        (&["--capacity", "lots"], "percentage"),
        (&["--block-size", "0"], "more than zero"),
        (&["--threads", "0"], "more than zero"),
        (&["--unit", "0"], "more than zero"),
        (&["--cache", "flat"], "radix"),
        (&["--eviction", "never"], "inline"),
        (&["--prefill-rate", "0"], "above zero"),
    ];
    for (options, expected) in cases {
        let said = complaint(Some(&path), options);
        assert!(said.contains(expected), "{options:?}: {said}");
    }
}

// Holds: RP2.
#[test]
fn the_built_in_workload_is_the_same_every_time_and_as_predicted() {
    let fingerprint = |report: &Value| -> Vec<(String, String)> {
        let classes = report["classes"].as_array().expect("classes");
        classes.iter().map(|class| (class["class"].to_string(), class["match_digest"].to_string())).collect()
    };
    let report = json(None, &[]);
    assert_eq!(fingerprint(&report), fingerprint(&json(None, &[])));
    for class in report["classes"].as_array().expect("classes") {
        let rate = class["hit_rate"].as_f64().expect("a rate");
        let [low, high] = [0, 1].map(|end| class["band"][end].as_f64().expect("a band"));
        assert!((low - 1e-6..=high + 1e-6).contains(&rate), "{}: {rate} is not in {low}..{high}", class["class"]);
        assert_eq!(class["evicted_blocks"], 0);
    }
}

/// Four requests with two blocks of 16 tokens each that generate two tokens; the last repeats the
/// first.
fn returning(priorities: [&str; 4]) -> String {
    let ids = ["[1, 2]", "[3, 4]", "[5, 6]", "[1, 2]"];
    let row = |(at, (ids, priority))| {
        let lengths = "\"input_length\": 32, \"output_length\": 2";
        format!("{{\"timestamp\": {at}, {lengths}, \"hash_ids\": {ids}, \"slo\": {priority}}}\n")
    };
    ids.into_iter().zip(priorities).enumerate().map(row).collect()
}

const SMALL: [&str; 4] = ["--unit", "16", "--capacity", "4"];

// Holds: RP9.
#[test]
fn priorities_come_from_the_field_that_is_named() {
    let scratch = Scratch::new("priorities");
    let trace = scratch.file("t.jsonl", returning(["90", "10", "50", "90"]));
    let hits = |options: &[&str]| json(Some(&trace), &[&SMALL[..], options].concat())["hit_tokens"].clone();
    // The third request evicts the blocks of the first, or those with the lowest priority.
    assert_eq!(hits(&["--policy", "lru", "--priority-from", "slo"]), 0);
    assert_eq!(hits(&["--policy", "priority", "--priority-from", "slo"]), 32);
    assert_eq!(hits(&["--policy", "priority"]), 0, "without priorities");
    let report = json(Some(&trace), &["--priority-from", "slo"]);
    assert_eq!(report["priority_from"], "slo");
    assert!(json(Some(&trace), &[]).get("priority_from").is_none());
    let table = run(Some(&trace), &["--priority-from", "slo"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("priority from"), "{table:?}");
}

#[test]
fn what_is_no_priority_is_named_with_its_line() {
    let scratch = Scratch::new("no-priority");
    let said = |second: &str| {
        let trace = scratch.file("t.jsonl", returning(["100", second, "0", "1"]));
        complaint(Some(&trace), &["--priority-from", "slo"])
    };
    for wrong in ["9223372036854775808", "0.5", "\"high\"", "null", "[1]"] {
        assert!(
            said(wrong).contains("t.jsonl:2: the field slo is not an integer of 64 bits"),
            "{wrong}: {}",
            said(wrong)
        );
    }
    let trace = scratch.file("t.jsonl", returning(["1", "1", "1", "1"]));
    assert!(complaint(Some(&trace), &["--priority-from", "sla"]).contains("t.jsonl:1: the field sla is missing"));
    assert!(complaint(None, &["--priority-from", "slo"]).contains("<TRACE>"));
}

// Holds: RP9.
#[test]
fn leases_are_held_for_as_many_steps_as_tokens_are_generated() {
    let scratch = Scratch::new("hold");
    let rows = returning(["1"; 4]);
    let report = |rows: &str, capacity, options: &[&str]| {
        let trace = scratch.file("t.jsonl", rows);
        let report = json(Some(&trace), &[&["--unit", "16", "--capacity", capacity], options].concat());
        ["hit_tokens", "given_up_leases"].map(|key| report[key].as_u64().expect("a number"))
    };
    let hold = ["--hold", "--verify", "--checks", "1"];
    // The first runs while the second and the third are served, so they do not evict its blocks.
    let only_the_first = rows.replace("th\": 2", "th\": 0").replacen("th\": 0", "th\": 2", 1);
    assert_eq!(report(&only_the_first, "4", &hold), [32, 0]);
    assert_eq!(report(&only_the_first, "4", &[]), [0, 0]);
    // All run: the third request drops the lease of the first, which would end first, and the
    // fourth that of the second.
    assert_eq!(report(&rows, "4", &hold), [0, 2]);
    assert_eq!(report(&rows, "6", &hold), [32, 0]);
    let table = run(Some(&scratch.path("t.jsonl")), &["--hold"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("held for output_length steps"), "{table:?}");
}

// Holds: AG3.
#[test]
fn held_leases_and_priorities_keep_their_blocks_on_many_threads() {
    let scratch = Scratch::new("held-threads");
    let row = |i: usize| {
        let (a, b, c) = (i % 7, 10 + i % 31, 100 + i);
        let (outputs, slo) = (i * 13 % 60, i * 7 % 101);
        let lengths = format!("\"input_length\": 96, \"output_length\": {outputs}");
        format!("{{\"timestamp\": {i}, {lengths}, \"hash_ids\": [{a}, {b}, {c}], \"slo\": {slo}}}\n")
    };
    let trace = scratch.file("t.jsonl", (0..600).map(row).collect::<String>());
    let options = ["--unit", "32", "--capacity", "120", "--policy", "priority", "--priority-from", "slo", "--hold"];
    for more in [&["--threads", "1"][..], &["--threads", "3"], &["--threads", "3", "--eviction", "background"]] {
        let report = json(Some(&trace), &[&options[..], more, &["--verify", "--checks", "4"]].concat());
        assert_eq!((&report["verify_errors"], &report["requests"]), (&0.into(), &600.into()), "{more:?}");
        assert!(report["hit_tokens"].as_u64() > Some(0) && report["evicted_blocks"].as_u64() > Some(0), "{more:?}");
    }
    let digest = || json(Some(&trace), &options)["match_digest"].clone();
    assert_eq!(digest(), digest(), "one thread is a function of the trace");
}
