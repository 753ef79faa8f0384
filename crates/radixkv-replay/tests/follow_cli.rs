//! The command `radixkv follow`: what it shows, how it ends, and what it refuses.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use radixkv_events::{Change, HashScheme, Holdings, Publisher, Recorder, Scope, Snapshot, now};
use serde_json::Value;

const ANY: &str = "tcp://127.0.0.1:0";

/// A worker that holds three blocks of two tokens, and can say so.
fn worker() -> Publisher {
    let mut recorder = Recorder::builder(2, HashScheme::xxh3()).build();
    let scope = &Scope::default();
    let (blocks, tokens) = (&[0, 1, 2], &[1, 2, 3, 4, 5, 6]);
    let change = Change::Stored { tier: 0, scope, parent: None, blocks, tokens, bigrams: false };
    recorder.record(&change).unwrap();
    let numbered = recorder.take(now()).unwrap();
    let mut holdings = Holdings::default();
    numbered.batch.events.iter().for_each(|event| holdings.apply(event).unwrap());
    let (epoch, events) = (Some(recorder.epoch()), holdings.snapshot());
    let builder = Publisher::builder(ANY).replay(ANY);
    let publisher = builder.snapshot(move || Snapshot { next: 1, epoch, events: events.clone() }).build().unwrap();
    publisher.publish(numbered).unwrap();
    publisher
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    command.arg("follow").args(arguments).env("COLUMNS", "80").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn what_a_worker_holds_is_shown_once() {
    let publisher = worker();
    let (endpoint, replay) = (publisher.endpoint(), publisher.replay_endpoint().unwrap());
    let shown = run(&[endpoint, "--replay", replay, "--once"]);
    assert!(shown.status.success(), "{shown:?}");
    let table = text(&shown.stdout);
    assert!(table.contains(endpoint) && table.contains("complete") && table.contains("GPU"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");

    let shown = run(&[endpoint, "--replay", replay, "--once", "--json", "--block-size", "2"]);
    let seen: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let worker = &seen["workers"][0];
    assert_eq!((&worker["blocks"], &worker["tokens"], &worker["complete"]), (&3.into(), &6.into(), &true.into()));
    assert_eq!(worker["media"][0]["medium"], "GPU");
}

#[test]
fn it_ends_after_the_time_it_is_given() {
    let publisher = worker();
    let shown = run(&[publisher.endpoint(), "--json", "--every", "0.1", "--for", "0.5"]);
    assert!(shown.status.success(), "{shown:?}");
    let lines = text(&shown.stdout);
    assert!(lines.lines().count() >= 2, "{lines}");
    lines.lines().for_each(|line| assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}"));
}

/// What it printed before is whole, and its status is no fault.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_it_cleanly() {
    let publisher = worker();
    let mut child: Child = command(&[publisher.endpoint(), "--json", "--every", "0.05"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with('{'));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert!(child.wait().unwrap().success());
    lines.for_each(|line| assert!(line.unwrap().ends_with('}')));
}

#[test]
fn what_cannot_be_followed_is_said() {
    let publisher = worker();
    let (endpoint, replay) = (publisher.endpoint(), publisher.replay_endpoint().unwrap());
    let refusals = [
        (vec!["host:5557", "--once"], "\"host:5557\" is no endpoint, such as tcp://127.0.0.1:5557"),
        (vec![endpoint, endpoint, "--replay", replay], "1 --replay for 2 endpoints; give one for each, or none"),
        (vec![endpoint, "--replay", replay, "--block-size", "16"], "blocks of 2 tokens where 16 are expected"),
    ];
    for (arguments, message) in refusals {
        let refused = run(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(message), "{}", text(&refused.stderr));
    }
}

/// Events change nothing of a replay, whoever reads them.
#[test]
fn a_replay_makes_events_and_is_the_same() {
    let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join("a_replay_makes_events.jsonl");
    let row = |at: usize| {
        let ids: Vec<usize> = (0..8).map(|depth| if depth < at % 5 { depth } else { 8 * at + depth }).collect();
        format!(r#"{{"timestamp": {at}, "input_length": 512, "output_length": 1, "hash_ids": {ids:?}}}"#)
    };
    let rows: Vec<String> = (0..400).map(row).collect();
    fs::write(&trace, rows.join("\n")).unwrap();
    let replay = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
        command.arg("replay").arg(&trace).args(["--unit", "64", "--capacity", "200", "--json"]).args(options);
        command.output().unwrap()
    };
    let digest = |options: &[&str]| {
        let replayed = replay(options);
        assert!(replayed.status.success(), "{replayed:?}");
        let report: Value = serde_json::from_slice(&replayed.stdout).unwrap();
        assert!(report["evicted_blocks"].as_u64().unwrap() > 100, "{report}");
        report["match_digest"].clone()
    };
    let silent = digest(&[]);
    for scheme in ["xxh3", "sglang", "sha256-cbor", "unread"] {
        assert_eq!(digest(&["--events", scheme]), silent, "{scheme}");
    }
    assert_eq!(digest(&["--events", "xxh3", "--publish", ANY, "--publish-replay", ANY]), silent);

    let taken = worker();
    let refusals = [
        (vec!["--events", "xxh3", "--publish", taken.endpoint()], format!("{} is taken", taken.endpoint())),
        (vec!["--events", "unread", "--publish", ANY], "--publish needs events that are read".to_owned()),
        (vec!["--publish", ANY], "--events".to_owned()),
    ];
    for (options, message) in refusals {
        let refused = replay(&options);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(&message), "{}", text(&refused.stderr));
    }
    fs::remove_file(&trace).unwrap();
}
