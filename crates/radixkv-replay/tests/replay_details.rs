//! The breakdown of a replay adds up to the totals, and equals a count of single blocks.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use radixkv_replay::{
    Details, Replay, ReplayConfig, Trace,
    details::MissReason,
    replay,
    replay::{Capacity, Service},
    workload::CLASSES,
};

fn replayed(trace: &Trace, config: &ReplayConfig) -> (Replay, Details) {
    let replayed = replay(trace, config, &|| {}).expect("a replay");
    let details = Details::new(trace, config, &replayed).expect("memory");
    (replayed, details)
}

/// A hash of each block and all blocks before it.
fn prefixes(tokens: &[u32], block_size: usize) -> Vec<u64> {
    let mut hash = DefaultHasher::new();
    let of = |block: &[u32]| {
        block.hash(&mut hash);
        hash.finish()
    };
    tokens.chunks_exact(block_size).map(of).collect()
}

/// Counts misses and evictions block by block, with a set of all prefixes that were inserted.
fn counted_one_by_one(trace: &Trace, config: &ReplayConfig, replayed: &Replay) -> HashMap<&'static str, u64> {
    let (mut seen, mut found) = (HashSet::new(), HashMap::new());
    for (request, outcome) in trace.requests().iter().zip(&replayed.outcomes) {
        let Some(hit) = outcome.hit_blocks else {
            *found.entry("bypassed").or_default() += outcome.prompt_tokens as u64;
            continue;
        };
        let mut tokens = vec![0; request.prompt_tokens()];
        trace.fill(request, &mut tokens);
        let (whole, size) = (tokens.len() / config.block_size, config.block_size);
        let prefixes = prefixes(&tokens, size);
        for prefix in &prefixes[hit as usize..] {
            let known = seen.contains(prefix);
            *found.entry(if known { "evicted" } else { "new" }).or_default() += size as u64;
        }
        seen.extend(prefixes);
        *found.entry("partial").or_default() += (tokens.len() - whole * size) as u64;
    }
    found
}

// Holds: RP17.
#[test]
fn misses_equal_those_counted_one_by_one_and_add_up() {
    for class in [2, 6, 7, 8] {
        let trace = CLASSES[class].trace(1);
        for (percent, block_size) in [(3.0, 16), (20.0, 16), (20.0, 60), (100.0, 16)] {
            let config =
                ReplayConfig::default().block_size(block_size).capacity(Capacity::Percent(percent)).longest(700);
            let (replayed, details) = replayed(&trace, &config);
            let expected = counted_one_by_one(&trace, &config, &replayed);
            for total in &details.misses {
                let counted = expected.get(total.reason.name()).copied().unwrap_or(0);
                assert_eq!(total.tokens, counted, "{} of class {class} at {percent} %", total.reason.name());
            }
            let missed: u64 = details.misses.iter().map(|total| total.tokens).sum();
            assert_eq!(missed + replayed.report.hit_tokens, replayed.report.prompt_tokens);
            let requests: usize = details.misses.iter().map(|total| total.requests).sum();
            assert_eq!(requests, details.missed.iter().filter(|missed| missed.first().is_some()).count());
        }
    }
}

// Holds: RP17.
#[test]
fn what_is_evicted_and_not_asked_for_again_is_what_the_cache_lacks_at_the_end() {
    let trace = CLASSES[8].trace(3);
    let config = ReplayConfig::default().capacity(Capacity::Percent(20.0));
    let (replayed, details) = replayed(&trace, &config);
    assert_eq!(replayed.report.bypassed_requests, 0);
    let evictions = details.evictions;
    assert!(evictions.asked_again_blocks > 0);
    let lacking = trace.working_set_blocks(16) - replayed.report.final_blocks;
    assert_eq!(evictions.not_asked_again_blocks, lacking as u64);
}

#[test]
fn the_series_adds_up_and_ends_as_the_report() {
    let trace = CLASSES[8].trace(3);
    let (replayed, details) = replayed(&trace, &ReplayConfig::default());
    let report = replayed.report;
    assert_eq!(details.series.iter().map(|part| part.prompt_tokens).sum::<u64>(), report.prompt_tokens);
    assert_eq!(details.series.iter().map(|part| part.hit_tokens).sum::<u64>(), report.hit_tokens);
    let last = details.series.last().expect("a part");
    assert_eq!((last.requests, last.cached_blocks as usize), (report.requests, report.final_blocks));
    assert!((last.hit_rate_so_far - report.hit_rate).abs() < 1e-6);
    assert_eq!(details.series.iter().map(|part| part.cached_blocks as usize).max(), Some(report.peak_blocks));
}

