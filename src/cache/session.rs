//! A session: the state that the operations of one scheduler thread share.

use std::fmt;

use super::inner::Inner;
use super::leases::strong_ref::StrongRefs;
use super::participant::Participant;
use crate::reclaim::Local;
use crate::sync::gauge::Relaxed;
use crate::sync::{Arc, model_size};
use crate::tree::{LeaseContext, ShardId};

/// The number of sessions with their own participant; further sessions borrow one for each call.
/// Pinning sometimes looks at every participant, so their number must not grow with the number of
/// idle sessions.
pub(super) const OWN_PARTICIPANTS: usize = model_size(64, 1 << 16);

/// One thread's access to a cache; made by [`PrefixCache::session`](super::PrefixCache::session).
///
/// `Send` and not `Sync`: each thread or task makes its own, and a task may move with it from one
/// thread to another. What it returns ([`Lease`](crate::Lease),
/// [`Reservation`](crate::Reservation)) may be sent to any thread and outlive it.
///
/// An idle session costs other threads nothing. A thread that stops inside a lock-free method
/// blocks no other thread and keeps no block, but index memory that other threads remove is not
/// freed until that method returns: 7 to 9 KB for each request that they serve.
///
/// # Examples
///
/// The life of a request:
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(4, 64).build()?;
/// # let namespace = cache.default_namespace();
/// let session = cache.session();
/// let prompt: Vec<u32> = (0..10).collect();
/// let hit = session.match_prefix(&namespace, &prompt);
/// let missing = prompt.len() / cache.block_size() - hit.blocks().len();
/// let blocks = session.reserve(missing)?;
/// // ... compute `prompt[hit.len_tokens()..]` into `blocks.blocks()` ...
/// let inserted = session.insert(hit.lease(), &prompt, blocks)?;
/// // ... decode; dropping the lease makes the prefix evictable ...
/// drop(inserted.lease);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    /// The session's own participant; `None` if there were too many sessions when it was made.
    local: Option<Local>,
    pub(super) strong_refs: StrongRefs<Inner>,
    /// The stripe in which it counts its leases of hot points.
    stripe: u8,
    /// The shard of the evictor that its runs belong to.
    shard: ShardId,
}

/// The context in which a call runs turns of the evictor.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::cache) struct Near<'a> {
    /// The slot near which it borrows a participant; sessions have different ones.
    pub(in crate::cache) slot: usize,
    /// The session's shard.
    pub(in crate::cache) shard: ShardId,
    /// The session's own participant.
    pub(in crate::cache) own: Option<&'a Local>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        // Relaxed, here and in `drop`: racing threads may exceed the bound by their number.
        let is_one_of_few = inner.own_participants.load(Relaxed) < OWN_PARTICIPANTS;
        let own = is_one_of_few.then(|| {
            inner.own_participants.fetch_add(1, Relaxed);
            inner.idle.take().unwrap_or_else(|| inner.domain.register())
        });
        let (stripe, shard) = inner.next_stripe();
        Self { local: own, strong_refs: StrongRefs::new(inner), stripe, shard }
    }

    pub(super) fn inner(&self) -> &Inner {
        self.strong_refs.inner()
    }

    /// The participant with which an operation pins the epoch.
    #[inline]
    pub(super) fn participant(&self) -> Participant<'_> {
        match &self.local {
            Some(own) => Participant::Own(own),
            None => self.strong_refs.inner().lend(self.near().slot),
        }
    }

    /// The context in which its calls run turns of the evictor.
    pub(super) fn near(&self) -> Near<'_> {
        Near { slot: model_size(self.stripe.into(), 0), shard: self.shard, own: self.local.as_ref() }
    }

    pub(super) fn context(&self) -> LeaseContext<'_> {
        LeaseContext { shard: self.shard, ..self.strong_refs.inner().context(self.stripe) }
    }
}

impl Drop for Session {
    /// Leaves its participant to the next session, because registering one is the slowest part of
    /// making a session.
    fn drop(&mut self) {
        if let Some(local) = self.local.take() {
            let inner = &**self.strong_refs.inner();
            local.hand_over();
            if inner.is_empty() && local.give_memory_back() {
                inner.domain.cool_down();
            }
            inner.own_participants.fetch_sub(1, Relaxed);
            // A participant that finds no room is dropped here, before `strong_refs`, which keeps
            // the domain alive.
            drop(inner.idle.put(local));
        }
    }
}
