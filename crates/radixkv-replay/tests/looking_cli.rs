//! The command's views of a replay: the page of `replay --report`, `inspect`, and `top` with the
//! file of `replay --live`.
#![cfg(feature = "cli")]

#[path = "svg_text/mod.rs"]
mod svg_text;

use std::{
    collections::HashSet,
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use html5ever::{parse_document, tendril::TendrilSink};
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use serde_json::Value;

/// A folder that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("looking-{test}"));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a name").to_owned()
    }

    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("a file");
        self.path(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("a file")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Chats with several turns; a small cache holds only some of them.
fn chats() -> String {
    let row = |at: usize| {
        let (chat, turn) = (at * 7 % 40, at / 40);
        let ids: Vec<usize> = (0..3 + 2 * turn).map(|id| if id == 0 { 0 } else { 1 + 100 * chat + id }).collect();
        let length = 16 * ids.len() + at % 5;
        format!("{{\"timestamp\": {at}, \"input_length\": {length}, \"output_length\": 20, \"hash_ids\": {ids:?}}}\n")
    };
    (0..400).map(row).collect()
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    command.args(arguments).env_remove("COLUMNS").output().expect("the command runs")
}

fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn complaint(arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty() && !said.contains("panicked"), "{said}");
    said
}

/// A number with twelve digits: its last bits may change when it is written and read again.
fn digits(number: f64) -> String {
    format!("{number:.12e}")
}

/// Collects all numbers in a JSON value.
fn numbers(value: &Value, into: &mut HashSet<String>) {
    match value {
        Value::Number(number) => _ = into.insert(digits(number.as_f64().expect("a number"))),
        Value::Array(values) => values.iter().for_each(|value| numbers(value, into)),
        Value::Object(fields) => fields.values().for_each(|value| numbers(value, into)),
        _ => {}
    }
}

/// Calls `look` for each element, with its name and its attributes.
fn elements(node: &Handle, look: &mut impl FnMut(&str, &[(String, String)])) {
    if let NodeData::Element { name, attrs, .. } = &node.data {
        let attributes = attrs.borrow();
        let attributes = attributes.iter().map(|one| (one.name.local.to_string(), one.value.to_string()));
        look(&name.local, &attributes.collect::<Vec<_>>());
    }
    node.children.borrow().iter().for_each(|child| elements(child, look));
}

// Holds: RP19.
#[test]
fn a_report_is_one_sound_page_whose_figures_are_in_the_json() {
    let scratch = Scratch::new("report");
    let (trace, page) = (scratch.file("chats & <tools>.jsonl", &chats()), scratch.path("page.html"));
    let runs: [&[&str]; 4] = [
        &["--capacity", "20%"],
        &["--capacity", "20%", "--service", "800,20,8", "--warm-up", "50", "--longest", "12"],
        &["--capacity", "100%", "--threads", "2", "--cache", "naive"],
        &["--capacity", "20%", "--host-capacity", "30%", "--tier-mode", "exclusive"],
    ];
    for options in runs {
        let json = printed(&[&["replay", &trace, "--json", "--report", &page], options].concat());
        let json: Value = serde_json::from_str(&json).expect("one JSON object");
        let html = scratch.text("page.html");
        let dom = parse_document(RcDom::default(), Default::default()).one(html.as_str());
        assert!(dom.errors.borrow().is_empty(), "{:?}", dom.errors.borrow());

        let (mut known, mut figures, mut plots) = (HashSet::new(), 0, 0);
        numbers(&json, &mut known);
        elements(&dom.document, &mut |name, attributes| {
            assert!(
                !["script", "link", "img", "iframe", "image", "use"].contains(&name),
                "{name} may ask for something"
            );
            plots += usize::from(name == "svg");
            for (attribute, value) in attributes {
                assert!(!["src", "href"].contains(&attribute.as_str()), "{attribute} of {name}");
                assert!(attribute == "xmlns" || !value.contains("//"), "{attribute} of {name}: {value}");
                if name == "data" && attribute == "value" {
                    let number: f64 = value.parse().expect("a number");
                    assert!(known.contains(&digits(number)), "{value} is not in the JSON");
                    figures += 1;
                }
            }
        });
        assert!(!html.contains("url(") && !html.contains("@import"), "a style may ask for something");
        // Two line plots, each for wide and narrow screens, and three histograms.
        let lists = html.matches("<figcaption>").count() - 2;
        assert!(
            figures >= 30 && plots == 7 && lists == 3 + usize::from(options.contains(&"--host-capacity")),
            "{figures} figures, {plots} plots and {lists} lists of bars"
        );
        for svg in html.split("<svg ").skip(1) {
            svg_text::check(&format!("<svg {}", svg.split("</svg>").next().expect("a picture")));
        }
    }
}

