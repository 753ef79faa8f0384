//! A host tier below the cache: its options, and its part of the report.

use std::fs;

use super::*;

/// Two alternating prompts of four blocks, half a second apart.
const TURNS: &str = r#"{"timestamp": 0, "input_length": 64, "output_length": 5, "hash_ids": [1, 2, 3, 4]}
{"timestamp": 500, "input_length": 64, "output_length": 5, "hash_ids": [5, 6, 7, 8]}
{"timestamp": 1000, "input_length": 64, "output_length": 5, "hash_ids": [1, 2, 3, 4]}
{"timestamp": 1500, "input_length": 70, "output_length": 5, "hash_ids": [1, 2, 3, 4, 9]}
"#;
const SMALL: [&str; 6] = ["--unit", "16", "--capacity", "4", "--host-capacity", "4"];

#[test]
fn hits_are_told_by_tier() {
    let scratch = Scratch::new("tiers");
    let (path, csv) = (scratch.file("trace.jsonl", TURNS), scratch.path("requests.csv"));
    let csv_name = csv.to_str().expect("a name");
    let times = ["--bandwidth-host", "8MiB/s", "--latency-host", "1s", "--prefill-rate", "16"];
    let report = json(Some(&path), &[&SMALL[..], &times, &["--requests", csv_name]].concat());
    let figures = ["hit_tokens", "first_hit_tokens", "host_hit_tokens", "onboarded_bytes", "offloaded_bytes"];
    let found = figures.map(|figure| report[figure].as_u64().unwrap_or_else(|| panic!("{figure} of {report}")));
    assert_eq!(found, [128, 64, 64, 64 << 17, 128 << 17]);
    // The copy takes a second for 8 MiB and a second of latency, instead of 64 tokens of prefill.
    assert_eq!((&report["onboard_seconds"], &report["saved_seconds"]), (&2.0.into(), &2.0.into()));
    assert_eq!(report["ttft"]["cached"]["p99"], 4.0);
    assert_eq!((&report["tier_mode"], &report["route"]), (&"exclusive".into(), &"round-robin".into()));
    assert_eq!(report["leftovers"][0]["blocks"], 4);
    let expected = "request,prompt_tokens,prefix_hit_len,computed_tokens,timestamp,namespace,miss_reason,queue_wait,\
                    device_hit,host_hit,remote_hit\n\
                    0,64,0,64,0,,new,,0,0,0\n1,64,0,64,500,,new,,0,0,0\n2,64,64,0,1000,,,,0,64,0\n\
                    3,70,64,6,1500,,partial,,64,0,0\n";
    assert_eq!(fs::read_to_string(&csv).expect("the file"), expected);
}

/// Three prompts of four blocks, half a second apart; then the first one again.
const THREE: &str = r#"{"timestamp": 0, "input_length": 64, "output_length": 5, "hash_ids": [1, 2, 3, 4]}
{"timestamp": 500, "input_length": 64, "output_length": 5, "hash_ids": [5, 6, 7, 8]}
{"timestamp": 1000, "input_length": 64, "output_length": 5, "hash_ids": [11, 12, 13, 14]}
{"timestamp": 1500, "input_length": 64, "output_length": 5, "hash_ids": [1, 2, 3, 4]}
"#;

