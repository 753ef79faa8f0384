//! One round of the background thread: turns of the evictor, until no work is left.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::cache::inner::{Inner, STEP};
use crate::cache::spans::within_span;
use crate::sync::{Weak, contained};
#[cfg(radixkv_loom)]
use {
    super::{Background, Watermarks},
    crate::cache::prefix_cache::PrefixCache,
    crate::sync::{Arc, Bell},
};

/// The most blocks that one step frees.
const SLICE: usize = 128;

/// With times to idle the thread looks at intervals of an eighth of the shortest in force, within
/// these bounds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Performs one round. Returns the time by which the next one is due, or a break if the cache is
/// gone.
pub(in crate::cache) fn turn(inner: &Weak<Inner>) -> ControlFlow<(), Option<Instant>> {
    let Some(inner) = inner.upgrade() else {
        return ControlFlow::Break(());
    };
    // A step that panics leaves no lock held (tests/faults.rs), but the rest of its round undone and
    // the first retention's end unknown. So the thread looks again.
    let mut retained = Some(Instant::now() + LONGEST_PAUSE);
    contained(|| retained = inner.work_off());
    let pause = inner.time_to_idle_passes().map(|idle| (idle / 8).clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    ControlFlow::Continue(pause.map(|pause| Instant::now() + pause).into_iter().chain(retained).min())
}

/// For models, whose threads the checker starts: the background thread's rounds and bell, without
/// the thread.
#[cfg(radixkv_loom)]
impl PrefixCache {
    /// Makes calls of the background evictor ring the returned bell; after each ring the model runs
    /// the returned round.
    pub(crate) fn evict_beside(&self, watermarks: Watermarks) -> (Arc<Bell>, impl Fn() + use<>) {
        let bell = Arc::new(Bell::new());
        self.inner.change(|live| live.watermarks = Some(watermarks));
        let background = Background { bell: Arc::clone(&bell), thread: None, process: std::process::id() };
        assert!(self.inner.background.set(background).is_ok(), "one evictor");
        let inner = Arc::clone(&self.inner);
        (bell, move || _ = inner.work_off())
    }
}

impl Inner {
    /// The shortest time to idle; `None` on a logical clock, which advances only when it is set.
    fn time_to_idle_passes(&self) -> Option<Duration> {
        self.shortest_time_to_idle().filter(|_| !self.time.is_logical())
    }

    /// Takes in the queued changes, and evicts up to the high watermark if free blocks are below
    /// the low one. Returns when the next look is due.
    fn work_off(&self) -> Option<Instant> {
        let (mut evicting, mut waits) = (false, false);
        loop {
            within_span!("step");
            // Read at each step, because they may change meanwhile.
            let watermarks = self.settings.watermarks();
            let short = || self.sink().free() < watermarks.low;
            evicting |= short();
            let aging = self.aging();
            let (more, retained) = self.in_turn(|evictor, resources| {
                if std::mem::take(&mut waits) {
                    evictor.settle_for_waiter(resources);
                }
                let more = self.step(aging, evictor, resources);
                let mut entries = STEP;
                let kept = if evictor.has_sink() { self.kept.for_waiter() } else { 0 };
                let ready = evictor.free(resources) + evictor.offered() + kept;
                let missing = if evicting { watermarks.high.saturating_sub(ready) } else { 0 };
                let evicted = if missing == 0 { 0 } else { evictor.evict(missing.min(SLICE), &mut entries, resources) };
                let more = more || (evicted > 0 && evicted < missing) || evictor.needs_turn();
                (more, self.next_look(evictor))
            });
            if more {
                continue;
            }
            if !short() {
                self.wait_list.evictor_wakes();
            } else if !self.wait_list.evictor_is_waiting() {
                // From now on a release wakes the thread. The next look sees the releases before
                // this.
                self.wait_list.evictor_waits();
                waits = true;
                continue;
            }
            return retained;
        }
    }
}
