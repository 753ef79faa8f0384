//! Checks retained points: each is in the tree and counts the evictor's lease, and every request to
//! retain was processed.

use super::tree::points_of;
use crate::cache::checks::violation::{Place, Violation, broken, ensure, ensure_equal};
use crate::cache::evictor::{Evictor, Resources};
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Acquire;
use crate::tree::Run;

/// Checks the evictor's table of retained points against the points of `runs`.
pub(super) fn check(runs: &[Ref<'_, Run>], evictor: &Evictor<'_>, resources: Resources<'_>) -> Result<(), Violation> {
    let retained = &evictor.common.retained;
    let recorded = retained.count().ok_or_else(|| broken("the record of retained points contradicts itself", ""))?;
    let mut found = 0;
    for &run in runs {
        for point in points_of(run, resources) {
            if let Some(asked) = point.marks.asked(resources.guard) {
                return Err(broken(
                    "requests to retain a prefix were not processed",
                    format_args!("{} requests", asked.leases as usize),
                ));
            }
            if !retained.contains(point) {
                continue;
            }
            found += 1;
            // Acquire: as the evictor reads it.
            let leased = point.word.load(Acquire).leases() > 0;
            let kept = leased && !run.space().is_detached();
            ensure(kept, "a retained point has no lease, or is in a detached tree", Place::on(run, point.depth()))?;
        }
    }
    ensure_equal(recorded, found, "the number of retained points is wrong")
}
