//! The command `radixkv follow`: its output, how it ends, and its error messages.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use radixkv_events::{
    Batch, BlockHash, Change, Event, HashScheme, Holdings, Medium, Numbered, Publisher, Recorder, Scope, Snapshot,
    Stored, now,
};
use serde_json::Value;

const ANY: &str = "tcp://127.0.0.1:0";

/// A worker with three blocks of two tokens, which can send snapshots.
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

/// A worker that does not send the tokens of its blocks; its medium's name has control characters.
fn wordless(blocks: u64) -> Publisher {
    let hashes = (0..blocks).map(BlockHash::Unsigned).collect();
    let medium = Some(Medium::from("\u{1b}[31mGPU\u{9b}2J\u{202e}"));
    let events = vec![Event::Stored(Stored { hashes, medium, block_size: 16, ..Stored::default() })];
    let held = events.clone();
    let builder = Publisher::builder(ANY).replay(ANY);
    let publisher = builder.snapshot(move || Snapshot { next: 1, epoch: None, events: held.clone() }).build().unwrap();
    publisher.publish(Numbered { seq: 0, batch: Batch { time: now(), events, ..Batch::default() } }).unwrap();
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

/// Texts from a publisher are escaped before they are printed.
// Holds: WE15.
#[test]
fn texts_of_a_publisher_are_written_out() {
    let publisher = wordless(3);
    let arguments = [publisher.endpoint(), "--replay", publisher.replay_endpoint().unwrap(), "--once"];
    for shown in [run(&arguments), run(&[&arguments[..], &["--json"]].concat())] {
        let shown = text(&shown.stdout);
        let obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(shown.contains("[31mGPU") && !shown.contains(obeyed), "{shown:?}");
    }
}

/// A prompt cannot be routed to blocks whose tokens are unknown.
// Holds: WE15.
#[test]
fn blocks_without_tokens_are_not_complete() {
    let publisher = wordless(3);
    let arguments = [publisher.endpoint(), "--replay", publisher.replay_endpoint().unwrap(), "--once"];
    let table = text(&run(&arguments).stdout);
    assert!(table.contains("tokenless") && table.contains("unknown") && !table.contains("complete"), "{table}");
    let seen: Value = serde_json::from_slice(&run(&[&arguments[..], &["--json"]].concat()).stdout).unwrap();
    let worker = &seen["workers"][0];
    assert_eq!((&worker["blocks"], &worker["tokens"], &worker["complete"]), (&3.into(), &Value::Null, &false.into()));

    // The same if their size is known.
    let arguments = [&arguments[..], &["--block-size", "16"]].concat();
    let table = text(&run(&arguments).stdout);
    assert!(table.contains("tokenless") && table.contains("48") && !table.contains("complete"), "{table}");
    let seen: Value = serde_json::from_slice(&run(&[&arguments[..], &["--json"]].concat()).stdout).unwrap();
    let worker = &seen["workers"][0];
    assert_eq!((&worker["tokenless"], &worker["tokens"], &worker["complete"]), (&3.into(), &48.into(), &false.into()));
}

// Holds: WE14.
#[test]
fn a_worker_takes_no_more_memory_than_it_may() {
    let publisher = wordless(100_000);
    let arguments = [publisher.endpoint(), "--replay", publisher.replay_endpoint().unwrap(), "--once", "--max-memory"];
    let refused = run(&[&arguments[..], &["8MiB"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(
        said.contains("the worker's blocks need more than 8 MiB") && said.contains("raise it with --max-memory"),
        "{said}"
    );
    let shown = run(&[&arguments[..], &["64MiB"]].concat());
    assert!(text(&shown.stdout).contains("100,000"), "{shown:?}");
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

/// As with `| head -1`: without a reader there is nothing to follow for.
#[test]
fn it_ends_when_its_reader_closes() {
    let publisher = worker();
    let mut child = command(&[publisher.endpoint(), "--json", "--every", "0.05"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with('{'), "{line}");
    assert!(child.wait().unwrap().success());
}

/// All lines of its output are complete, and its exit status is 0.
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
        (vec!["host:5557", "--once"], "\"host:5557\" is not an endpoint, such as tcp://127.0.0.1:5557"),
        (vec![endpoint, endpoint, "--replay", replay], "1 --replay for 2 endpoints; give one for each, or none"),
        (vec![endpoint, "--replay", replay, "--block-size", "16"], "the worker has blocks of 2 tokens, 16 expected"),
    ];
    for (arguments, message) in refusals {
        let refused = run(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(message), "{}", text(&refused.stderr));
    }
}

/// Recording events does not change a replay, whoever reads them.
// Holds: WE7.
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
    let published = text(&replay(&["--events", "xxh3", "--publish", ANY, "--publish-replay", ANY]).stderr);
    let port =
        |name: &str| published.split_once(name).and_then(|(_, rest)| rest.split([',', '\n']).next()?.parse().ok());
    let ports = ["KV events at tcp://127.0.0.1:", "replays at tcp://127.0.0.1:"].map(port);
    assert!(ports.iter().all(|port: &Option<u16>| port.is_some_and(|port| port > 0)), "{published}");

    let taken = worker();
    let refusals = [
        (
            vec!["--events", "xxh3", "--publish", taken.endpoint()],
            format!("{} is in use by another program", taken.endpoint()),
        ),
        (vec!["--events", "unread", "--publish", ANY], "--publish cannot be combined with --events unread".to_owned()),
        (vec!["--publish", ANY], "--events".to_owned()),
        (vec!["--events", "xxh3", "--publish", "localhost:5557"], "not tcp://HOST:PORT, such as tcp://".to_owned()),
    ];
    for (options, message) in refusals {
        let refused = replay(&options);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(&message), "{}", text(&refused.stderr));
    }
    fs::remove_file(&trace).unwrap();
}
