//! Pictures of a cache's content: they account for every block, and stay readable for any content.

#[cfg(feature = "svg")]
#[path = "svg_text/mod.rs"]
mod svg_text;

use radixkv::{PolicyKind, PrefixCache};
use radixkv_replay::{
    ReplayConfig, ReplayError, Trace,
    picture::{CacheTree, Icicle},
    replay,
    replay::Capacity,
    workload::CLASSES,
};

fn after(trace: &Trace, requests: usize, config: &ReplayConfig) -> CacheTree {
    CacheTree::after(trace, requests, config, &|| {}).expect("a tree")
}

// Holds: RP20.
#[test]
fn the_tree_holds_every_cached_block_at_any_moment() {
    for (class, policy) in [(0, PolicyKind::Lru), (7, PolicyKind::Lfu), (8, PolicyKind::Slru), (2, PolicyKind::Mru)] {
        let trace = CLASSES[class].trace(4);
        let config = ReplayConfig::default().policy(policy).capacity(Capacity::Percent(15.0)).hold(true);
        let outcomes = replay(&trace, &config, &|| {}).expect("a replay").outcomes;
        for requests in [1, 2, 100, 333, outcomes.len()] {
            let tree = after(&trace, requests, &config);
            let cached = outcomes[requests - 1].cached_blocks as usize;
            assert_eq!(tree.blocks(), cached, "{policy} after {requests} requests of class {class}");
            assert!(tree.leases() > 0, "a request holds its lease");
        }
    }
}

// Holds: RP20.
#[test]
fn in_trace_time_the_leases_of_running_requests_are_seen() {
    let row = |at: u32, ids: &str| {
        format!("{{\"timestamp\": {at}, \"input_length\": 32, \"output_length\": 100, \"hash_ids\": [{ids}]}}\n")
    };
    let rows = [row(0, "1, 2"), row(1000, "1, 3"), row(1100, "1, 2")].concat();
    let trace = Trace::from_reader(std::io::Cursor::new(rows), "rows", Some(16)).expect("a trace");
    let service = "64,1,9".parse().expect("a service");
    let config = ReplayConfig::default().capacity(Capacity::Blocks(8)).service(service);
    let tree = after(&trace, 3, &config);
    // The second request is still computing and holds the prefix that it matched; the third holds
    // the blocks that the first inserted.
    let leases: Vec<_> = tree.runs().iter().map(|run| (run.start, run.end, run.leases)).collect();
    assert_eq!(leases, [(0, 0, 0), (0, 1, 1), (1, 2, 2)]);
}

#[test]
fn what_is_evicted_is_not_shown() {
    let rows = "{\"timestamp\": 0, \"input_tok_ids\": [1, 2, 3, 4]}\n{\"timestamp\": 1, \"input_tok_ids\": [5, 6, 7]}";
    let trace = Trace::from_reader(rows.as_bytes(), "rows", None).expect("a trace");
    let config = ReplayConfig::default().block_size(1).capacity(Capacity::Blocks(5));
    let shape = |requests| -> Vec<_> {
        let tree = after(&trace, requests, &config);
        tree.runs().iter().skip(1).map(|run| (run.start, run.end, run.last_use, run.row)).collect()
    };
    assert_eq!(shape(0), []);
    assert_eq!(shape(1), [(0, 4, 1, Some(0))]);
    assert_eq!(shape(2), [(0, 3, 2, Some(1)), (0, 2, 1, Some(0))], "the end of the first was evicted");
    let beyond = CacheTree::after(&trace, 3, &config, &|| {});
    assert!(matches!(beyond, Err(ReplayError::NoSuchMoment { at: 3, requests: 2 })));
}

