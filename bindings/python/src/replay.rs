//! The function `replay`, which replays a trace of requests through a cache.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use radixkv_replay::replay::{
    CacheKind, Capacity, EvictionMode, MAX_THREADS, Service, TimeToFirstToken, TimeUnit, WarmUp,
};
use radixkv_replay::{Details, Limits, ReplayConfig, Report, Trace};
use serde::Serialize;

use crate::cache::policy;
use crate::errors::{catch, exception};
use crate::numbers::{number, number_or_none};

/// The output of `radixkv replay --json`.
#[derive(Serialize)]
struct Replayed<'a> {
    trace: String,
    #[serde(flatten)]
    report: &'a Report,
    details: Details,
}

/// A number, or a text in the syntax of the command line.
#[derive(FromPyObject)]
pub(crate) enum NumberOrText {
    Number(usize),
    Text(String),
}

impl NumberOrText {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

fn one_of<T: Copy>(name: &str, given: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let found = choices.iter().find(|(word, _)| *word == given);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        PyValueError::new_err(format!("{name} is {given:?}: must be one of {}", words.join(", ")))
    })
}

fn refused(name: &str, given: &str, error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{name} is {given:?}: {error}"))
}

/// replay(trace, *, ...): replays a file of requests through a cache, and returns the output of
/// `radixkv replay --json` as a dict.
///
/// - trace: the path of a file of JSON lines, plain or compressed with gzip or zstd.
/// - block_size: tokens in a block. capacity: number of blocks, or a str: "4096", or "10%" of the
///   trace's working set.
/// - policy: as for `PrefixCache`. cache: "radix", or "naive", which caches nothing.
/// - threads: number of threads that share the cache. eviction: "inline" or "background".
/// - outputs: whether generated tokens are cached. hold: whether requests hold their leases while
///   they run.
/// - verify: whether every hit is checked. checks: number of checks of the whole cache.
/// - warm_up: number of first requests that do not count, or a time such as "60s". service:
///   "PREFILL,DECODE,SLOTS": requests run in the trace's own time.
/// - prefill_rate: tokens per second, for a model of the time to the first token.
/// - longest: maximum blocks of a request that is cached. priority_from: the field of the rows with
///   the priority. unit: tokens of a hash id.
/// - time_unit: unit of the trace's timestamps: "s", "ms" or "us".
///
/// Other Python threads run meanwhile. Raises ReplayError, ValueError, TypeError.
#[pyfunction]
#[pyo3(signature = (trace, *, block_size = 16, capacity = None, policy = "lru", cache = "radix", threads = 1,
    eviction = "inline", outputs = false, hold = false, verify = false, checks = 0, warm_up = None, service = None,
    prefill_rate = None, longest = None, priority_from = None, unit = None, time_unit = "ms"))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn replay<'py>(
    py: Python<'py>,
    trace: PathBuf,
    #[pyo3(from_py_with = number)] block_size: usize,
    capacity: Option<NumberOrText>,
    policy: &str,
    cache: &str,
    #[pyo3(from_py_with = number)] threads: usize,
    eviction: &str,
    outputs: bool,
    hold: bool,
    verify: bool,
    #[pyo3(from_py_with = number)] checks: usize,
    warm_up: Option<NumberOrText>,
    service: Option<&str>,
    prefill_rate: Option<f64>,
    #[pyo3(from_py_with = number_or_none)] longest: Option<usize>,
    priority_from: Option<String>,
    #[pyo3(from_py_with = number_or_none)] unit: Option<u32>,
    time_unit: &str,
) -> PyResult<Bound<'py, PyAny>> {
    if !(1..=MAX_THREADS).contains(&threads) {
        return Err(PyValueError::new_err(format!("threads is {threads}: must be 1 to {MAX_THREADS}")));
    }
    if prefill_rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return Err(PyValueError::new_err(format!("prefill_rate is {prefill_rate:?}: must be a number above zero")));
    }
    let mut config = ReplayConfig::default()
        .block_size(block_size)
        .policy(self::policy(policy)?)
        .cache(one_of("cache", cache, &[("radix", CacheKind::Radix), ("naive", CacheKind::Naive)])?)
        .threads(threads)
        .eviction(one_of(
            "eviction",
            eviction,
            &[("inline", EvictionMode::Inline), ("background", EvictionMode::Background)],
        )?)
        .outputs(outputs)
        .hold(hold)
        .verify(verify)
        .checks(checks)
        .time_unit(one_of(
            "time_unit",
            time_unit,
            &[("s", TimeUnit::Seconds), ("ms", TimeUnit::Milliseconds), ("us", TimeUnit::Microseconds)],
        )?);
    if let Some(text) = capacity.map(|given| given.text()) {
        config = config.capacity(text.parse::<Capacity>().map_err(|error| refused("capacity", &text, error))?);
    }
    if let Some(text) = warm_up.map(|given| given.text()) {
        config = config.warm_up(text.parse::<WarmUp>().map_err(|error| refused("warm_up", &text, error))?);
    }
    if let Some(text) = service {
        config = config.service(text.parse::<Service>().map_err(|error| refused("service", text, error))?);
    }
    if let Some(blocks) = longest {
        config = config.longest(blocks);
    }
    let run = || run(&trace, unit, priority_from.as_deref(), &config, prefill_rate);
    let json = py.detach(|| catch(run))?.map_err(|message| exception("ReplayError", message, &[]))?;
    py.import("json")?.call_method1("loads", (json,))
}

fn run(
    path: &PathBuf,
    unit: Option<u32>,
    priority_from: Option<&str>,
    config: &ReplayConfig,
    prefill_rate: Option<f64>,
) -> Result<String, String> {
    let trace = Trace::open_within(path, unit, priority_from, &Limits::default()).map_err(|error| error.to_string())?;
    let mut replayed = radixkv_replay::replay(&trace, config, &|| {}).map_err(|error| error.to_string())?;
    let measured = &replayed.outcomes[replayed.report.warm_up_requests..];
    replayed.report.ttft = prefill_rate.map(|rate| TimeToFirstToken::new(measured, config.block_size, rate));
    let details = Details::new(&trace, config, &replayed).map_err(|error| error.to_string())?;
    let all = Replayed { trace: path.display().to_string(), report: &replayed.report, details };
    serde_json::to_string(&all).map_err(|error| error.to_string())
}
