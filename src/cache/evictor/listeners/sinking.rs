//! Evicted blocks on their way to the eviction sink, which gets them after the turn.

use super::{Listeners, Victims};
use crate::block::BlockId;
use crate::cache::eviction::kept::KeptBlocks;
use crate::cache::evictor::{Evictor, Resources};
use crate::reclaim::{Guard, Ref};
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::{Arc, contained};
use crate::tree::Run;

/// The operations of an eviction sink that the evictor uses.
pub(in crate::cache) trait Outlet: Send + Sync {
    /// The sink's mark of the current moment (`EvictionSink::mark`).
    fn mark(&self) -> u64;

    /// Puts victims into reservations, without the lock, under a guard that was pinned before they
    /// were evicted. The returned function calls the sink.
    fn gather(&self, for_sink: ForSink, guard: &Guard<'_>) -> Box<dyn FnOnce()>;
}

/// An outlet that the evictor and its turns share.
pub(in crate::cache) type SharedOutlet = Arc<Box<dyn Outlet>>;

/// Who needs the blocks that a turn evicts.
#[derive(Debug, Default)]
pub(in crate::cache) enum Beneficiary {
    #[default]
    Nobody,
    /// A thread or task that waits for them.
    Waiter,
    /// A thread that does not wait, with the number of blocks that it has offered and the sink
    /// keeps. If that is not zero, this turn evicts without offering blocks to the sink.
    Thread(Arc<AtomicUsize>),
    /// A thread that has offered often enough: this turn does not offer.
    PastSink,
}

/// How this turn uses the sink.
#[derive(Debug, Default)]
pub(in crate::cache) struct Sinking {
    pub(in crate::cache) beneficiary: Beneficiary,
    passed_by: usize,
    mark: u64,
}

/// The work that one turn leaves for the sink, to be done without the lock.
pub(in crate::cache) struct ForSink {
    /// The blocks evicted for the sink.
    pub(in crate::cache) victims: Option<Box<Victims>>,
    /// The mark of the moment when the first of them was evicted.
    pub(in crate::cache) mark: u64,
    /// Whether a thread needs the blocks.
    pub(in crate::cache) is_needed: bool,
    /// The count of blocks that the sink keeps, if that thread does not wait.
    pub(in crate::cache) needed: Option<Arc<AtomicUsize>>,
    /// Number of blocks that were evicted but not offered to the sink.
    pub(in crate::cache) passed_by: usize,
}

impl Sinking {
    fn passes_by(&self) -> bool {
        match &self.beneficiary {
            Beneficiary::Nobody | Beneficiary::Waiter => false,
            // Relaxed: an estimate is enough.
            Beneficiary::Thread(kept) => kept.load(Relaxed) > 0,
            Beneficiary::PastSink => true,
        }
    }

    /// Notes the mark of a batch; returns false without a sink, or if the sink's code panicked. The
    /// panic must not end the turn, because the trim of the first victim is not complete yet.
    fn begin_batch(&mut self, outlet: Option<&SharedOutlet>) -> bool {
        let Some(outlet) = outlet else { return false };
        let mut is_marked = false;
        contained(|| (self.mark, is_marked) = (outlet.mark(), true));
        is_marked
    }
}

impl Evictor<'_> {
    /// Passes on evicted blocks of `run`, from the `keep`-th on: to the caller that asked for them,
    /// to the sink, or to the blocks that are free at the end of the turn.
    #[inline]
    pub(in crate::cache) fn put_evicted<'g>(
        &mut self,
        run: Ref<'g, Run>,
        keep: usize,
        blocks: &[BlockId],
        resources: Resources<'g>,
    ) {
        if self.common.listeners.victims.is_none() && !self.has_sink() {
            self.first_mut().freed.extend_from_slice(blocks);
        } else {
            self.keep_evicted(run, keep, blocks, resources);
        }
    }

    #[cold]
    fn keep_evicted<'g>(&mut self, run: Ref<'g, Run>, keep: usize, blocks: &[BlockId], resources: Resources<'g>) {
        let reason = self.first().reason;
        let Listeners { victims, sinking, live, .. } = &mut self.common.listeners;
        if victims.is_none() && (sinking.passes_by() || !sinking.begin_batch(live.outlet.as_ref())) {
            sinking.passed_by += blocks.len();
            self.first_mut().freed.extend_from_slice(blocks);
            return;
        }
        victims.get_or_insert_default().add(run, keep, blocks, reason, resources);
    }

    /// The number of blocks that this turn has evicted for the sink.
    pub(in crate::cache) fn offered(&self) -> usize {
        self.common.listeners.victims.as_ref().map_or(0, |victims| victims.blocks.len())
    }

    /// Takes the work that a turn leaves for the sink, at its end.
    #[inline]
    pub(in crate::cache) fn take_for_sink(&mut self, kept: &KeptBlocks) -> Option<Box<(SharedOutlet, ForSink)>> {
        let has_any = self.common.listeners.victims.is_some() || self.common.listeners.sinking.passed_by > 0;
        if has_any { self.leave_for_sink(kept) } else { None }
    }

    #[cold]
    fn leave_for_sink(&mut self, kept: &KeptBlocks) -> Option<Box<(SharedOutlet, ForSink)>> {
        let Listeners { victims, sinking, live, .. } = &mut self.common.listeners;
        let outlet = live.outlet.clone()?;
        let Sinking { beneficiary, passed_by, mark } = std::mem::take(sinking);
        let (is_needed, needed) = match beneficiary {
            Beneficiary::Nobody => (false, None),
            Beneficiary::Waiter | Beneficiary::PastSink => (true, None),
            Beneficiary::Thread(kept) => (true, Some(kept)),
        };
        let victims = victims.take();
        if let Some(victims) = &victims {
            kept.begin(victims.blocks.len());
            // Relaxed: an estimate is enough.
            needed.iter().for_each(|needed| _ = needed.fetch_add(victims.blocks.len(), Relaxed));
        }
        Some(Box::new((outlet, ForSink { victims, mark, is_needed, needed, passed_by })))
    }
}
