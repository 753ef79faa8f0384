//! Waits of requests that are served in trace time.

use serde::Serialize;

use super::trace_time::Service;

/// The waits of one request that is served in trace time, in seconds.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, Trace, replay};
///
/// let row = r#"{"timestamp": 0, "input_length": 100, "output_length": 10, "hash_ids": [1]}"#;
/// let trace = Trace::from_reader(std::io::Cursor::new(format!("{row}\n{row}")), "rows", Some(100))?;
/// let config = ReplayConfig::default().capacity("64".parse()?).service("100,10,1".parse()?);
/// let times = replay(&trace, &config, &|| {})?.times;
/// // The second request waits for the slot: a second of prefill, a second of decode.
/// assert_eq!((times[0].queue_wait, times[1].queue_wait), (0.0, 2.0));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct RequestTimes {
    /// From its arrival until it has a slot and its blocks.
    pub queue_wait: f64,
    /// From its arrival to its first token.
    pub first_token: f64,
    /// From the arrival of the first request to its own last token.
    pub end: f64,
    /// Steps of the replay: a request sees the inserts of steps before the one in which it started.
    pub(crate) started: u64,
    pub(crate) inserted: u64,
}

/// The totals of a replay in trace time.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
///
/// let config = ReplayConfig::default().service("8000,50,16".parse()?);
/// let report = replay(&CLASSES[2].trace(0), &config, &|| {})?.report;
/// let served = report.service.ok_or("a replay in trace time")?;
/// assert!(served.peak_running <= 16 && served.queue_wait.p50 <= served.first_token.p50);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServiceReport {
    /// Prompt tokens that one request computes in a second.
    pub prefill_rate: f64,
    /// Tokens that one request generates in a second.
    pub decode_rate: f64,
    /// The configured maximum of concurrent requests.
    pub slots: usize,
    /// The most requests that ran concurrently.
    pub peak_running: usize,
    /// From the first arrival to the last token, in seconds.
    pub trace_seconds: f64,
    /// From arrival until a request has a slot and its blocks, in seconds.
    pub queue_wait: Waits,
    /// From arrival to the first token, in seconds.
    pub first_token: Waits,
}

/// Percentiles of a wait in trace time, in seconds.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay, workload::CLASSES};
///
/// let config = ReplayConfig::default().service("8000,50,1000".parse()?);
/// let report = replay(&CLASSES[2].trace(0), &config, &|| {})?.report;
/// assert!(report.service.is_some_and(|served| served.first_token.mean > 0.0));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Waits {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// One request in a hundred waits longer.
    pub p99: f64,
}

impl ServiceReport {
    /// Summarizes the requests after the first `warm_up`.
    pub(super) fn new(service: Service, times: &[RequestTimes], peak_running: usize, warm_up: usize) -> Self {
        let measured = times.get(warm_up..).unwrap_or_default();
        Self {
            prefill_rate: service.prefill_rate,
            decode_rate: service.decode_rate,
            slots: service.slots,
            peak_running,
            trace_seconds: times.iter().map(|times| times.end).fold(0.0, f64::max),
            queue_wait: Waits::of(measured.iter().map(|times| times.queue_wait)),
            first_token: Waits::of(measured.iter().map(|times| times.first_token)),
        }
    }
}

impl Waits {
    fn of(seconds: impl Iterator<Item = f64>) -> Self {
        let mut seconds: Vec<f64> = seconds.collect();
        seconds.sort_unstable_by(f64::total_cmp);
        let count = seconds.len().max(1);
        let at = |quantile: f64| {
            let rank = (quantile * count as f64).ceil() as usize;
            seconds.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Self { mean: seconds.iter().sum::<f64>() / count as f64, p50: at(0.5), p99: at(0.99) }
    }
}