#[test]
fn every_hit_token_counts_for_one_prefix() {
    let trace = CLASSES[2].trace(0);
    let (replayed, details) = replayed(&trace, &ReplayConfig::default());
    let hit: u64 = details.top_prefixes.iter().map(|prefix| prefix.hit_tokens).sum();
    assert_eq!((details.top_prefixes.len(), hit), (10, replayed.report.hit_tokens), "all hits are in ten prefixes");
}

const PAIR: &str = r#"{"timestamp": 0, "input_length": 100, "output_length": 20, "hash_ids": [1]}
{"timestamp": 500, "input_length": 100, "output_length": 10, "hash_ids": [1]}
{"timestamp": 1500, "input_length": 100, "output_length": 10, "hash_ids": [1]}
"#;

fn service(text: &str) -> Service {
    text.parse().expect("a service")
}

// Holds: RP18.
#[test]
fn in_trace_time_a_prompt_that_is_being_computed_is_not_hit() {
    let trace = Trace::from_reader(PAIR.as_bytes(), "rows", Some(100)).expect("a trace");
    let config = ReplayConfig::default().block_size(10).capacity(Capacity::Blocks(40)).service(service("100,10,3"));
    let (replayed, details) = replayed(&trace, &config.verify(true));
    let hits: Vec<_> = replayed.outcomes.iter().map(|outcome| outcome.hit_blocks).collect();
    assert_eq!(hits, [Some(0), Some(0), Some(10)]);
    let first: Vec<_> = details.missed.iter().map(|missed| missed.first()).collect();
    assert_eq!(first, [Some(MissReason::New), Some(MissReason::Computing), None]);
    assert_eq!(details.missed[1].tokens(MissReason::Computing), 100);
    assert_eq!(replayed.report.verify_errors, Some(0));
    let ends: Vec<f64> = replayed.times.iter().map(|times| times.end).collect();
    // The third computes only its last token.
    assert_eq!(ends, [3.0, 2.5, 1.5 + 0.01 + 1.0]);
    assert_eq!(replayed.report.service.map(|served| served.peak_running), Some(3));
}

// Holds: RP18.
#[test]
fn in_trace_time_requests_wait_for_a_slot_and_for_blocks() {
    let trace = Trace::from_reader(PAIR.as_bytes(), "rows", Some(100)).expect("a trace");
    let config = ReplayConfig::default().block_size(10);
    let waits = |config: &ReplayConfig| {
        let replayed = replay(&trace, config, &|| {}).expect("a replay");
        replayed.times.iter().map(|times| times.queue_wait).collect::<Vec<f64>>()
    };
    // One slot: the first takes 3 s, the second 0.01 + 1 s.
    let slot = config.clone().capacity(Capacity::Blocks(40)).service(service("100,10,1"));
    let slots = waits(&slot);
    assert_eq!((slots[0], slots[1]), (0.0, 2.5));
    assert!((slots[2] - 2.51).abs() < 1e-9, "{slots:?}");
    // Each of two prompts needs ten blocks, and there are ten: the second waits until the first is
    // inserted.
    let room = config.capacity(Capacity::Blocks(10)).service(service("100,10,3"));
    assert_eq!(waits(&room), [0.0, 0.5, 0.0]);
}

// Holds: RP18.
#[test]
fn in_trace_time_leases_are_held_and_outputs_are_inserted_at_their_end() {
    let rows = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4], "output_tok_ids": [5, 6, 7, 8]}
{"timestamp": 3000, "input_tok_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]}
{"timestamp": 7000, "input_tok_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]}"#;
    let trace = Trace::from_reader(rows.as_bytes(), "rows", None).expect("a trace");
    let config = ReplayConfig::default().block_size(2).capacity(Capacity::Blocks(16)).outputs(true).verify(true);
    // The first is computed after 1 s and ends after 5 s.
    let (replayed, _) = replayed(&trace, &config.service(service("4,1,8")));
    let hits: Vec<_> = replayed.outcomes.iter().map(|outcome| outcome.hit_blocks).collect();
    assert_eq!(hits, [Some(0), Some(2), Some(4)]);
    assert_eq!(replayed.outcomes[1].protected_blocks, 2);
    assert_eq!(replayed.report.verify_errors, Some(0));
}