/// The page is readable on a dark background and on the screen of a phone.
// Holds: RP22.
#[test]
fn a_report_is_for_light_and_dark_and_for_wide_and_narrow_screens() {
    let scratch = Scratch::new("report-screens");
    let (trace, page) = (scratch.file("chats.jsonl", &chats()), scratch.path("page.html"));
    let options = ["--capacity", "20%", "--service", "8000,20,8"];
    printed(&[&["replay", &trace, "--report", &page], &options[..]].concat());
    let html = scratch.text("page.html");
    assert!(html.contains("<h1>Replay of chats.jsonl</h1>") && !html.contains("looking-report"), "a path in the title");
    for jargon in ["details.", "last token computed", "index bytes", "8000.000"] {
        assert!(!html.contains(jargon), "{jargon}");
    }
    assert!(html.contains(">8,000</data> tokens a second in prefill"));
    let dark = html.split_once("@media(prefers-color-scheme:dark){").expect("rules of a dark page").1;
    // Every colour of a plot is replaced on a dark page, and no plot has its own background.
    for svg in html.split("<svg ").skip(1) {
        let (svg, _) = svg.split_once("</svg>").expect("a picture");
        for colour in ["fill=\"#", "stroke=\"#"].into_iter().flat_map(|name| svg.split(name).skip(1)) {
            let colour = &colour[..6];
            assert!(dark.contains(&format!("\"#{colour}\"]")), "{colour} stays as it is");
        }
    }
    // Text is not scaled, so plots wider than a phone are not shown there.
    for (at, svg) in html.match_indices("<svg ") {
        let width = html[at..].split_once("width=\"").and_then(|(_, rest)| rest.split('"').next()).expect("a width");
        let is_wide = html[..at].ends_with("<div class=\"wide\">");
        assert!(is_wide || width.parse::<u32>().is_ok_and(|width| width <= 366), "{svg} of {width}");
    }
    assert!(html.contains("@media(max-width:640px){.wide{display:none}"));
}

#[test]
fn the_json_tells_misses_evictions_and_prefixes() {
    let scratch = Scratch::new("details");
    let trace = scratch.file("chats.jsonl", &chats());
    let json: Value = serde_json::from_str(&printed(&["replay", &trace, "--json", "--capacity", "20%"])).expect("JSON");
    let details = &json["details"];
    let sum = |list: &Value, key: &str| -> u64 {
        list.as_array().expect("a list").iter().map(|one| one[key].as_u64().expect("a number")).sum()
    };
    let missed = sum(&details["misses"], "tokens");
    assert_eq!(missed + json["hit_tokens"].as_u64().expect("tokens"), json["prompt_tokens"].as_u64().expect("tokens"));
    assert_eq!(sum(&details["series"], "hit_tokens"), json["hit_tokens"].as_u64().expect("tokens"));
    assert_eq!(details["top_prefixes"][0]["from_token"], 0);
    assert!(sum(&details["latencies"]["match_ns"], "calls") == 400);
}

#[test]
fn a_warm_up_is_left_out_of_rates() {
    let scratch = Scratch::new("warm-up");
    let trace = scratch.file("chats.jsonl", &chats());
    let json = |options: &[&str]| -> Value {
        serde_json::from_str(&printed(&[&["replay", &trace, "--json", "--capacity", "100%"], options].concat()))
            .expect("JSON")
    };
    let (all, warm) = (json(&[]), json(&["--warm-up", "40"]));
    // The first turn of each chat hits only its first block.
    assert_eq!((&warm["warm_up_requests"], &warm["requests"]), (&40.into(), &360.into()));
    assert!(warm["hit_rate"].as_f64() > all["hit_rate"].as_f64());
    assert_eq!(all["match_digest"], warm["match_digest"]);
    assert_eq!(json(&["--warm-up", "0.04s"])["hit_rate"], warm["hit_rate"]);
    let none_left = complaint(&["replay", &trace, "--warm-up", "400"]);
    assert!(none_left.contains("the warm-up has 400 requests and the trace 400"), "{none_left}");
}

