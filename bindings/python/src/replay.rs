//! The function `replay`, which replays a trace of requests through a cache.

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use radixkv_replay::replay::{
    CacheKind, Capacity, EvictionMode, MAX_THREADS, Service, TimeToFirstToken, TimeUnit, WarmUp,
};
use radixkv_replay::{Details, Limits, ReplayConfig, Report, Trace, TraceError};
use serde::Serialize;

use crate::cache::policy;
use crate::errors::exception;
use crate::given::refusal;
use crate::interrupt::{Interrupt, InterruptibleReader, run_interruptible};
use crate::numbers::{float, integer, number, number_or_none};

/// The lowest prefill rate, in tokens a second: at a lower one a time could exceed the range of
/// `f64`.
const SLOWEST: f64 = 1e-6;

/// The output of `radixkv replay --json`.
#[derive(Serialize)]
struct Replayed<'a> {
    trace: String,
    #[serde(flatten)]
    report: &'a Report,
    details: Details,
}

/// Converts a number, or a str in the syntax of the command line, to that str; `accepted` describes
/// both.
fn number_or_text(name: &str, given: Option<&Bound<'_, PyAny>>, accepted: &str) -> PyResult<Option<String>> {
    let Some(given) = given else {
        return Ok(None);
    };
    if given.is_instance_of::<PyString>() {
        return given.extract().map(Some);
    }
    let message = |text: &str| format!("{name} is {text}: must be {accepted}");
    let text = integer::<usize>(given).map(|number| number.to_string());
    text.map(Some).map_err(|refused| refused.error(given, message))
}

fn one_of<T: Copy>(name: &str, given: &str, choices: &[(&str, T)]) -> PyResult<T> {
    let found = choices.iter().find(|(word, _)| *word == given);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        PyValueError::new_err(format!("{name} is {given:?}: must be one of {}", words.join(", ")))
    })
}

fn prefill_rate(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    let accepted = format!("a finite number of at least {SLOWEST:?}");
    let rate = float(given, "prefill_rate", &accepted)?.filter(|rate| rate.is_finite() && *rate >= SLOWEST);
    let message = |text: &str| format!("prefill_rate is {text}: must be {accepted}");
    rate.ok_or_else(|| refusal(given, |text| PyValueError::new_err(message(text))))
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
/// - prefill_rate: tokens per second, at least 0.000001, for a model of the time to the first token.
/// - longest: maximum blocks of a request that is cached. priority_from: the field of the rows with
///   the priority. unit: tokens of a hash id.
/// - time_unit: unit of the trace's timestamps: "s", "ms" or "us".
///
/// Other Python threads run meanwhile. Ctrl-C in the main thread raises KeyboardInterrupt at once.
/// Raises ReplayError, and ValueError or TypeError for an argument that is not accepted, before the
/// trace is read.
#[pyfunction]
#[pyo3(signature = (trace, *, block_size = 16, capacity = None, policy = "lru", cache = "radix", threads = 1,
    eviction = "inline", outputs = false, hold = false, verify = false, checks = 0, warm_up = None, service = None,
    prefill_rate = None, longest = None, priority_from = None, unit = None, time_unit = "ms"))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn replay<'py>(
    py: Python<'py>,
    trace: PathBuf,
    #[pyo3(from_py_with = number)] block_size: usize,
    capacity: Option<&Bound<'py, PyAny>>,
    policy: &str,
    cache: &str,
    #[pyo3(from_py_with = number)] threads: usize,
    eviction: &str,
    outputs: bool,
    hold: bool,
    verify: bool,
    #[pyo3(from_py_with = number)] checks: usize,
    warm_up: Option<&Bound<'py, PyAny>>,
    service: Option<&str>,
    prefill_rate: Option<Bound<'py, PyAny>>,
    #[pyo3(from_py_with = number_or_none)] longest: Option<usize>,
    priority_from: Option<String>,
    #[pyo3(from_py_with = number_or_none)] unit: Option<u32>,
    time_unit: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let refuse = |message| Err(PyValueError::new_err(message));
    if trace.as_os_str().is_empty() {
        return refuse("trace is empty: must be the path of a file".to_owned());
    }
    if block_size == 0 {
        return refuse("block_size is 0: must be at least 1".to_owned());
    }
    if !(1..=MAX_THREADS).contains(&threads) {
        return refuse(format!("threads is {threads}: must be 1 to {MAX_THREADS}"));
    }
    if unit == Some(0) {
        return refuse(format!("unit is 0: must be 1 to {}", u32::MAX));
    }
    let prefill_rate = prefill_rate.map(|given| self::prefill_rate(&given)).transpose()?;
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
    let accepted = "a number of blocks, or a str such as \"4096\" or \"10%\"";
    if let Some(text) = number_or_text("capacity", capacity, accepted)? {
        config = config.capacity(text.parse::<Capacity>().map_err(|error| refused("capacity", &text, error))?);
    }
    let accepted = "a number of requests, or a str such as \"100\" or \"60s\"";
    if let Some(text) = number_or_text("warm_up", warm_up, accepted)? {
        config = config.warm_up(text.parse::<WarmUp>().map_err(|error| refused("warm_up", &text, error))?);
    }
    if let Some(text) = service {
        config = config.service(text.parse::<Service>().map_err(|error| refused("service", text, error))?);
    }
    if let Some(blocks) = longest {
        config = config.longest(blocks);
    }
    let run = move |interrupt: &Interrupt| {
        run(&trace, unit, priority_from.as_deref(), &config, prefill_rate, interrupt).map_err(|error| error.to_string())
    };
    let json = run_interruptible(py, run)?.map_err(|message| exception("ReplayError", message, &[]))?;
    py.import("json")?.call_method1("loads", (json,))
}

fn run(
    path: &PathBuf,
    unit: Option<u32>,
    priority_from: Option<&str>,
    config: &ReplayConfig,
    prefill_rate: Option<f64>,
    interrupt: &Interrupt,
) -> Result<String, Box<dyn Error>> {
    let file = File::open(path).map_err(|source| TraceError::Open { path: path.clone(), source })?;
    let (file, name) = (InterruptibleReader(file, interrupt.clone()), path.display().to_string());
    let trace = Trace::from_reader_within(file, &name, unit, priority_from, &Limits::default())?;
    let mut replayed = radixkv_replay::replay(&trace, config, &|| interrupt.unwind_if_set())?;
    let measured = &replayed.outcomes[replayed.report.warm_up_requests..];
    replayed.report.ttft = prefill_rate.map(|rate| TimeToFirstToken::new(measured, config.block_size, rate));
    let details = Details::new(&trace, config, &replayed)?;
    Ok(serde_json::to_string(&Replayed { trace: name, report: &replayed.report, details })?)
}
