use serde_json::Value;

use super::{LLAMA, Scratch, complaint, fed, json, printed, run_at};

/// Requests with shared and recurring prompts: enough that small caches evict.
pub(super) fn rows() -> String {
    let row = |at: u64| {
        let (shared, own) = (at % 7, 100 + at % 41);
        let length = 600 + at * 13 % 300;
        format!(
            "{{\"timestamp\": {at}, \"input_length\": {length}, \"output_length\": 9, \"hash_ids\": [{shared}, {own}]}}\n"
        )
    };
    (0..300).map(row).collect()
}

fn points(sweep: &Value) -> &Vec<Value> {
    sweep["points"].as_array().expect("points")
}

// Holds: RP11.
#[test]
fn points_equal_replays() {
    let scratch = Scratch::new("sweep");
    let trace = scratch.file("t.jsonl", rows());
    let options = ["--policy", "slru,lru", "--capacity", "2%,300,60%", "--block-size", "16,48"];
    let sweep = json(&[&["sweep", &trace], &options[..]].concat());
    assert_eq!((points(&sweep).len(), &sweep["requests"]), (2 * (3 * 5 + 1), &300.into()));
    let of_policies = points(&sweep).iter().filter(|point| ["slru", "lru"].iter().any(|line| point["line"] == *line));
    for point in of_policies {
        let [capacity, block_size] = ["capacity", "block_size"].map(|key| point[key].to_string());
        let line = point["line"].as_str().expect("a name");
        let replay = json(&["replay", &trace, "--policy", line, "--capacity", &capacity, "--block-size", &block_size]);
        for key in ["hit_tokens", "hit_rate", "evicted_blocks", "bypassed_requests", "match_digest"] {
            assert_eq!(point[key], replay[key], "{key} of {point}");
        }
    }
    let piped = fed(&[&["sweep", "-", "--json"], &options[..]].concat(), &rows());
    let piped: Value = serde_json::from_slice(&piped.stdout).expect("one JSON object");
    assert_eq!((&piped["trace"], points(&piped)), (&"standard input".into(), points(&sweep)));
    let one = json(&[&["sweep", &trace, "--threads", "1"], &options[..]].concat());
    assert_eq!(points(&one), points(&sweep), "whatever the number of threads");
}

#[test]
fn tables_and_csv_have_the_figures_of_the_json() {
    let scratch = Scratch::new("sweep-csv");
    let (trace, csv) = (scratch.file("t.jsonl", rows()), scratch.path("points.csv"));
    let sweep = json(&["sweep", &trace, "--csv", &csv]);
    let table = printed(&["sweep", &trace, "--wide"]);
    let written = scratch.text("points.csv");
    let mut lines = written.lines();
    let names: Vec<&str> = lines.next().expect("a head").split(',').collect();
    for (line, point) in lines.zip(points(&sweep)) {
        for (name, cell) in names.iter().zip(line.split(',')) {
            match &point[*name] {
                Value::Null => assert_eq!((*name, cell), ("capacity_bytes", "")),
                Value::String(text) => assert_eq!(text, cell),
                number => assert_eq!(number.as_f64(), cell.parse().ok(), "{name} of {line}"),
            }
        }
        let rate = format!("{:.2}", 100.0 * point["hit_rate"].as_f64().expect("a rate"));
        assert!(table.contains(&rate), "{rate} of {point} in\n{table}");
    }
    assert_eq!(written.lines().count(), 1 + points(&sweep).len());
}

#[test]
fn capacities_in_bytes_are_those_of_a_model() {
    let scratch = Scratch::new("sweep-bytes");
    let (trace, model) = (scratch.file("t.jsonl", rows()), scratch.file("config.json", LLAMA));
    let options = ["sweep", &trace, "--capacity", "2GiB", "--block-size", "1,16", "--model-config", &model];
    let sweep = json(&options);
    assert_eq!(sweep["kv_bytes_per_token"], 327_680);
    // 2 GiB hold 6553 whole tokens.
    assert_eq!((&points(&sweep)[0]["capacity"], points(&sweep)[0]["block_size"].as_u64()), (&6553.into(), Some(1)));
    let of_sixteen = points(&sweep).iter().find(|point| point["block_size"] == 16).expect("a point");
    assert_eq!(of_sixteen["capacity"], 409);
    let halved = json(&[&options[..], &["--kv-dtype", "fp8"]].concat());
    assert_eq!(points(&halved)[0]["capacity"], 13_107);
    assert!(printed(&options).contains("2.0 GiB"));
    assert!(complaint(&options[..4]).contains("a capacity in bytes needs a model"));
    assert!(
        complaint(&["sweep", &trace, "--capacity", "9B", "--model-config", &model]).contains("less than one token")
    );
}