#[test]
fn a_live_cache_shows_the_same_runs() {
    let trace = CLASSES[7].trace(1);
    let config = ReplayConfig::default().capacity(Capacity::Blocks(100_000));
    let tree = after(&trace, 50, &config);
    let cache = PrefixCache::builder(16, 100_000).build().expect("a cache");
    let (session, space) = (cache.session(), cache.default_namespace());
    let mut prompts = Vec::new();
    for request in &trace.requests()[..50] {
        let mut tokens = vec![0; request.prompt_tokens()];
        trace.fill(request, &mut tokens);
        let hit = session.match_prefix(&space, &tokens);
        let fill = session.reserve(tokens.len() / 16 - hit.blocks().len()).expect("blocks");
        let _ = session.insert(hit.lease(), &tokens, fill).expect("inserted");
        prompts.push(tokens);
    }
    let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let live = CacheTree::of_prompts(&cache, &space, &prompts).expect("memory");
    let shape = |tree: &CacheTree| -> Vec<_> {
        tree.runs().iter().map(|run| (run.parent, run.start, run.end, run.last_use)).collect()
    };
    assert_eq!(shape(&live), shape(&tree));
    let held = session.match_prefix(&space, prompts[0]);
    let all = CacheTree::of(&cache, &space);
    let ends = |tree: &CacheTree| {
        let mut ends: Vec<_> = tree.runs().iter().enumerate().map(|(at, run)| (at, run.end)).collect();
        ends.retain(|(at, _)| tree.runs().iter().skip(1).all(|run| run.parent != *at));
        ends.into_iter().map(|(_, end)| end).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!((all.blocks(), ends(&all), all.leases()), (live.blocks(), ends(&live), 1));
    drop(held);
    assert_eq!(CacheTree::of(&cache, &cache.namespace(&["empty"])).runs().len(), 1);
}

/// A tree of ten thousand runs, side by side and below each other.
fn ten_thousand() -> CacheTree {
    let mut tree = CacheTree::new(16);
    let shared = tree.push(0, 32, 10_000, 0);
    for run in 0..9_999 {
        let parent = if run % 3 == 2 { tree.runs().len() - 1 } else { shared };
        tree.push(parent, 1 + run * 7919 % 200, run as u64, run % 500 / 499);
    }
    tree
}

// Holds: RP20.
#[test]
fn ten_thousand_runs_are_grouped_and_the_picture_says_so() {
    let tree = ten_thousand();
    for icicle in [Icicle::for_text(&tree), Icicle::for_dot(&tree)] {
        assert_eq!(icicle.shown_runs() + icicle.grouped_runs(), 10_000);
        assert!(icicle.boxes().len() < 400, "{} boxes", icicle.boxes().len());
    }
    for width in [80, 200] {
        let text = Icicle::for_text(&tree).text(width);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        assert!(text.contains("of 10,000 runs are drawn together"), "{text}");
        assert!(text.lines().count() < 120, "{text}");
    }
    let dot = Icicle::for_dot(&tree).dot();
    assert!(dot.contains("of 10,000 runs are drawn together") && dot.ends_with("}\n"), "{dot}");
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}

// Holds: RP20.
#[cfg(feature = "svg")]
#[test]
fn an_svg_of_ten_thousand_runs_is_small_and_no_text_overlaps() {
    let mut deep = CacheTree::new(16);
    (0..100).for_each(|run| _ = deep.push(run, 3, run as u64, 1));
    for tree in [ten_thousand(), deep, CacheTree::new(16)] {
        let icicle = Icicle::for_svg(&tree);
        let svg = icicle.svg().expect("drawn");
        assert!(svg.len() < 400_000, "{} bytes", svg.len());
        assert_eq!(svg.contains("are drawn together"), icicle.grouped_runs() > 0);
        svg_text::check(&svg);
    }
}

#[cfg(feature = "svg")]
#[test]
#[should_panic(expected = "lies on")]
fn a_text_on_another_is_found() {
    let text =
        |x: u32| format!("<text x=\"{x}\" y=\"20\" dy=\"0.5ex\" text-anchor=\"start\" font-size=\"12\">runs</text>");
    svg_text::check(&format!("<svg width=\"200\" height=\"40\">{}{}</svg>", text(5), text(40)));
    svg_text::check(&format!("<svg width=\"200\" height=\"40\">{}{}</svg>", text(5), text(30)));
}
