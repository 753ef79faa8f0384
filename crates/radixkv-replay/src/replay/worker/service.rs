//! Serves requests in trace time: they arrive at the trace's timestamps and run concurrently.
//!
//! A request waits, in order of arrival, for a slot and for its blocks. It then computes the tokens
//! that were not cached, inserts the whole blocks of its prompt, generates its tokens, inserts
//! their blocks if outputs are cached, and drops its lease. Blocks that one request is computing
//! cannot be matched by another before they are inserted. These are simulated steps that take no
//! time in the cache: one thread executes them one by one, in the order of their moments in trace
//! time.

use std::collections::BTreeMap;

use radixkv::{Lease, Reservation};

use super::Worker;
use crate::{
    replay::{
        error::ReplayError,
        tally::Held,
        times::RequestTimes,
        trace_time::{Service, arrival},
    },
    request::Request,
};

/// The running requests, and the current trace time.
pub(super) struct Running {
    service: Service,
    /// Seconds since the first arrival.
    now: f64,
    /// Number of steps so far.
    step: u64,
    /// The planned events, keyed by their moment, then by the step that planned them. Moments are
    /// never negative, so the bits of the `f64` sort like the values.
    events: BTreeMap<(u64, u64), Event>,
    requests: usize,
}

enum Event {
    /// The prompt is computed.
    Computed(Run),
    /// The last token is generated.
    Ended(Run),
}

/// A request that is running.
struct Run {
    number: usize,
    /// The lease on its matched or inserted prefix; `None` if the request bypasses the cache.
    lease: Option<Lease>,
    /// Blocks for the part that is not inserted yet.
    reservation: Option<Reservation>,
    end: f64,
}

impl Running {
    pub(super) fn new(service: Service) -> Self {
        Self { service, now: 0.0, step: 0, events: BTreeMap::new(), requests: 0 }
    }

    fn plan(&mut self, at: f64, event: Event) {
        self.events.insert((at.to_bits(), self.step), event);
    }
}

