//! Computes states from the metrics of a cache.

use std::{cmp::Reverse, collections::BTreeMap, time::Instant};

use super::scrape::{Address, Samples, ScrapeError};
use crate::live::{Namespace, Period, State};

/// Number of periods that are kept.
const KEPT: usize = 240;
/// Number of namespaces that are listed.
const LISTED: usize = 20;

/// Accesses one count of a namespace.
type Count = fn(&mut Namespace) -> &mut u64;

/// A cache whose metrics are served at an address.
pub(super) struct Scraped {
    address: Address,
    /// The previous state, and the time when it was read.
    last: Option<(State, Instant)>,
}

impl Scraped {
    pub(super) fn new(address: Address) -> Self {
        Self { address, last: None }
    }

    /// The address as the user gave it.
    pub(super) fn name(&self) -> &str {
        self.address.name()
    }

    /// Reads the current state, with the periods between the last reads.
    ///
    /// # Errors
    ///
    /// [`ScrapeError`]; `Ok(None)` if the metrics do not belong to a cache.
    pub(super) fn read(&mut self) -> Result<Option<State>, ScrapeError> {
        let samples = Samples::scrape(&self.address)?;
        let Some(mut state) = state(&samples) else { return Ok(None) };
        self.name().clone_into(&mut state.trace);
        let now = Instant::now();
        if let Some((before, when)) = &mut self.last {
            state.periods = std::mem::take(&mut before.periods);
            let period = period(before, &state);
            state.per_second = Some(period.requests as f64 / (now - *when).as_secs_f64().max(1e-3));
            state.periods.push_back(period);
            if state.periods.len() > KEPT {
                state.periods.pop_front();
            }
        }
        self.last = Some((state.clone(), now));
        Ok(Some(state))
    }
}

/// The counts between two states; zero if they fell, which means that the cache was restarted.
fn period(before: &State, now: &State) -> Period {
    Period {
        requests: now.requests.saturating_sub(before.requests),
        prompt_tokens: now.prompt_tokens.saturating_sub(before.prompt_tokens),
        hit_tokens: now.hit_tokens.saturating_sub(before.hit_tokens),
        evicted_blocks: now.evicted_blocks.saturating_sub(before.evicted_blocks),
    }
}

/// The state that the samples describe; `None` if they do not belong to a cache.
fn state(samples: &Samples) -> Option<State> {
    let count = |name: &str| samples.sum(name).unwrap_or(0.0) as u64;
    // Added up before they are converted: the values may be anything.
    let blocks = |state: &str| samples.sum_of("radixkv_blocks", "state", state).unwrap_or(0.0);
    let evicted = |reason: &str| samples.sum_of("radixkv_evicted_blocks_total", "reason", reason).unwrap_or(0.0);
    Some(State {
        capacity_blocks: samples.sum("radixkv_capacity_blocks")? as usize,
        // Several caches have one size, and not the sum of theirs.
        block_size: samples.all("radixkv_block_size_tokens").next().map_or(0, |size| size.value as usize),
        requests: count("radixkv_lookups_total") as usize,
        prompt_tokens: count("radixkv_query_tokens_total"),
        hit_tokens: count("radixkv_hit_tokens_total"),
        cached_blocks: (blocks("evictable") + blocks("protected")) as usize,
        protected_blocks: blocks("protected") as usize,
        inserted_blocks: count("radixkv_inserted_blocks_total"),
        evicted_blocks: (evicted("capacity") + evicted("quota")) as u64,
        index_bytes: count("radixkv_index_bytes") as usize,
        runs: count("radixkv_runs") as usize,
        namespaces: namespaces(samples),
        ..State::default()
    })
}

/// The namespaces with the most looked-up tokens.
fn namespaces(samples: &Samples) -> Vec<Namespace> {
    let mut all = BTreeMap::<String, Namespace>::new();
    let fields: [(&str, Count); 3] = [
        ("radixkv_namespace_lookups_total", |space| &mut space.lookups),
        ("radixkv_namespace_query_tokens_total", |space| &mut space.query_tokens),
        ("radixkv_namespace_hit_tokens_total", |space| &mut space.hit_tokens),
    ];
    for (metric, field) in fields {
        for sample in samples.all(metric) {
            let name = match (sample.label("kind").as_deref(), sample.label("namespace")) {
                (Some("default"), _) => "(default)".to_owned(),
                (Some("others"), _) => "(all others)".to_owned(),
                (Some("pairs"), name) => format!("{} (pairs)", name.unwrap_or_default()),
                (_, name) => name.unwrap_or_default(),
            };
            let sum = field(all.entry(name).or_default());
            *sum = sum.saturating_add(sample.value as u64);
        }
    }
    let mut all: Vec<_> = all.into_iter().map(|(name, space)| Namespace { name, ..space }).collect();
    all.sort_by_key(|space| Reverse(space.query_tokens));
    all.truncate(LISTED);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_added_up_and_their_block_sizes_are_not() {
        let text = "radixkv_capacity_blocks{cache=\"a\"} 8\nradixkv_capacity_blocks{cache=\"b\"} 8\n\
            radixkv_block_size_tokens{cache=\"a\"} 16\nradixkv_block_size_tokens{cache=\"b\"} 16\n";
        let state = state(&Samples::parse(text)).expect("a cache");
        assert_eq!((state.capacity_blocks, state.block_size), (16, 16));
    }

    #[test]
    fn values_without_bound_are_added_up() {
        let text = "radixkv_capacity_blocks 1e30\n\
            radixkv_blocks{state=\"evictable\"} 1e30\nradixkv_blocks{state=\"protected\"} 1e30\n\
            radixkv_evicted_blocks_total{reason=\"capacity\"} inf\nradixkv_evicted_blocks_total{reason=\"quota\"} 1\n\
            radixkv_namespace_lookups_total{kind=\"others\"} 1e30\nradixkv_namespace_lookups_total{kind=\"others\"} 1\n";
        let state = state(&Samples::parse(text)).expect("a cache");
        assert_eq!((state.cached_blocks, state.evicted_blocks), (usize::MAX, u64::MAX));
        assert_eq!(state.namespaces[0].lookups, u64::MAX);
    }

    // Holds: RP24.
    #[test]
    fn namespaces_are_listed_by_their_tokens() {
        let text = "radixkv_namespace_lookups_total{kind=\"default\",namespace=\"\"} 2\n\
            radixkv_namespace_query_tokens_total{kind=\"default\",namespace=\"\"} 20\n\
            radixkv_namespace_query_tokens_total{kind=\"named\",namespace=\"a/b\"} 90\n\
            radixkv_namespace_hit_tokens_total{kind=\"named\",namespace=\"a/b\"} 45\n";
        let named = |name: &str, lookups, query_tokens, hit_tokens| Namespace {
            name: name.to_owned(),
            lookups,
            query_tokens,
            hit_tokens,
        };
        let expected = [named("a/b", 0, 90, 45), named("(default)", 2, 20, 0)];
        assert_eq!(namespaces(&Samples::parse(text)), expected);
    }
}