// Holds: RP14.
#[test]
fn a_plot_is_well_formed_and_its_texts_stand_apart() {
    let scratch = Scratch::new("sweep-plot");
    let (trace, model) = (scratch.file("a <trace> & \"more\".jsonl", rows()), scratch.file("config.json", LLAMA));
    let svg = scratch.path("plot.svg");
    let all = "lru,lfu,fifo,mru,filo,slru,level,priority";
    for options in [&[][..], &["--model-config", &model], &["--capacity", "100%"], &["--capacity", "3"]] {
        let shared = ["sweep", &trace, "--svg", &svg, "--policy", all, "--block-size", "1,16,64"];
        printed(&[&shared[..], options].concat());
        let drawn = scratch.text("plot.svg");
        assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
        assert!(!drawn.contains("<trace>") && drawn.contains("&lt;trace&gt;"), "names are escaped");
        let texts = texts(&drawn);
        assert!(texts.iter().filter(|text| text.said == "0").count() >= 3, "ratios begin with zero");
        let marks: Vec<f64> = drawn.split("<circle cx=\"").skip(1).map(number).collect();
        assert!(!marks.is_empty() && marks.iter().all(|&x| x > AXIS), "a mark is on the axis: {marks:?}");
        assert!(texts.iter().filter(|text| text.said == "priority").count() == 3, "a name for each line and chart");
        for (at, a) in texts.iter().enumerate() {
            assert!(a.x >= 0.0 && a.x + a.width <= 960.0, "{a:?} is cut off");
            for b in &texts[at + 1..] {
                let apart =
                    a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
                assert!(apart, "{a:?} and {b:?} overlap ({options:?})");
            }
        }
    }
}

/// The position of the vertical axis plus the radius of a mark.
const AXIS: f64 = 12.0 + 64.0 + 3.0;

fn number(attribute: &str) -> f64 {
    attribute.split('"').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// A text and its box, which is a little larger than fonts draw it.
#[derive(Debug)]
struct Text {
    said: String,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

fn texts(svg: &str) -> Vec<Text> {
    let attribute = |tag: &str, name: &str| -> Option<String> {
        let (_, value) = tag.split_once(&format!(" {name}=\""))?;
        Some(value.split_once('"')?.0.to_owned())
    };
    let number = |tag: &str, name: &str| attribute(tag, name).and_then(|value| value.parse::<f64>().ok());
    let upright = svg.split("<text").skip(1).filter_map(|rest| rest.split_once("</text>")).map(|(text, _)| text);
    let text = |text: &str| {
        let (tag, said) = text.split_once('>').expect("a tag that ends");
        let said = said.trim().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("&quot;", "\"");
        let size = number(tag, "font-size").expect("a size") / 1.24;
        let (mut width, mut height) = (0.62 * size * said.chars().count() as f64, size);
        let (mut x, mut y) = (number(tag, "x").expect("x"), number(tag, "y").expect("y"));
        if attribute(tag, "transform").is_some() {
            (width, height) = (height, width);
            (x, y) = (x - width / 2.0, y - height / 2.0);
        } else {
            x -= match attribute(tag, "text-anchor").as_deref() {
                Some("middle") => width / 2.0,
                Some("end") => width,
                _ => 0.0,
            };
            y -= height / 2.0;
        }
        Text { said, x, y, width, height }
    };
    upright.map(text).collect()
}

// Holds: RP16.
#[test]
fn what_makes_no_sense_is_refused_before_the_work() {
    let scratch = Scratch::new("sweep-faults");
    let trace = scratch.file("t.jsonl", rows());
    let cases: [(&[&str], &str); 9] = [
        (&["--capacity", "lots"], "not a number of blocks"),
        (&["--capacity", "1%,0"], "more than zero"),
        (&["--policy", "best"], "best"),
        (&["--block-size", "16,0"], "more than zero"),
        (&["--threads", "0"], "more than zero"),
        (&["--kv-dtype", "fp8"], "--model-config"),
        (&["--csv", "no/such/folder.csv"], "folder.csv: cannot be written"),
        (&["--svg", "no/such/folder.svg"], "folder.svg: cannot be written"),
        (&["--csv", &trace], "not written: it is the trace"),
    ];
    for (options, expected) in cases {
        let said = complaint(&[&["sweep", &trace], options].concat());
        assert!(said.contains(expected), "{options:?}: {said}");
    }
    let both = scratch.path("both");
    let said = complaint(&["sweep", &trace, "--csv", &both, "--svg", &both]);
    assert!(said.contains("not written: two options name it"), "{said}");
    let same = scratch.path("../sweep-faults/both");
    let said = complaint(&["sweep", &trace, "--csv", &both, "--svg", &same]);
    assert!(said.contains("not written: two options name it"), "{said}");
    let model = scratch.file("config.json", LLAMA);
    let said = complaint(&["sweep", &trace, "--model-config", &model, "--csv", &model]);
    assert!(said.contains("not written: another option reads it") && scratch.text("config.json") == LLAMA, "{said}");
    // The error precedes opening the trace, which does not exist.
    assert!(complaint(&["sweep", "no/such", "--svg", "no/such/folder.svg"]).contains("folder.svg: cannot be written"));
    let long = scratch
        .file("long.jsonl", "{\"timestamp\": 0, \"input_length\": 4294967295, \"output_length\": 0, \"hash_ids\": []}");
    let said = complaint(&["sweep", &long, "--capacity", "4294967295", "--block-size", "1"]);
    assert!(said.contains("more than the limit of 16777216; sweep over smaller capacities"), "{said}");
    let said = complaint(&["sweep", &trace, "--max-tokens", "999"]);
    assert!(said.contains("more than the limit of 999; raise the limit with --max-tokens"), "{said}");
    assert!(complaint(&["sweep", &trace, "--max-rows", "9"]).contains("more than 9 rows"));
    let small = run_at(80, &["sweep", &trace, "--capacity", "3,100%"]);
    let said = String::from_utf8_lossy(&small.stderr).into_owned();
    assert!(said.contains("warning: every request is larger than a cache of 3 blocks of 16 tokens"), "{said}");
}
