//! The dashboard names metrics that are exported, and every panel can be drawn.

use std::collections::BTreeSet;

use radixkv::PrefixCache;
use radixkv_metrics::prometheus_client::registry::Registry;
use radixkv_metrics::{BlockLives, CacheCollector, NamespaceCollector, Timers, text};
use serde_json::Value;

/// Everything that can be exported.
fn exported() -> String {
    let cache = PrefixCache::builder(4, 8).build().expect("valid");
    let mut registry = Registry::default();
    CacheCollector::register(&cache, &mut registry);
    NamespaceCollector::register(&cache, &mut registry);
    Timers::register(1, &mut registry);
    BlockLives::register(&cache, 1, &mut registry);
    text(&registry)
}

/// The names of samples.
fn samples(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split([' ', '{']).next()).collect()
}

/// The names of metrics in an expression.
fn named(expression: &str) -> BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = expression.split(|c| !is_of_name(c));
    words.filter(|word| ["radixkv", "vllm:", "sglang:"].iter().any(|prefix| word.starts_with(prefix))).collect()
}

fn expressions(dashboard: &Value) -> Vec<(&str, &str)> {
    let panels = dashboard["panels"].as_array().expect("panels");
    panels
        .iter()
        .flat_map(|panel| {
            let title = panel["title"].as_str().expect("a title");
            let targets = panel["targets"].as_array().expect("targets");
            targets.iter().map(move |target| (title, target["expr"].as_str().expect("an expression")))
        })
        .collect()
}

#[test]
fn every_expression_of_the_dashboard_names_what_is_exported() {
    let dashboard: Value = serde_json::from_str(include_str!("../grafana/radixkv.json")).expect("JSON");
    let text = exported();
    let samples = samples(&text);
    let expressions = expressions(&dashboard);
    assert!(expressions.len() > 20, "{}", expressions.len());
    for (title, expression) in expressions {
        let names = named(expression);
        assert!(!names.is_empty(), "{title}: {expression} names no metric");
        let unknown: Vec<_> = names.difference(&samples).collect();
        assert!(unknown.is_empty(), "{title}: {expression} names {unknown:?}, which is not exported");
    }
}

#[test]
fn every_panel_has_a_place_of_its_own() {
    let dashboard: Value = serde_json::from_str(include_str!("../grafana/radixkv.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let places: BTreeSet<_> =
        panels.iter().map(|panel| (panel["gridPos"]["x"].as_u64(), panel["gridPos"]["y"].as_u64())).collect();
    assert_eq!(places.len(), panels.len());
}

#[test]
fn every_counter_of_the_cache_itself_is_on_the_dashboard() {
    let dashboard = include_str!("../grafana/radixkv.json");
    let text = exported();
    let missing: Vec<_> = samples(&text)
        .into_iter()
        .filter(|name| name.starts_with("radixkv_") && name.ends_with("_total"))
        .filter(|name| {
            !dashboard.contains(name)
                && *name != "radixkv_taken_blocks_total"
                && *name != "radixkv_retained_blocks_total"
        })
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
