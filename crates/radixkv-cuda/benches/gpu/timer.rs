//! Medians by the device's own events, after a warm-up.

use std::time::{Duration, Instant};

use radixkv_cuda::{Device, GpuError};

use super::clocks::{Clocks, Megahertz};

/// Rounds of which the median is taken.
pub const ROUNDS: usize = 15;

/// A GPU that was idle takes so long to raise its clocks.
const WARM_UP: Duration = Duration::from_millis(200);

/// Measures work of one device.
pub struct Timer {
    device: Device,
    clocks: Option<Clocks>,
    /// One round and no warm-up: only to see that it runs.
    is_trial: bool,
}

/// A median, and the clocks right after it.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub us: f64,
    pub clocks: Option<Megahertz>,
}

impl Timer {
    pub fn new(device: &Device, is_trial: bool) -> Self {
        Self { device: device.clone(), clocks: Clocks::open(), is_trial }
    }

    /// Median microseconds of the work; `queue` queues it `times` times.
    pub fn median(&self, times: usize, mut queue: impl FnMut() -> Result<(), GpuError>) -> Result<Measured, GpuError> {
        let (rounds_wanted, warm_up) = if self.is_trial { (1, Duration::ZERO) } else { (ROUNDS, WARM_UP) };
        let began = Instant::now();
        loop {
            queue()?;
            self.device.synchronize()?;
            if began.elapsed() >= warm_up {
                break;
            }
        }
        let mut rounds = Vec::with_capacity(rounds_wanted);
        for _ in 0..rounds_wanted {
            let start = self.device.record_event()?;
            queue()?;
            rounds.push(start.microseconds_to(&self.device.record_event()?)? / times as f64);
        }
        rounds.sort_unstable_by(f64::total_cmp);
        Ok(Measured { us: rounds[rounds_wanted / 2], clocks: self.clocks_at_work(queue)? })
    }

    /// The same, launched from a graph: `queue` is called once.
    pub fn median_replayed(
        &self,
        times: usize,
        mut queue: impl FnMut() -> Result<(), GpuError>,
    ) -> Result<Measured, GpuError> {
        let graph = self.device.capture(&mut queue)?;
        // SAFETY: what was captured is borrowed by `queue`, and all launches were waited for when
        // this returns.
        let measured = self.median(times, || unsafe { graph.launch() });
        self.device.synchronize()?;
        measured
    }

    /// The clocks while the work runs once more.
    fn clocks_at_work(&self, mut queue: impl FnMut() -> Result<(), GpuError>) -> Result<Option<Megahertz>, GpuError> {
        let Some(clocks) = &self.clocks else { return Ok(None) };
        queue()?;
        let now = clocks.now();
        self.device.synchronize()?;
        Ok(now)
    }
}