#[test]
fn hits_in_a_remote_tier_are_told() {
    let scratch = Scratch::new("tiers-remote");
    let (path, csv) = (scratch.file("trace.jsonl", THREE), scratch.path("requests.csv"));
    let remote = ["--remote-capacity", "300%", "--bandwidth-remote", "8MiB/s", "--latency-remote", "1s"];
    let times = ["--bandwidth-host", "4MiB/s", "--latency-host", "2s", "--prefill-rate", "4", "--log"];
    let options = [&SMALL[..], &remote, &times].concat();
    let output = run(Some(&path), &[&options[..], &["--json", "--requests", csv.to_str().expect("a name")]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let figures =
        ["remote_capacity", "remote_hit_tokens", "host_hit_tokens", "remote_put_bytes", "remote_fetched_bytes"];
    let found = figures.map(|figure| report[figure].as_u64().unwrap_or_else(|| panic!("{figure} of {report}")));
    assert_eq!(found, [36, 64, 0, 128 << 17, 64 << 17]);
    // 8 MiB are copied to the host, and then to the device, instead of 64 tokens of prefill.
    let seconds = ["fetch_seconds", "onboard_seconds", "saved_seconds"].map(|figure| report[figure].as_f64());
    assert_eq!(seconds, [Some(2.0), Some(6.0), Some(10.0)]);
    let rows = fs::read_to_string(&csv).expect("the file");
    assert_eq!(rows.lines().last(), Some("3,64,64,0,1500,,,,0,0,64"));
    let line =
        "t=1s requests=2 prompt_t=128 (hits included) prefix_hit=50% (device=0%, host=0%, remote=50%) prefix_pool=4";
    assert_eq!(said(&output).lines().last(), Some(line));
    let table = String::from_utf8(run(Some(&path), &options).stdout).expect("text");
    for part in ["36 blocks of 16 tokens", "64 (25.00 %)", "16.0 MiB / 8.0 MiB", "prefill saved by both tiers"] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
}

// Holds: HT6.
#[test]
fn a_tier_smaller_than_a_request_is_said_at_the_start() {
    let scratch = Scratch::new("tiers-small");
    let path = scratch.file("trace.jsonl", THREE);
    let small = ["--unit", "16", "--capacity", "3", "--host-capacity", "3", "--remote-capacity", "1"];
    let said = said(&run(Some(&path), &small));
    let device = "radixkv: warning: the device holds 3 blocks of 16 tokens, the largest request has 4: it is bypassed";
    assert!(said.starts_with(device), "{said}");
    let small = ["--unit", "16", "--capacity", "4", "--host-capacity", "3", "--remote-capacity", "1"];
    let said = super::said(&run(Some(&path), &small));
    for tier in ["the host tier holds 3 blocks of 16 tokens", "the remote tier holds 1 blocks of 16 tokens"] {
        assert!(said.contains(&format!("{tier}, the largest request has 4")), "{said}");
    }
}

#[test]
fn each_second_of_the_trace_has_a_line() {
    let scratch = Scratch::new("tiers-log");
    let path = scratch.file("trace.jsonl", TURNS);
    let said = said(&run(Some(&path), &[&SMALL[..], &["--log"]].concat()));
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("t=")).collect();
    assert_eq!(
        lines,
        [
            "t=0s requests=2 prompt_t=128 (hits included) prefix_hit=0% (device=0%, host=0%) prefix_pool=4",
            "t=1s requests=2 prompt_t=134 (hits included) prefix_hit=96% (device=48%, host=48%) prefix_pool=4",
        ]
    );
}

#[test]
fn the_table_tells_of_the_tier() {
    let scratch = Scratch::new("tiers-table");
    let path = scratch.file("trace.jsonl", TURNS);
    let shared = ["--tier-mode", "shared", "--instances", "2", "--route", "prefix", "--write-policy", "through"];
    let output = run(Some(&path), &[&SMALL[..], &shared, &["--host-kind", "cxl"]].concat());
    let table = String::from_utf8(output.stdout).expect("text");
    for part in ["cxl, shared, write-through", "4 blocks of 16 tokens", "2, prefix", "the default namespace: 4 blocks"]
    {
        assert!(table.contains(part), "{part} in\n{table}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_before_the_replay() {
    let scratch = Scratch::new("tiers-refused");
    let path = scratch.file("trace.jsonl", TURNS);
    let refused = |options: &[&str]| complaint(Some(&path), &[&SMALL[..], options].concat());
    let sizes = refused(&["--host-block-size", "3"]);
    assert!(sizes.contains("device blocks of 16 tokens and host blocks of 3"), "{sizes}");
    assert!(refused(&["--host-block-size", "32"]).contains("exclusive tiers need host blocks that are no larger"));
    assert!(refused(&["--write-policy", "through"]).contains("write-through keeps each block in both tiers"));
    assert!(refused(&["--threads", "2"]).contains("a replay over a host tier needs one thread"));
    assert!(refused(&["--bandwidth-host", "fast"]).contains("such as 50GB/s"));
    assert!(refused(&["--latency-host", "5"]).contains("such as 5us"));
    assert!(refused(&["--instances", "0"]).contains("must be more than zero"));
    assert!(refused(&["--instances", "2000"]).contains("2000 instances requested, a replay has at most 1024"));
    assert!(refused(&["--remote-capacity", "0"]).contains("zero"));
    assert!(refused(&["--remote-capacity", "4", "--bandwidth-remote", "0B/s"]).contains("such as 50GB/s"));
    assert!(refused(&["--remote-capacity", "4", "--latency-remote", "5"]).contains("such as 5us"));
    assert!(refused(&["--latency-remote", "5us"]).contains("--remote-capacity"));
    let alone = complaint(Some(&path), &["--instances", "2"]);
    assert!(alone.contains("--host-capacity"), "{alone}");
    let alone = complaint(Some(&path), &["--remote-capacity", "4"]);
    assert!(alone.contains("--host-capacity"), "{alone}");
}
