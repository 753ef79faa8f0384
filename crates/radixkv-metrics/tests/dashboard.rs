//! The dashboard names metrics and labels that are exported, of the chosen instances only, and
//! every panel can be drawn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use radixkv::PrefixCache;
use radixkv_host::radixkv_tiers::{FileTier, Layout};
use radixkv_host::{DeviceMemory, HostTier, TieredCache};
use radixkv_metrics::prometheus_client::registry::Registry;
use radixkv_metrics::{BlockLives, CacheCollector, HostCollector, NamespaceCollector, Timers, text};
use serde_json::Value;

/// Labels that a scrape adds.
const SCRAPED: [&str; 2] = ["instance", "job"];
/// What every query is restricted to.
const FILTER: &str = r#"instance=~"$instance", model_name=~"$model""#;

/// Everything that can be exported.
fn exported() -> String {
    let cache = PrefixCache::builder(4, 8).build().expect("valid");
    let folder = tempfile::tempdir().expect("a folder");
    let files = FileTier::new(folder.path(), Layout::new("m", "bf16", 4, 64).expect("a layout"), 1 << 20).open();
    let host = HostTier::builder(4, 8).block_bytes(64).remote(files.expect("the folder is free")).build();
    let device = Arc::new(DeviceMemory::new(4, 64, 8));
    let tiers = TieredCache::builder(&cache, &host.expect("a tier"), device).build().expect("tiers");
    let mut registry = Registry::with_labels([("model_name".into(), "m".into())].into_iter());
    CacheCollector::register(&cache, &mut registry);
    NamespaceCollector::register(&cache, &mut registry);
    HostCollector::register_tiers(&tiers, &mut registry);
    Timers::register(1, &mut registry);
    BlockLives::register(&cache, 1, &mut registry);
    text(&registry)
}

type Labels = BTreeMap<String, BTreeSet<String>>;

/// The labels of each name of a sample, with their values. No value here has a comma.
fn samples(text: &str) -> BTreeMap<String, Labels> {
    let mut samples = BTreeMap::<_, Labels>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_at(line.find([' ', '{']).expect("a value"));
        let labels = samples.entry(name.to_owned()).or_default();
        let pairs = rest.rsplit_once('}').map_or("", |(pairs, _)| &pairs[1..]);
        for (label, value) in pairs.split(',').filter_map(|pair| pair.split_once('=')) {
            labels.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
        }
    }
    samples
}

fn dashboard() -> Value {
    serde_json::from_str(include_str!("../grafana/radixkv.json")).expect("JSON")
}

/// All panels but rows, those of collapsed rows too.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let outer = dashboard["panels"].as_array().expect("panels");
    let inner = outer.iter().filter_map(|panel| panel["panels"].as_array()).flatten();
    outer.iter().chain(inner).filter(|panel| panel["type"] != "row").collect()
}

/// The queries of a panel: expression and legend.
fn queries(panel: &Value) -> Vec<(&str, &str)> {
    let targets = panel["targets"].as_array().expect("targets").iter();
    targets
        .map(|target| (target["expr"].as_str().expect("text"), target["legendFormat"].as_str().expect("text")))
        .collect()
}

/// The metrics of an expression, each with what its braces hold.
fn selectors(expression: &str) -> Vec<(&str, &str)> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let parts = expression.match_indices('{').map(|(at, _)| {
        let (before, after) = (&expression[..at], &expression[at + 1..]);
        let name = before.rfind(|c| !is_of_name(c)).map_or(before, |end| &before[end + 1..]);
        (name, after.split_once('}').expect("a closing brace").0)
    });
    parts.collect()
}

/// The lists behind each `by` of an expression.
fn groupings(expression: &str) -> Vec<&str> {
    let lists = expression.split(" by (").skip(1).filter_map(|rest| rest.split_once(')'));
    lists.flat_map(|(list, _)| list.split(", ")).collect()
}

