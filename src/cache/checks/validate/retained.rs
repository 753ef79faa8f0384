//! Checks retained points: each is in the tree and counts the evictor's lease, and every request to
//! retain was processed.

use super::tree::points_of;
use crate::cache::checks::diagnostics::{BrokenInvariant, Mismatch, PointAt, ensure};
use crate::cache::evictor::{Evictor, Resources};
use crate::reclaim::Ref;
use crate::sync::atomic::Ordering::Acquire;
use crate::tree::Run;

/// Checks the evictor's table of retained points against the points of `runs`.
pub(super) fn check(
    runs: &[Ref<'_, Run>],
    evictor: &Evictor<'_>,
    resources: Resources<'_>,
) -> Result<(), BrokenInvariant> {
    let recorded = evictor.common.retained.count().ok_or(BrokenInvariant::UnsoundRetained)?;
    let mut found = 0;
    for &run in runs {
        for point in points_of(run, resources) {
            if let Some(asked) = point.marks.asked(resources.guard) {
                return Err(BrokenInvariant::NotesLeft { notes: asked.leases as usize });
            }
            if !evictor.common.retained.contains(point) {
                continue;
            }
            found += 1;
            // Acquire: as the evictor reads it.
            let leased = point.word.load(Acquire).leases() > 0;
            let kept = leased && !run.space().is_detached();
            ensure(kept, || BrokenInvariant::NotRetained(PointAt::on(run, point.depth())))?;
        }
    }
    Mismatch { recorded, found }.settle(BrokenInvariant::RetainedCount)
}
