//! What is evicted for the eviction sink.

use super::{Evictor, Resources, Victims};
use crate::block::BlockId;
use crate::cache::eviction_sink::Sink;
use crate::reclaim::Ref;
use crate::sync::Arc;
use crate::sync::gauge::{AtomicUsize, Relaxed};
use crate::tree::Run;

/// The sink, and how this turn uses it.
#[derive(Debug, Default)]
pub(in crate::cache) struct Sinking {
    pub(in crate::cache) sink: Option<Sink>,
    /// What the sink keeps of what a thread has offered that needs blocks now: if it keeps any, this turn evicts past it.
    needed: Option<Arc<AtomicUsize>>,
    passed_by: usize,
    mark: u64,
}

/// Victims of a turn for the sink, and the mark of when the first was evicted.
pub(in crate::cache) struct ForSink {
    pub(in crate::cache) sink: Sink,
    pub(in crate::cache) victims: Box<Victims>,
    pub(in crate::cache) mark: u64,
    /// Where to count what the sink keeps, if the thread needs their blocks.
    pub(in crate::cache) needed: Option<Arc<AtomicUsize>>,
}

/// Blocks that were evicted past a sink.
pub(in crate::cache) struct PassedBy {
    pub(in crate::cache) sink: Sink,
    pub(in crate::cache) blocks: usize,
}

impl Sinking {
    /// A turn begins.
    pub(super) fn begin_turn(&mut self) {
        (self.needed, self.passed_by) = (None, 0);
    }

    pub(in crate::cache) fn is_set(&self) -> bool {
        self.sink.is_some()
    }

    /// This turn evicts for a thread that needs the blocks now; `kept` counts what the sink keeps of those that it offers.
    pub(in crate::cache) fn evict_for_thread(&mut self, kept: Arc<AtomicUsize>) {
        self.needed = Some(kept);
    }

    fn passes_by(&self) -> bool {
        // Relaxed: a number to go by.
        self.needed.as_ref().is_some_and(|kept| kept.load(Relaxed) > 0)
    }

    /// How many blocks this turn has evicted past the sink; the sink is told.
    pub(in crate::cache) fn take_passed_by(&mut self) -> Option<PassedBy> {
        let blocks = std::mem::take(&mut self.passed_by);
        self.sink.clone().filter(|_| blocks > 0).map(|sink| PassedBy { sink, blocks })
    }
}

impl Evictor {
    /// Puts evicted blocks of `run`, from the `keep`-th on, where they are to go: to who has asked for what is evicted, to the
    /// sink, or to those that are free at the end of the turn.
    #[inline]
    pub(super) fn put_evicted<'g>(
        &mut self,
        run: Ref<'g, Run>,
        keep: usize,
        blocks: &[BlockId],
        resources: Resources<'g>,
    ) {
        if self.victims.is_none() && !self.sinking.is_set() {
            self.freed.extend_from_slice(blocks);
        } else {
            self.keep_evicted(run, keep, blocks, resources);
        }
    }

    #[cold]
    fn keep_evicted<'g>(&mut self, run: Ref<'g, Run>, keep: usize, blocks: &[BlockId], resources: Resources<'g>) {
        if self.victims.is_none() {
            if self.sinking.passes_by() {
                self.sinking.passed_by += blocks.len();
                self.freed.extend_from_slice(blocks);
                return;
            }
            self.sinking.mark = self.sinking.sink.as_ref().map_or(0, |sink| sink.mark());
        }
        self.victims.get_or_insert_default().add(run, keep, blocks, self.reason, resources);
    }

    /// Blocks that this turn has evicted for the sink.
    pub(in crate::cache) fn offered(&self) -> usize {
        self.victims.as_ref().map_or(0, |victims| victims.blocks.len())
    }

    /// What this turn has evicted for the sink, at its end.
    #[inline]
    pub(in crate::cache) fn take_for_sink(&mut self) -> Option<ForSink> {
        let victims = self.victims.take_if(|_| self.sinking.is_set())?;
        let sink = self.sinking.sink.clone()?;
        Some(ForSink { sink, victims, mark: self.sinking.mark, needed: self.sinking.needed.take() })
    }
}
