//! Thousands of hostile command lines: the command always exits with a documented status, does not
//! panic, does not change its input and leaves no temporary file.
//!
//! `RUNS` and `SEED` set their number and the random seed; a failure prints the command line.

use std::{env, fs, path::Path, process::Output};

use fastrand::Rng;
use radixkv::PolicyKind;

use super::{
    ROWS, Scratch,
    bounds::{EXTREMES, NUMERIC},
    gzip, run, zstd,
};

const RUNS: usize = 1000;

const FLAGS: [&str; 5] = ["--outputs", "--verify", "--hold", "--json", "--help"];
/// Options with accepted values, and with values that are mostly refused.
const CHOICES: [(&str, &[&str], &[&str]); 7] = [
    ("--cache", &["radix", "naive"], &["flat"]),
    ("--eviction", &["inline", "background"], &["never"]),
    ("--priority-from", &["slo"], &["hash_ids", "timestamp", "sla", ""]),
    ("--service", &["100,10,2", "1e-6,1e300,1", "1e300,1e-6,99"], &["0,1,1", "1,1", "1,1,1e9", ",,"]),
    ("--warm-up", &["0", "1", "1s", "0.5s"], &["-1", "s", "nans", "1e999s"]),
    ("--time-unit", &["s", "ms", "us"], &["h", ""]),
    ("--capacity", &["50%", "100%", "0.0001%", "3", "12"], &["1e300%", "-1%", "nan%"]),
];
const UNSOUND_OUTPUTS: [&str; 6] = ["t.jsonl", "./t.jsonl", "link", "none/r.csv", ".", "/dev/full"];
/// Numbers that most runs accept.
const USUAL: [&str; 6] = ["1", "2", "3", "16", "100", "512"];
const VALUES: [&str; 16] = [
    "0",
    "1",
    "70",
    "100000",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "17592186044417",
    "-7",
    "0.5",
    "1e999",
    "null",
    "\"7\"",
    "[1, 2, [3, {}]]",
    "{\"slo\": 1}",
];

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

fn options(rng: &mut Rng, scratch: &Scratch) -> Vec<String> {
    let mut options = Vec::new();
    for flag in FLAGS.iter().filter(|&&flag| rng.u8(..) < if flag == "--help" { 2 } else { 60 }) {
        options.push((*flag).to_owned());
    }
    let policies: Vec<_> = PolicyKind::ALL.iter().map(|policy| policy.name()).collect();
    let policy: (&str, &[&str], &[&str]) = ("--policy", &policies, &["best", ""]);
    for (option, sound, unsound) in [policy].into_iter().chain(CHOICES) {
        match rng.u8(..30) {
            0 => options.push(format!("{option}={}", pick(rng, unsound))),
            1..10 => options.push(format!("{option}={}", pick(rng, sound))),
            _ => {}
        }
    }
    for option in NUMERIC {
        match rng.u8(..50) {
            0 => options.push(format!("{option}={}", pick(rng, &EXTREMES))),
            1..4 => options.push(format!("{option}={}", pick(rng, &USUAL))),
            _ => {}
        }
    }
    if rng.bool() {
        let outputs = if rng.u8(..4) == 0 { &UNSOUND_OUTPUTS[..] } else { &["r.csv"] };
        let option = if rng.bool() { "--requests" } else { "--report" };
        options.push(format!("{option}={}", scratch.0.join(pick(rng, outputs)).display()));
    }
    options
}

/// A trace whose rows are valid, or have a wrong value in one field.
fn trace(rng: &mut Rng) -> Vec<u8> {
    let mut text = if rng.bool() { ROWS.to_owned() } else { String::new() };
    for at in 0..rng.usize(..20) {
        let length = rng.u32(1..200);
        let ids: Vec<u64> = (0..rng.u32(..=length.div_ceil(16))).map(|_| rng.u64(..9) << rng.u32(..60)).collect();
        let mut fields = [
            format!("\"timestamp\": {at}"),
            format!("\"input_length\": {length}"),
            format!("\"output_length\": {}", rng.u8(..)),
            format!("\"hash_ids\": {ids:?}"),
            format!("\"slo\": {}", rng.u8(..=100)),
        ];
        if rng.u8(..60) == 0 {
            let field = rng.usize(..fields.len());
            let (name, _) = fields[field].split_once(':').expect("a field");
            fields[field] = format!("{name}: {}", pick(rng, &VALUES));
        }
        text.push_str(&format!("{{{}}}\n", fields.join(", ")));
    }
    let mut bytes = match rng.u8(..4) {
        0 => gzip(&text),
        1 => zstd(&text),
        _ => text.into_bytes(),
    };
    match rng.u8(..20) {
        0 => bytes.truncate(rng.usize(..=bytes.len())),
        1 if !bytes.is_empty() => {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        _ => {}
    }
    bytes
}

fn check(output: &Output, scratch: &Scratch, path: &Path, bytes: &[u8], line: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 2)), "{line}: {}: {said}", output.status);
    assert!(!said.contains("panicked"), "{line}: {said}");
    assert_eq!(output.status.success(), !output.stdout.is_empty(), "{line}: {said}");
    assert!(output.status.success() || !said.is_empty(), "{line}: refused without a message");
    assert!(fs::read(path).expect("the trace") == bytes, "{line}: the trace has changed");
    for entry in fs::read_dir(&scratch.0).expect("a folder") {
        let name = entry.expect("an entry").file_name();
        assert!(["t.jsonl", "r.csv", "link"].iter().any(|known| name == *known), "{line}: {name:?} was left");
    }
}

// Holds: RP3.
#[test]
fn whatever_is_asked_for_the_command_ends_well() {
    let number = |name: &str, default| env::var(name).map_or(default, |number| number.parse().expect("a number"));
    let (runs, seed) = (number("RUNS", RUNS), number("SEED", 1));
    let scratch = Scratch::new("random");
    let mut succeeded = 0;
    for run_number in 0..runs {
        let mut rng = Rng::with_seed(seed as u64 * 1_000_003 + run_number as u64);
        let bytes = trace(&mut rng);
        let path = scratch.file("t.jsonl", &bytes);
        if run_number == 0 {
            fs::hard_link(&path, scratch.path("link")).expect("a link");
        }
        let options = options(&mut rng, &scratch);
        let output = run(Some(&path), &options.iter().map(String::as_str).collect::<Vec<_>>());
        let line = format!("run {run_number} of seed {seed}: {options:?}");
        check(&output, &scratch, &path, &bytes, &line);
        succeeded += usize::from(output.status.success());
    }
    assert!(succeeded * 5 >= runs, "only {succeeded} of {runs} printed a report");
}
