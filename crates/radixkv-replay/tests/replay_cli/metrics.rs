//! `replay --metrics`: the metrics agree with the report, and errors are reported before the work.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;

use super::{ROWS, Scratch};

/// A timeout that only a hang exceeds.
const FAR: Duration = Duration::from_secs(60);

/// A child process that is killed when the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(FAR)).expect("a time");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

fn sample(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name) && line[name.len()..].starts_with(' '));
    line.unwrap_or_else(|| panic!("{name} is missing:\n{text}"))[name.len() + 1..].parse().expect("a number")
}

/// Requests that share prefixes and need more blocks than the cache has.
fn rows() -> String {
    let row = |at: usize| {
        let ids: Vec<usize> = (0..4 + at % 9).map(|id| if id < 2 { id } else { 100 * (at % 17) + id }).collect();
        let length = 512 * (ids.len() - 1) + 16 * (1 + at % 32);
        format!("{{\"timestamp\": {at}, \"input_length\": {length}, \"output_length\": 20, \"hash_ids\": {ids:?}}}\n")
    };
    (0..200).map(row).collect()
}

#[test]
fn the_metrics_at_the_end_are_those_of_the_report() {
    let scratch = Scratch::new("metrics");
    let trace = scratch.file("trace.jsonl", rows());
    let options = ["--capacity", "600", "--json", "--metrics", "127.0.0.1:0", "--metrics-linger", "60"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    command.arg("replay").arg(&trace).args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Ended(command.spawn().expect("the command runs"));
    let mut said = BufReader::new(child.0.stderr.take().expect("a pipe")).lines();
    let line = said.next().expect("a line").expect("text");
    let address = line.strip_prefix("radixkv: metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{line}"));
    // The report is printed before the endpoint lingers.
    let mut values = serde_json::Deserializer::from_reader(child.0.stdout.take().expect("a pipe")).into_iter::<Value>();
    let report = values.next().expect("a report").expect("JSON");
    let text = scrape(address);
    let count = |field: &str| report[field].as_f64().unwrap_or_else(|| panic!("{field} in {report}"));
    for (name, field) in [
        ("radixkv_hit_tokens_total", "hit_tokens"),
        ("vllm:prefix_cache_hits_total", "hit_tokens"),
        ("radixkv_inserted_blocks_total", "inserted_blocks"),
        ("radixkv_evicted_blocks_total{reason=\"capacity\"}", "evicted_blocks"),
        ("radixkv_capacity_blocks", "capacity"),
        ("radixkv_block_size_tokens", "block_size"),
    ] {
        assert_eq!(sample(&text, name), count(field), "{name}");
    }
    assert!(count("evicted_blocks") > 0.0 && count("hit_tokens") > 0.0);
    assert_eq!(sample(&text, "radixkv_lookups_total"), count("requests") - count("bypassed_requests"));
    // Only whole blocks are looked up.
    let rest = count("prompt_tokens") - sample(&text, "radixkv_query_tokens_total");
    assert!((0.0..count("requests") * count("block_size")).contains(&rest), "{rest}");

    let shown = Command::new(env!("CARGO_BIN_EXE_radixkv")).args(["top", "--metrics", address]).output().expect("runs");
    let table = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.status.success() && table.contains("lookups") && table.contains("600 x 16 tokens"), "{table}");
}

#[test]
fn a_port_that_is_taken_is_said_before_the_work() {
    let scratch = Scratch::new("metrics-taken");
    let trace = scratch.file("trace.jsonl", ROWS);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let refused = super::run(Some(&trace), &["--metrics", &address]);
    let said = String::from_utf8(refused.stderr).expect("text");
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{said}");
    assert_eq!(
        said,
        format!("radixkv: {address} is in use by another program: choose another port, or 0 for a free one\n")
    );
    // The error also precedes reading the trace.
    let missing = super::run(Some(&scratch.path("none")), &["--metrics", &address]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("is in use"));
}

#[test]
fn top_says_what_is_wrong_with_an_address() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let top = |address: &str| {
        let shown = Command::new(env!("CARGO_BIN_EXE_radixkv")).args(["top", "--metrics", address]).output();
        let shown = shown.expect("the command runs");
        assert_eq!(shown.status.code(), Some(2), "{shown:?}");
        String::from_utf8(shown.stderr).expect("text")
    };
    let answer = |text: &'static str| {
        let listener = listener.try_clone().expect("a handle");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut part = [0; 1024];
            let _ = stream.read(&mut part);
            let _ = stream.write_all(text.as_bytes());
        })
    };
    for (text, expected) in [
        ("HTTP/1.1 200 OK\r\n\r\nother_metric 1\n", "no metrics of a cache found"),
        ("HTTP/1.1 404 Not Found\r\n\r\n", "the server answered 404 Not Found"),
        ("nonsense", "response is not metrics over HTTP"),
    ] {
        let server = answer(text);
        let said = top(&address);
        server.join().expect("no panic");
        assert!(said.contains(expected) && said.contains(&address), "{said}");
    }
    drop(listener);
    assert!(top(&address).contains("no program listens there"));
}
