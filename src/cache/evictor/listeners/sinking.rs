//! What is evicted for the eviction sink.

use super::Victims;
use crate::block::BlockId;
use crate::cache::evictor::{Evictor, Resources};
use crate::cache::kept::KeptBlocks;
use crate::reclaim::{Guard, Ref};
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::sync::{Arc, contained};
use crate::tree::Run;

/// The way to an eviction sink.
pub(in crate::cache) trait Outlet: Send + Sync {
    /// A mark of the present moment.
    fn mark(&self) -> u64;

    /// Makes reservations of victims, without the lock, under a guard that was pinned before they were evicted. What is returned
    /// gives them to the sink.
    fn gather(&self, victims: ForSink, guard: &Guard<'_>) -> Box<dyn FnOnce()>;

    /// So many blocks were evicted past the sink.
    fn passed_by(&self, blocks: usize);
}

/// One that the evictor and its turns share.
pub(in crate::cache) type SharedOutlet = Arc<Box<dyn Outlet>>;

/// How this turn uses the sink.
#[derive(Debug, Default)]
pub(in crate::cache) struct Sinking {
    /// A thread or task needs the blocks that this turn evicts.
    is_needed: bool,
    /// What the sink keeps of what a thread has offered that does not wait: if it keeps any, this turn evicts past it.
    needed: Option<Arc<AtomicUsize>>,
    passed_by: usize,
    mark: u64,
}

/// What a turn has evicted for the sink.
pub(in crate::cache) struct ForSink {
    pub(in crate::cache) victims: Box<Victims>,
    /// Of when the first was evicted.
    pub(in crate::cache) mark: u64,
    /// A thread needs the blocks.
    pub(in crate::cache) is_needed: bool,
    /// Where to count what the sink keeps, if that thread does not wait.
    pub(in crate::cache) needed: Option<Arc<AtomicUsize>>,
}

/// What one turn leaves for the sink, to be done without the lock.
pub(in crate::cache) struct LeftForSink {
    outlet: SharedOutlet,
    victims: Option<ForSink>,
    /// Blocks that were evicted past the sink.
    passed_by: usize,
}

impl Sinking {
    /// A turn begins.
    pub(in crate::cache) fn begin_turn(&mut self) {
        (self.is_needed, self.needed, self.passed_by) = (false, None, 0);
    }

    /// This turn evicts for a thread that needs the blocks. If it does not wait, `kept` counts what the sink keeps of those that it
    /// offers.
    pub(in crate::cache) fn evict_for_thread(&mut self, kept: Option<Arc<AtomicUsize>>) {
        (self.is_needed, self.needed) = (true, kept);
    }

    fn passes_by(&self) -> bool {
        // Relaxed: a number to go by.
        self.needed.as_ref().is_some_and(|kept| kept.load(Relaxed) > 0)
    }

    /// Notes the mark of a batch; false if the sink's code panicked. The first victim has not left the tree yet, so the turn must not
    /// break here.
    fn begin_batch(&mut self, outlet: Option<&SharedOutlet>) -> bool {
        let Some(outlet) = outlet else { return false };
        let mut is_marked = false;
        contained(|| (self.mark, is_marked) = (outlet.mark(), true));
        is_marked
    }
}

impl Evictor {
    /// Puts evicted blocks of `run`, from the `keep`-th on, where they are to go: to who has asked for what is evicted, to the
    /// sink, or to those that are free at the end of the turn.
    #[inline]
    pub(in crate::cache) fn put_evicted<'g>(
        &mut self,
        run: Ref<'g, Run>,
        keep: usize,
        blocks: &[BlockId],
        resources: Resources<'g>,
    ) {
        if self.listeners.victims.is_none() && !self.has_sink() {
            self.freed.extend_from_slice(blocks);
        } else {
            self.keep_evicted(run, keep, blocks, resources);
        }
    }

    #[cold]
    fn keep_evicted<'g>(&mut self, run: Ref<'g, Run>, keep: usize, blocks: &[BlockId], resources: Resources<'g>) {
        if self.listeners.victims.is_none()
            && (self.listeners.sinking.passes_by()
                || !self.listeners.sinking.begin_batch(self.listeners.live.outlet.as_ref()))
        {
            self.listeners.sinking.passed_by += blocks.len();
            self.freed.extend_from_slice(blocks);
            return;
        }
        self.listeners.victims.get_or_insert_default().add(run, keep, blocks, self.reason, resources);
    }

    /// Blocks that this turn has evicted for the sink.
    pub(in crate::cache) fn offered(&self) -> usize {
        self.listeners.victims.as_ref().map_or(0, |victims| victims.blocks.len())
    }

    /// What a turn leaves for the sink, at its end.
    #[inline]
    pub(in crate::cache) fn take_for_sink(&mut self, kept: &KeptBlocks) -> Option<Box<LeftForSink>> {
        let has_any = self.listeners.victims.is_some() || self.listeners.sinking.passed_by > 0;
        if has_any { self.leave_for_sink(kept) } else { None }
    }

    #[cold]
    fn leave_for_sink(&mut self, kept: &KeptBlocks) -> Option<Box<LeftForSink>> {
        let outlet = self.listeners.live.outlet.clone()?;
        let Sinking { is_needed, needed, passed_by, mark } = &mut self.listeners.sinking;
        let (mark, is_needed, needed) = (*mark, *is_needed, needed.take());
        let victims = self.listeners.victims.take().map(|victims| ForSink { victims, mark, is_needed, needed });
        if let Some(ForSink { victims, needed, .. }) = &victims {
            kept.begin(victims.blocks.len());
            // Relaxed: a number to go by.
            needed.iter().for_each(|needed| _ = needed.fetch_add(victims.blocks.len(), Relaxed));
        }
        Some(Box::new(LeftForSink { outlet, victims, passed_by: std::mem::take(passed_by) }))
    }
}

impl LeftForSink {
    /// Puts the blocks into reservations, under the guard of the turn; what is returned calls the sink.
    #[cold]
    pub(in crate::cache) fn gather(self, guard: &Guard<'_>) -> Box<dyn FnOnce()> {
        let Self { outlet, victims, passed_by } = self;
        let give = victims.map(|victims| outlet.gather(victims, guard));
        Box::new(move || {
            give.into_iter().for_each(|give| give());
            if passed_by > 0 {
                outlet.passed_by(passed_by);
            }
        })
    }
}