impl Worker<'_> {
    /// Serves the requests that `next` returns. Then lets them run to their end, unless
    /// `stops_running` is set.
    pub(super) fn run_in_trace_time(
        &mut self,
        service: Service,
        next: impl Fn() -> Option<usize>,
    ) -> Result<(), ReplayError> {
        let mut running = Running::new(service);
        while let Some(number) = next() {
            let request = &self.shared.trace.requests()[number];
            let arrived = arrival(self.shared.trace, request, self.shared.config.time_unit);
            while running.next_moment().is_some_and(|moment| moment <= arrived) || running.requests >= service.slots {
                self.step(&mut running)?;
            }
            running.now = running.now.max(arrived);
            self.begin(&mut running, number, request, arrived)?;
        }
        if self.shared.stops_running {
            self.tally.held = running.held();
            return Ok(());
        }
        while !running.events.is_empty() {
            self.step(&mut running)?;
        }
        Ok(())
    }

    /// Takes a slot, and the blocks as soon as there are enough; plans the end of prefill.
    fn begin(
        &mut self,
        running: &mut Running,
        number: usize,
        request: &Request,
        arrived: f64,
    ) -> Result<(), ReplayError> {
        let (prompt, block_size) = (request.prompt_tokens(), self.shared.config.block_size);
        let blocks = request.key_tokens(self.shared.config.outputs) / block_size;
        let bypassed = blocks > self.shared.max_blocks;
        let (hit_blocks, lease, reservation) = if bypassed {
            running.step += 1;
            (None, None, None)
        } else {
            self.prepare(request, blocks * block_size)?;
            let (hit, lease, reservation) = self.take(running, request, blocks)?;
            (Some(hit as u32), Some(lease), reservation)
        };
        let outcome = self.outcome(request, hit_blocks);
        // An engine always computes the last token of a prompt.
        let computed = outcome.computed_tokens(block_size).max(prompt.min(1));
        let first_token = running.now + computed as f64 / running.service.prefill_rate;
        let end = first_token + request.output_tokens() as f64 / running.service.decode_rate;
        let started = running.step;
        running.plan(first_token, Event::Computed(Run { number, lease, reservation, end }));
        running.requests += 1;
        self.tally.peak_running = self.tally.peak_running.max(running.requests);
        self.tally.times.try_reserve(1)?;
        let (queue_wait, first_token) = (running.now - arrived, first_token - arrived);
        self.tally.times.push(RequestTimes { queue_wait, first_token, end, started, inserted: u64::MAX });
        self.served(number, outcome)
    }

    /// Matches and reserves; while blocks are short, advances to the next events.
    fn take(
        &mut self,
        running: &mut Running,
        request: &Request,
        blocks: usize,
    ) -> Result<(usize, Lease, Option<Reservation>), ReplayError> {
        let block_size = self.shared.config.block_size;
        let prompt = request.prompt_tokens() / block_size * block_size;
        loop {
            self.set_time(running);
            let (lease, hit) = self.look_up(request, prompt);
            if hit == blocks {
                return Ok((hit, lease, None));
            }
            match self.reserve(blocks - hit) {
                Ok(reservation) => {
                    self.stamp_reserved(&reservation, hit)?;
                    return Ok((hit, lease, Some(reservation)));
                }
                Err(source) if running.events.is_empty() => {
                    return Err(ReplayError::Refused { row: request.row(), source });
                }
                Err(_) => drop(lease),
            }
            self.step(running)?;
            self.prepare(request, blocks * block_size)?;
        }
    }

    /// Executes the next planned event.
    fn step(&mut self, running: &mut Running) -> Result<(), ReplayError> {
        let Some(((moment, _), event)) = running.events.pop_first() else {
            return Ok(());
        };
        running.now = running.now.max(f64::from_bits(moment));
        self.set_time(running);
        match event {
            Event::Computed(mut run) => {
                let request = &self.shared.trace.requests()[run.number];
                self.publish(&mut run, request.prompt_tokens())?;
                run.lease.iter().for_each(|lease| self.prioritize(request, lease));
                self.tally.times[run.number].inserted = running.step;
                running.plan(run.end, Event::Ended(run));
            }
            Event::Ended(mut run) => {
                let request = &self.shared.trace.requests()[run.number];
                self.publish(&mut run, request.key_tokens(self.shared.config.outputs))?;
                run.lease.iter().for_each(|lease| self.prioritize(request, lease));
                running.requests -= 1;
            }
        }
        Ok(())
    }

    /// Inserts the reserved blocks within a key's first `tokens` tokens.
    fn publish(&mut self, run: &mut Run, tokens: usize) -> Result<(), ReplayError> {
        let block_size = self.shared.config.block_size;
        let (Some(lease), Some(mut rest)) = (run.lease.as_ref(), run.reservation.take()) else {
            return Ok(());
        };
        let (from, to) = (lease.len_tokens() / block_size, tokens / block_size);
        if from == to {
            run.reservation = Some(rest);
            return Ok(());
        }
        let request = &self.shared.trace.requests()[run.number];
        self.prepare(request, to * block_size)?;
        let part = rest.split(to - from);
        let lease = self.insert(request, lease, part, to)?;
        run.lease = Some(lease);
        run.reservation = Some(rest).filter(|rest| !rest.is_empty());
        Ok(())
    }

    /// Advances the cache's clock: each step has its own time.
    fn set_time(&mut self, running: &mut Running) {
        running.step += 1;
        self.shared.cache.set_time(running.step);
    }
}

impl Running {
    fn next_moment(&self) -> Option<f64> {
        self.events.first_key_value().map(|(&(moment, _), _)| f64::from_bits(moment))
    }

    /// The leases of the requests that are running.
    fn held(&self) -> Vec<Held> {
        let held = |event: &Event| {
            let (Event::Computed(run) | Event::Ended(run)) = event;
            run.lease.as_ref().map(|lease| Held { number: run.number, tokens: lease.len_tokens() })
        };
        self.events.values().filter_map(held).collect()
    }
}
