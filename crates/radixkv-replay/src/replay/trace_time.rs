//! Trace time, in seconds since the first arrival: the warm-up, and the model of how fast requests
//! are served.

use std::str::FromStr;

use super::error::ReplayError;
use crate::request::{Request, Trace};

/// The unit of a trace's timestamps.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{ReplayConfig, replay::TimeUnit};
///
/// let config = ReplayConfig::default().time_unit(TimeUnit::Seconds);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds, as in Mooncake's traces.
    #[default]
    Milliseconds,
    /// Microseconds.
    Microseconds,
}

impl TimeUnit {
    /// Seconds from the first arrival to the arrival of request `number`.
    ///
    /// # Panics
    ///
    /// If the trace has no such request.
    #[must_use]
    pub fn seconds_between(self, trace: &Trace, number: usize) -> f64 {
        arrival(trace, &trace.requests()[number], self)
    }

    pub(super) fn seconds(self, timestamps: f64) -> f64 {
        timestamps
            / match self {
                Self::Seconds => 1.0,
                Self::Milliseconds => 1e3,
                Self::Microseconds => 1e6,
            }
    }
}

/// The first requests of a trace, which fill the cache and are left out of rates.
///
/// # Examples
///
/// ```
/// use radixkv_replay::replay::WarmUp;
///
/// assert_eq!("100".parse(), Ok(WarmUp::Requests(100)));
/// assert_eq!("60s".parse(), Ok(WarmUp::Seconds(60.0)));
/// assert!("-1s".parse::<WarmUp>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum WarmUp {
    /// This number of requests.
    Requests(usize),
    /// The requests that arrive earlier than this many seconds after the first one.
    Seconds(f64),
}

impl WarmUp {
    /// The number of requests in the warm-up; fails if it leaves none to measure.
    pub(super) fn requests(self, trace: &Trace, unit: TimeUnit) -> Result<usize, ReplayError> {
        let all = trace.requests();
        let requests = match self {
            Self::Requests(requests) => requests,
            Self::Seconds(seconds) => all.partition_point(|request| arrival(trace, request, unit) < seconds),
        };
        if requests > 0 && requests >= all.len() {
            return Err(ReplayError::AllWarmUp { warm_up: requests, requests: all.len() });
        }
        Ok(requests)
    }
}

/// The arrival time of a request, in seconds after the first arrival.
pub(super) fn arrival(trace: &Trace, request: &Request, unit: TimeUnit) -> f64 {
    let first = trace.requests().first().map_or(0.0, Request::timestamp);
    unit.seconds(request.timestamp() - first).clamp(0.0, f64::MAX)
}

impl FromStr for WarmUp {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let Some(seconds) = text.strip_suffix('s') else {
            return text
                .parse()
                .map(Self::Requests)
                .map_err(|_| "neither requests, such as 100, nor seconds, such as 60s");
        };
        match seconds.trim().parse::<f64>() {
            Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(Self::Seconds(seconds)),
            _ => Err("not a number of seconds, such as 60s"),
        }
    }
}

/// A model of serving in trace time: requests arrive at the trace's timestamps, wait for a slot,
/// and hold their lease and blocks until their last token.
///
/// # Examples
///
/// ```
/// use radixkv_replay::replay::Service;
///
/// let service: Service = "8000,50,16".parse()?; // 16 requests at once, each 8,000 tokens a second and then 50
/// assert_eq!((service.prefill_rate, service.decode_rate, service.slots), (8000.0, 50.0, 16));
/// assert!("8000,0,16".parse::<Service>().is_err());
/// # Ok::<_, &str>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// Prompt tokens that one request computes in a second.
    pub prefill_rate: f64,
    /// Tokens that one request generates in a second.
    pub decode_rate: f64,
    /// Maximum number of concurrent requests.
    pub slots: usize,
}

impl FromStr for Service {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let [prefill, decode, slots] = parts[..] else {
            return Err("not three numbers: tokens a second in prefill and in decode, and slots, such as 8000,50,16");
        };
        let rate = |text: &str| text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= SLOWEST);
        let prefill_rate =
            rate(prefill).ok_or("the prefill rate is not a number of tokens a second from 0.000001 up")?;
        let decode_rate = rate(decode).ok_or("the decode rate is not a number of tokens a second from 0.000001 up")?;
        let slots = slots.parse().ok().filter(|&slots| slots > 0);
        let slots = slots.ok_or("slots is not a whole number above zero")?;
        Ok(Self { prefill_rate, decode_rate, slots })
    }
}

/// The lowest rate, in tokens a second: at a lower one a time could exceed the range of `f64`.
const SLOWEST: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_service_says_which_part() {
        for (text, part) in [
            ("8000,50", "three numbers"),
            ("8000,50,16,2", "three numbers"),
            ("", "three numbers"),
            ("fast,50,16", "prefill rate"),
            ("inf,50,16", "prefill rate"),
            ("8000,-1,16", "decode rate"),
            ("8000,1e-9,16", "decode rate"),
            ("8000,50,0", "slots"),
            ("8000,50,1.5", "slots"),
        ] {
            let said = text.parse::<Service>().expect_err(text);
            assert!(said.contains(part), "{text}: {said}");
        }
    }

    #[test]
    fn a_warm_up_takes_the_requests_that_arrive_earlier() {
        let rows = "{\"timestamp\": 5000, \"input_tok_ids\": [1]}\n{\"timestamp\": 6000, \"input_tok_ids\": [1]}\n\
                    {\"timestamp\": 7000, \"input_tok_ids\": [1]}";
        let trace = Trace::from_reader(rows.as_bytes(), "rows", None).expect("a trace");
        let of = |warm_up: WarmUp| warm_up.requests(&trace, TimeUnit::Milliseconds).expect("some are left");
        assert_eq!([0.0, 0.5, 1.0, 1.5].map(|seconds| of(WarmUp::Seconds(seconds))), [0, 1, 1, 2]);
        assert_eq!(of(WarmUp::Requests(2)), 2);
        let all = WarmUp::Seconds(9.0).requests(&trace, TimeUnit::Milliseconds);
        assert!(matches!(all, Err(ReplayError::AllWarmUp { warm_up: 3, requests: 3 })));
    }
}
