//! Prints a line for each second of trace time in which requests arrived.

use std::sync::{Mutex, PoisonError};

use radixkv_replay::{
    ReplayConfig, Trace,
    replay::{Served, TimeUnit},
};

use crate::console;

/// The counts of the requests of one second.
#[derive(Debug, Default)]
struct Second {
    /// The number of the second since the first arrival.
    number: u64,
    requests: usize,
    prompt_tokens: u64,
    device_tokens: u64,
    host_tokens: u64,
    /// `None` if there is no remote tier.
    remote_tokens: Option<u64>,
    host_blocks: usize,
}

/// Counts requests by second, and prints each second when the next one begins.
pub(crate) struct Seconds<'a> {
    trace: &'a Trace,
    block_size: usize,
    unit: TimeUnit,
    has_remote: bool,
    second: Mutex<Second>,
}

impl<'a> Seconds<'a> {
    pub(crate) fn new(trace: &'a Trace, config: &ReplayConfig) -> Self {
        let has_remote = config.tiers.is_some_and(|tiers| tiers.remote_capacity.is_some());
        Self { trace, block_size: config.block_size, unit: config.time_unit, has_remote, second: Mutex::default() }
    }

    /// Adds a request.
    pub(crate) fn add(&self, served: &Served<'_>) {
        let number = self.unit.seconds_between(self.trace, served.number) as u64;
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        if number != second.number {
            second.say();
            *second = Second { number, ..Second::default() };
        }
        let outcome = served.outcome;
        second.requests += 1;
        second.prompt_tokens += outcome.prompt_tokens as u64;
        second.device_tokens += outcome.device_tokens(self.block_size) as u64;
        second.host_tokens += u64::from(outcome.host_tokens);
        if self.has_remote {
            *second.remote_tokens.get_or_insert(0) += u64::from(outcome.remote_tokens);
        }
        second.host_blocks = served.host.map_or(0, |host| host.cached_blocks());
    }

    /// Prints the last second.
    pub(crate) fn end(self) {
        self.second.into_inner().unwrap_or_else(PoisonError::into_inner).say();
    }
}

impl Second {
    fn say(&self) {
        if self.requests > 0 {
            console::say(self.line());
        }
    }

    fn line(&self) -> String {
        let share = |tokens: u64| 100.0 * tokens as f64 / self.prompt_tokens.max(1) as f64;
        let hits = self.device_tokens + self.host_tokens + self.remote_tokens.unwrap_or(0);
        let remote = self.remote_tokens.map_or(String::new(), |tokens| format!(", remote={:.0}%", share(tokens)));
        format!(
            "t={}s requests={} prompt_t={} (hits included) prefix_hit={:.0}% (device={:.0}%, host={:.0}%{remote}) \
             prefix_pool={}",
            self.number,
            self.requests,
            self.prompt_tokens,
            share(hits),
            share(self.device_tokens),
            share(self.host_tokens),
            self.host_blocks
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_shares_of_all_tiers() {
        let mut second = Second {
            number: 7,
            requests: 2,
            prompt_tokens: 1000,
            device_tokens: 420,
            host_tokens: 360,
            remote_tokens: None,
            host_blocks: 99,
        };
        let line = "t=7s requests=2 prompt_t=1000 (hits included) prefix_hit=78% (device=42%, host=36%) prefix_pool=99";
        assert_eq!(second.line(), line);
        second.remote_tokens = Some(50);
        assert_eq!(second.line(), line.replace("78", "83").replace("36%", "36%, remote=5%"));
    }
}