// Holds: ME3.
#[test]
fn every_expression_names_metrics_labels_and_values_that_are_exported() {
    let (dashboard, samples) = (dashboard(), samples(&exported()));
    let mut count = 0;
    for (expression, legend) in panels(&dashboard).into_iter().flat_map(queries) {
        let selectors = selectors(expression);
        assert!(!selectors.is_empty(), "{expression} names no metric");
        let mut known: BTreeSet<&str> = SCRAPED.into();
        for (name, matchers) in selectors {
            let labels = samples.get(name).unwrap_or_else(|| panic!("{expression}: {name} is not exported"));
            known.extend(labels.keys().map(String::as_str));
            for (label, values) in matchers.split(", ").map(|matcher| matcher.split_once("=~").expect("a matcher")) {
                assert!(SCRAPED.contains(&label) || labels.contains_key(label), "{expression}: {name} has no {label}");
                let mut values = values.trim_matches('"').split('|').filter(|value| !value.starts_with('$'));
                assert!(values.all(|value| labels[label].contains(value)), "{expression}: no such {label}");
            }
        }
        let grouped = groupings(expression);
        assert!(grouped.iter().all(|label| known.contains(label)), "{expression}: {grouped:?} of {known:?}");
        for label in legend.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")).map(|(label, _)| label) {
            assert!(grouped.contains(&label), "{expression}: the legend names {label}");
        }
        count += 1;
    }
    assert!(count > 40, "{count}");
}

/// A Prometheus that scrapes vLLM too has metrics of its names that are not of a cache of radixkv.
// Holds: ME3.
#[test]
fn every_query_is_of_the_chosen_instances_and_of_metrics_that_only_this_package_has() {
    let dashboard = dashboard();
    for (expression, _) in panels(&dashboard).into_iter().flat_map(queries) {
        for (name, matchers) in selectors(expression) {
            assert!(name.starts_with("radixkv_") || name.starts_with("vllm:kv_block_"), "{expression}");
            assert!(matchers.starts_with(FILTER), "{expression}");
        }
    }
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let named = |name: &str| variables.iter().find(|variable| variable["name"] == name).expect("a variable");
    let query = named("instance")["definition"].as_str().expect("a query");
    assert_eq!(query, "label_values(radixkv_capacity_blocks, instance)");
    // All instances are those of the query, and not all that there are.
    assert!(named("instance").get("allValue").is_none() && named("instance")["includeAll"] == true);
    assert!(named("model")["definition"].as_str().is_some_and(|query| query.contains("radixkv_capacity_blocks")));
}

#[test]
fn every_panel_has_a_description_a_unit_and_a_place_of_its_own() {
    let dashboard = dashboard();
    let panels = panels(&dashboard);
    for panel in &panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(panel["description"].as_str().is_some_and(|text| text.len() > 20), "{title}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}");
    }
    let places: BTreeSet<_> =
        panels.iter().map(|panel| (panel["gridPos"]["x"].as_u64(), panel["gridPos"]["y"].as_u64())).collect();
    assert_eq!(places.len(), panels.len());
}

/// A panel has one unit, so its queries have one: seconds, bytes, a share, or a count of one kind
/// of thing.
#[test]
fn no_panel_mixes_units() {
    let dashboard = dashboard();
    let unit = |expression: &str| {
        let names: Vec<_> = selectors(expression).into_iter().map(|(name, _)| name).collect();
        let is_share = names.len() > 1 && expression.contains(" / ");
        ["seconds", "bytes", "tokens", "blocks"]
            .into_iter()
            .find(|unit| names.iter().any(|name| name.contains(unit)))
            .filter(|unit| !is_share || *unit == "seconds")
            .unwrap_or(if is_share { "share" } else { "count" })
    };
    for panel in panels(&dashboard) {
        let units: BTreeSet<_> = queries(panel).into_iter().map(|(expression, _)| unit(expression)).collect();
        assert_eq!(units.len(), 1, "{}: {units:?}", panel["title"]);
        let shown = panel["fieldConfig"]["defaults"]["unit"].as_str().expect("a unit");
        let fits = match units.first() {
            Some(&"seconds") => shown == "s",
            Some(&"bytes") => ["bytes", "Bps"].contains(&shown),
            Some(&"share") => shown == "percentunit",
            Some(&"count") => ["ops", "short"].contains(&shown),
            _ => shown == "short",
        };
        assert!(fits, "{}: {units:?} as {shown}", panel["title"]);
    }
}

/// There may be 64 namespaces, each with four reasons.
#[test]
fn panels_of_namespaces_show_ten_at_most() {
    let dashboard = dashboard();
    for panel in panels(&dashboard) {
        for (expression, _) in queries(panel) {
            if groupings(expression).contains(&"namespace") {
                assert!(expression.contains("topk(10, ") && panel["type"] == "bargauge", "{expression}");
                assert!(!groupings(expression).contains(&"reason"), "{expression}");
            }
        }
    }
}

#[test]
fn every_counter_of_the_cache_itself_is_on_the_dashboard() {
    let dashboard = include_str!("../grafana/radixkv.json");
    let samples = samples(&exported());
    let counters = samples.keys().filter(|name| name.starts_with("radixkv_") && name.ends_with("_total"));
    let missing: Vec<_> = counters.filter(|name| !dashboard.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
