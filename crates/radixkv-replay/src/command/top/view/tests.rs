use ratatui::{Terminal, backend::TestBackend};

use super::*;
use crate::live::Period;

fn state() -> State {
    let prefix = r#"{"row": 7, "from_token": 0, "to_token": 512, "requests": 12000, "hit_tokens": 6144000}"#;
    State {
        trace: "conversation.jsonl.zst".to_owned(),
        policy: "lru".to_owned(),
        capacity_blocks: 13_321,
        block_size: 16,
        all_requests: 12_031,
        requests: 6_000,
        prompt_tokens: 1_000_000,
        hit_tokens: 371_200,
        cached_blocks: 13_000,
        protected_blocks: 100,
        evicted_blocks: 123_456,
        periods: (0..100).map(|at| Period { prompt_tokens: 100, hit_tokens: at, ..Period::default() }).collect(),
        top_prefixes: vec![serde_json::from_str(prefix).expect("a prefix"); 20],
        ..State::default()
    }
}

fn drawn(width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, &state())).expect("drawn");
    terminal.backend().to_string()
}

#[test]
fn everything_is_on_a_screen_of_80_columns_and_of_200() {
    for (width, height) in [(80, 24), (200, 50), (120, 40)] {
        let screen = drawn(width, height);
        for figure in [
            "37.12 %",
            "123,456",
            "13,321 blocks",
            "6,144,000",
            "hit rate, now",
            "evicted blocks, now",
            "100 %",
            "samples ago",
            "q quits",
        ] {
            assert!(screen.contains(figure), "{figure} at {width} x {height}:\n{screen}");
        }
    }
}

#[test]
fn what_metrics_do_not_say_is_not_drawn() {
    let screen = |state: &State| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
        terminal.draw(|frame| draw(frame, state)).expect("drawn");
        terminal.backend().to_string()
    };
    let scraped = State { policy: String::new(), per_second: Some(42.0), ..state() };
    let drawn = screen(&scraped);
    for figure in ["37.12 %", "123,456", "lookups", "lookups / s      42", "hit rate, now", "cached 13,000 of 13,321"] {
        assert!(drawn.contains(figure), "{figure}:\n{drawn}");
    }
    assert!(!drawn.contains("served") && !drawn.contains("hottest"), "{drawn}");
}

/// The figures of a cache that has served for months.
// Holds: RP24.
#[test]
fn large_figures_are_whole() {
    let large = 14_595_437_625;
    let state = State {
        policy: String::new(),
        capacity_blocks: large,
        cached_blocks: large,
        protected_blocks: large / 3,
        inserted_blocks: 1_000_000 * large as u64,
        evicted_blocks: 1_000_000 * large as u64,
        per_second: Some(1e9),
        namespaces: vec![Namespace {
            name: "tenant-7\u{1b}[31m".to_owned(),
            lookups: 12_000_000,
            query_tokens: 4 * large as u64,
            hit_tokens: large as u64,
        }],
        ..state()
    };
    let screen = |width| {
        let mut terminal = Terminal::new(TestBackend::new(width, 24)).expect("a terminal");
        terminal.draw(|frame| draw(frame, &state)).expect("drawn");
        terminal.backend().to_string()
    };
    assert!(screen(50).contains("tenant-7") && screen(50).contains("58,381,750,500"), "{}", screen(50));
    let screen = screen(80);
    for figure in [
        "14,595,437,625 (100.00 %)",
        "14,595,437,625,000,000",
        "1,000,000,000",
        "tenant-7\\u{1b}",
        "12,000,000",
        "58,381,750,500",
        "25.00 %",
    ] {
        assert!(screen.contains(figure), "{figure}:\n{screen}");
    }
}

// Holds: RP25.
#[test]
fn a_screen_of_any_size_is_drawn() {
    for width in (1..100).step_by(7) {
        for height in 1..30 {
            drawn(width, height);
        }
    }
    assert!(drawn(40, 24).contains("37.12 %"), "{}", drawn(40, 24));
}
