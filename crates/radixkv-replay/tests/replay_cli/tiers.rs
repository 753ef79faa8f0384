//! A host tier below the cache: its options, and what is said of it.

use std::fs;

use super::*;

/// Two prompts of four blocks in turn, half a second apart.
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
    // A second and 8 MiB up, instead of 64 tokens of prefill.
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
    assert!(sizes.contains("the device's block size (16 tokens) and the host's (3) are not multiples"), "{sizes}");
    assert!(refused(&["--host-block-size", "32"]).contains("exclusive tiers need host blocks that are no larger"));
    assert!(refused(&["--write-policy", "through"]).contains("write-through keeps each block in two places"));
    assert!(refused(&["--threads", "2"]).contains("a replay over a host tier has one thread"));
    assert!(refused(&["--bandwidth-host", "fast"]).contains("such as 50GB/s"));
    assert!(refused(&["--latency-host", "5"]).contains("such as 5us"));
    assert!(refused(&["--instances", "0"]).contains("must be more than zero"));
    let alone = complaint(Some(&path), &["--instances", "2"]);
    assert!(alone.contains("--host-capacity"), "{alone}");
}