#[test]
fn a_moment_is_printed_and_drawn() {
    let scratch = Scratch::new("inspect");
    let trace = scratch.file("chats.jsonl", &chats());
    let (svg, dot) = (scratch.path("t.svg"), scratch.path("t.dot"));
    let text = printed(&["inspect", &trace, "--at", "200", "--capacity", "300"]);
    assert!(text.starts_with("300 blocks in ") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let all = ["inspect", &trace, "--hold", "--capacity", "50%", "--svg", &svg, "--dot", &dot];
    assert_eq!(printed(&all), "", "a picture is enough");
    assert!(printed(&[&all[..], &["--text"]].concat()).contains("leases"));
    svg_text::check(&scratch.text("t.svg"));
    assert!(scratch.text("t.dot").starts_with("digraph cache {"));
    let beyond = complaint(&["inspect", &trace, "--at", "401"]);
    assert!(beyond.contains("the state after 401 requests was requested, but the trace has 400"), "{beyond}");
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_the_trace_is_read() {
    let scratch = Scratch::new("unwritable");
    let (bad, to) = (scratch.file("bad.jsonl", "no trace"), scratch.path("none/page"));
    for arguments in [
        ["replay", &bad, "--report", &to],
        ["replay", &bad, "--live", &to],
        ["inspect", &bad, "--svg", &to],
        ["inspect", &bad, "--dot", &to],
    ] {
        let said = complaint(&arguments);
        assert!(said.contains("none/page: cannot be written"), "{said}");
    }
    let own = complaint(&["replay", &bad, "--report", &bad]);
    assert!(own.contains("not written: it is the trace"), "{own}");
    let (csv, page) = (scratch.path("one"), scratch.path("one"));
    let twice = complaint(&["replay", &bad, "--report", &page, "--requests", &csv]);
    assert!(twice.contains("two options name it"), "{twice}");
}

#[test]
fn what_a_service_excludes_is_said() {
    let scratch = Scratch::new("excluded");
    let trace = scratch.file("chats.jsonl", &chats());
    for other in ["--hold", "--threads=2", "--eviction=background", "--cache=naive", "--checks=1"] {
        let said = complaint(&["replay", &trace, "--service", "100,10,4", other]);
        assert!(said.contains("--service") || said.contains("trace time"), "{other}: {said}");
    }
}

// Holds: RP25.
#[test]
fn a_replay_that_has_ended_is_shown_as_text_where_there_is_no_terminal() {
    let scratch = Scratch::new("top");
    let (trace, live) = (scratch.file("chats.jsonl", &chats()), scratch.path("live.json"));
    let report: Value =
        serde_json::from_str(&printed(&["replay", &trace, "--json", "--capacity", "20%", "--live", &live]))
            .expect("JSON");
    let state: Value = serde_json::from_str(&scratch.text("live.json")).expect("JSON");
    for key in ["hit_tokens", "prompt_tokens", "inserted_blocks", "evicted_blocks", "requests", "policy"] {
        assert_eq!(state[key], report[key], "{key}");
    }
    assert_eq!((&state["ended"], &state["cached_blocks"]), (&true.into(), &report["final_blocks"]));
    let text = printed(&["top", "--live", &live]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("400 of 400") && text.contains("of all hits") && !text.contains('\u{1b}'), "{text}");
    let missing = complaint(&["top", "--live", &scratch.path("none")]);
    assert!(missing.contains("start `radixkv replay TRACE --live"), "{missing}");
    let other = complaint(&["top", "--live", &trace]);
    assert!(other.contains("not a file that `radixkv replay --live`"), "{other}");
}

/// What a program shows until it has shown these words or has ended.
#[cfg(target_os = "linux")]
fn read_until(screen: &mut impl Read, words: &str) -> String {
    let (mut text, mut part) = (String::new(), [0; 4096]);
    while !text.contains(words) {
        match screen.read(&mut part).expect("a screen") {
            0 => break,
            read => text += &String::from_utf8_lossy(&part[..read]),
        }
    }
    text
}

#[test]
#[cfg(target_os = "linux")]
fn in_a_terminal_top_ends_with_q_and_leaves_it_as_it_was() {
    let scratch = Scratch::new("terminal");
    let (trace, live) = (scratch.file("chats.jsonl", &chats()), scratch.path("live.json"));
    printed(&["replay", &trace, "--live", &live]);
    // `script` runs a command in its own terminal; keys come from its standard input.
    let top = format!("stty cols 80 rows 24; '{}' top --live '{live}'; echo status $?", env!("CARGO_BIN_EXE_radixkv"));
    let mut script = Command::new("timeout");
    script.args(["60", "script", "-qec", &top, "/dev/null"]).env("TERM", "xterm");
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the command runs");
    let (mut keys, mut screen) = (script.stdin.take().expect("a pipe"), script.stdout.take().expect("a pipe"));
    let mut shown = read_until(&mut screen, "hottest");
    if shown.is_empty() {
        println!("skipped: there is no command `script`: {}", script.wait().expect("it ends"));
        return;
    }
    keys.write_all(b"q").expect("a key");
    shown += &read_until(&mut screen, "status 0");
    drop(keys);
    script.wait().expect("it ends");
    let place = |code: &str| shown.find(code).unwrap_or_else(|| panic!("{code:?} in {shown:?}"));
    let (enters, leaves, ends) = (place("\u{1b}[?1049h"), place("\u{1b}[?1049l"), place("status 0"));
    assert!(enters < place("hottest") && place("hottest") < leaves && leaves < ends, "{shown:?}");
    assert!(shown[leaves..].contains("\u{1b}[?25h"), "the cursor is shown again");
}

/// The terminal belongs to `script`, which is killed: the reader of keys gets no error from it.
// Holds: RP21.
#[test]
#[cfg(target_os = "linux")]
fn a_terminal_that_has_gone_ends_top() {
    let scratch = Scratch::new("terminal-gone");
    let (trace, live, id) = (scratch.file("chats.jsonl", &chats()), scratch.path("live.json"), scratch.path("id"));
    printed(&["replay", &trace, "--live", &live]);
    let top =
        format!("stty cols 80 rows 24; echo $$ > '{id}'; exec '{}' top --live '{live}'", env!("CARGO_BIN_EXE_radixkv"));
    let mut script = Command::new("script");
    script.args(["-qec", &top, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut script) = script.spawn() else {
        println!("skipped: there is no command `script`");
        return;
    };
    let mut screen = script.stdout.take().expect("a pipe");
    let shown = read_until(&mut screen, "hottest");
    assert!(shown.contains("hottest"), "{shown:?}");
    // Enough time until it waits for keys.
    thread::sleep(Duration::from_millis(500));
    script.kill().and_then(|()| script.wait()).expect("killed");
    let id: u32 = scratch.text("id").trim().parse().expect("a process");
    let is_running = || {
        let status = fs::read_to_string(format!("/proc/{id}/stat"));
        status.is_ok_and(|status| status.contains("(radixkv)") && !status.contains(") Z "))
    };
    let end = Instant::now() + Duration::from_secs(60);
    while is_running() && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    let outlived = is_running();
    if outlived {
        let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
    }
    assert!(!outlived, "it runs without a terminal");
}

/// The command reports invalid addresses in its own words, before any work is done.
// Holds: RP23.
#[test]
fn wrong_addresses_are_said() {
    let scratch = Scratch::new("addresses");
    let trace = scratch.file("chats.jsonl", &chats());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let (held, free) = (silent.local_addr().expect("an address").to_string(), {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("an address").to_string()
    });
    let other = scratch.file("other.json", r#"{"trace": "t", "policy": "lru", "capacity_blocks": "many"}"#);
    let cases: [(&[&str], &str); 9] = [
        (&["top", "127.0.0.1:9400"], "give --metrics 127.0.0.1:9400 for an address"),
        (&["top", "--metrics", "localhost"], "not HOST:PORT, such as 127.0.0.1:9400"),
        (&["top", "--metrics", "https://localhost:1"], "https is not supported"),
        (&["top", "--metrics", &held], "no answer within 3 s"),
        (&["top", "--metrics", &free], "no program listens there"),
        (&["top", "--live", &other], "not a file that `radixkv replay --live` of this version writes"),
        (&["replay", &trace, "--metrics", "9400"], "not HOST:PORT, such as 127.0.0.1:9400"),
        (&["replay", &trace, "--metrics", ":9400"], "not HOST:PORT, such as 127.0.0.1:9400"),
        (&["replay", &trace, "--metrics", "localhost:x"], "not HOST:PORT, such as 127.0.0.1:9400"),
    ];
    for (arguments, message) in cases {
        let said = complaint(arguments);
        assert!(said.contains(message), "{arguments:?}: {said}");
        let raw = ["usize", "os error 11", "invalid socket", "temporarily", "line 1 column"];
        assert!(!raw.iter().any(|raw| said.contains(raw)), "{arguments:?}: {said}");
    }
    // A shell's pattern may match any file name.
    let named = complaint(&["top", "\u{9b}31mfile"]);
    assert!(named.contains("\\u{9b}31mfile") && !named.contains('\u{9b}'), "{named:?}");
    let help = printed(&["top", "--help"]);
    assert!(!help.contains("hit rate, hottest prefixes") && help.contains("For a replay it also shows"), "{help}");
}
