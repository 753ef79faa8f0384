//! The path from the evictor to an eviction sink: victims become reservations, which count as kept
//! until the sink drops them.

use super::evicted::{Evicted, Kept, pieces};
use super::eviction_sink::{EvictedBatch, Sink};
use crate::cache::blocks::reservation::Reservation;
use crate::cache::evictor::{ForSink, Outlet, SharedOutlet, Victims};
use crate::cache::inner::Inner;
use crate::cache::leases::strong_ref::StrongRefs;
use crate::cache::namespaces::quota::QuotaCharge;
use crate::reclaim::Guard;
use crate::sync::gauge::AtomicUsize;
use crate::sync::{Arc, Weak};

struct SinkOutlet {
    /// Weak: the sink does not keep its cache alive.
    cache: Weak<Inner>,
    sink: Sink,
}

/// Connects a cache to a sink.
pub(in crate::cache) fn to_sink(cache: &Arc<Inner>, sink: Sink) -> SharedOutlet {
    Arc::new(Box::new(SinkOutlet { cache: Arc::downgrade(cache), sink }))
}

impl Outlet for SinkOutlet {
    fn mark(&self) -> u64 {
        self.sink.mark()
    }

    fn gather(&self, for_sink: ForSink, guard: &Guard<'_>) -> Box<dyn FnOnce()> {
        let ForSink { victims, mark, is_needed, needed, passed_by } = for_sink;
        let pieces = victims.map_or(Vec::new(), |victims| self.pieces(*victims, needed, guard));
        let sink = self.sink.clone();
        Box::new(move || {
            if !pieces.is_empty() {
                sink.take(EvictedBatch { pieces, mark, is_needed });
            }
            if passed_by > 0 {
                sink.passed_by(passed_by);
            }
        })
    }
}

impl SinkOutlet {
    /// Puts victims into reservations, which count as kept until they are dropped.
    fn pieces(&self, mut victims: Victims, needed: Option<Arc<AtomicUsize>>, guard: &Guard<'_>) -> Vec<Evicted> {
        // The last handle is being dropped: nobody can use the blocks.
        let Some(inner) = self.cache.upgrade() else { return Vec::new() };
        let strong_refs = StrongRefs::new(&inner);
        let blocks = std::mem::take(&mut victims.blocks);
        let mut held = Reservation::of(blocks, QuotaCharge::default(), strong_refs.take());
        let mut kept = Kept::new(held.blocks.len(), needed, strong_refs.take());
        let mut pieces = pieces(victims, &mut held, guard);
        for piece in &mut pieces {
            piece.kept = Some(kept.split(piece.blocks.len()));
        }
        pieces
    }
}
