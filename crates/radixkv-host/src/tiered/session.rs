//! The session of one thread: starts requests from the blocks of all tiers, and publishes the
//! blocks that they computed.

use std::{fmt, sync::Arc, time::Instant};

use radixkv::{
    Acquired, BlockRequest, InsertError, Inserted, Lease, Namespace, PrefixMatch, Reservation, ReserveError, Session,
    Token,
};

use super::{
    Shared, SinkHandle, WritePolicy,
    matching::{Found, TieredMatch},
    onboarding::{Onboarding, Prepared},
    start::TieredStart,
};
use crate::{grid::offset, host_match::HostMatch};

/// One thread's access to a [`TieredCache`](super::TieredCache); made by
/// [`TieredCache::session`](super::TieredCache::session). Like a [`Session`], it is `Send` but not
/// `Sync`.
pub struct TieredSession {
    pub(super) session: Session,
    /// Dropped before `shared`.
    _sink: Arc<SinkHandle>,
    pub(super) shared: Arc<Shared>,
}

/// A sequence to serve, and how many more tokens need room after it.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) tokens: &'a [Token],
    pub(super) room: usize,
}

/// Whether a request counts as a lookup and as a use of the blocks that it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Counted,
    Uncounted,
}

impl TieredSession {
    pub(super) fn new(sink: &Arc<SinkHandle>, shared: &Arc<Shared>) -> Self {
        Self { session: shared.cache.session(), _sink: Arc::clone(sink), shared: Arc::clone(shared) }
    }

    /// The cache's own session, for operations on the device only.
    pub fn device(&self) -> &Session {
        &self.session
    }

    /// Matches `tokens` in both tiers, reserves blocks for the tokens that the device lacks and for
    /// `room` more, and copies the host's blocks into them; on an error nothing is taken. Waits for
    /// the copies.
    ///
    /// It evicts the blocks that [`Session::reserve`] would evict, after copying them to the host.
    /// An engine that needs the logits of the last token passes the tokens before it, and one more
    /// token of `room`.
    ///
    /// It waits for blocks from remote tiers as long as
    /// [`TieredBuilder::remote_wait`](super::TieredBuilder::remote_wait) says: with
    /// [`RemoteWait::BestEffort`](crate::RemoteWait::BestEffort) match first, and
    /// [`begin`](Self::begin) later.
    ///
    /// If the mover fails, the request starts from the device's blocks, and the host keeps its
    /// blocks.
    ///
    /// # Errors
    ///
    /// As [`Session::acquire`]. A request that is refused is not counted as a lookup, and evicts
    /// nothing, unless other threads take the available blocks meanwhile.
    ///
    /// # Panics
    ///
    /// As [`Session::acquire`].
    pub fn acquire(&self, namespace: &Namespace, tokens: &[Token], room: usize) -> Result<TieredStart, ReserveError> {
        let request = Request { namespace, tokens, room };
        self.check_size(request)?;
        let found = self.find(namespace, tokens);
        Ok(match self.prepare(request, found, Use::Counted)? {
            prepared if prepared.host.is_none() => prepared.start_without_host(),
            prepared => self.onboard(request, prepared).wait(),
        })
    }

    /// As [`acquire`](Self::acquire), but waits for device blocks until `deadline` as
    /// [`Session::acquire_until`] does, in line with other requests. Holds no lease, pin or block
    /// while it waits.
    ///
    /// # Errors
    ///
    /// As [`Session::acquire_until`].
    ///
    /// # Panics
    ///
    /// As [`Session::acquire_until`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use radixkv::PrefixCache;
    /// use radixkv_host::{HostTier, NoCopies, TieredCache};
    ///
    /// let cache = PrefixCache::builder(2, 2).build()?;
    /// let host = HostTier::builder(2, 8).build()?;
    /// let tiers = TieredCache::builder(&cache, &host, NoCopies).build()?;
    /// let (session, space) = (tiers.session(), cache.default_namespace());
    /// let soon = Instant::now() + Duration::from_secs(1);
    /// let start = session.acquire_until(&space, &[1, 2, 3, 4], 0, soon)?;
    /// assert_eq!((start.len_tokens(), start.blocks.len()), (0, 2));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_until(
        &self,
        namespace: &Namespace,
        tokens: &[Token],
        room: usize,
        deadline: Instant,
    ) -> Result<TieredStart, ReserveError> {
        let request = Request { namespace, tokens, room };
        let remote_tokens = self.look_below(request);
        let Acquired { hit, blocks, .. } = self.session.acquire_until(namespace, tokens, room, deadline)?;
        Ok(self.onboard(request, self.prepared(request, hit, blocks, remote_tokens)).wait())
    }

    /// Copies the blocks of `tokens` that the host and remote tiers have beyond a match into the
    /// first of `blocks`, which were reserved for the tokens after the match. This is the second
    /// half of [`acquire`](Self::acquire), for a scheduler that matches and reserves itself. Copies
    /// no more than `blocks` have room for, and nothing if the match was invalidated meanwhile.
    /// Waits for the copies.
    ///
    /// # Panics
    ///
    /// If the match or the blocks are of another cache, or the match differs from the cached prefix
    /// of `tokens` in `namespace`: before anything has changed.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::PrefixCache;
    /// use radixkv_host::{HostTier, NoCopies, TieredCache};
    ///
    /// let cache = PrefixCache::builder(2, 2).build()?;
    /// let host = HostTier::builder(2, 8).build()?;
    /// let tiers = TieredCache::builder(&cache, &host, NoCopies).build()?;
    /// let (session, space) = (tiers.session(), cache.default_namespace());
    /// for prompt in [[1, 2, 3, 4], [5, 6, 7, 8]] {
    ///     let start = session.acquire(&space, &prompt, 0)?;
    ///     drop(session.insert(&space, &start.lease, &prompt, start.blocks)?);
    /// }
    /// let hit = session.device().match_prefix(&space, &[1, 2, 3, 4]);
    /// let blocks = session.reserve(2)?;
    /// let start = session.fill(&space, &[1, 2, 3, 4], hit, blocks);
    /// assert_eq!((start.device_tokens, start.host_tokens, start.blocks.len()), (0, 4, 0));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn fill(&self, namespace: &Namespace, tokens: &[Token], hit: PrefixMatch, blocks: Reservation) -> TieredStart {
        assert!(blocks.is_of(&self.shared.cache), "the blocks are of another cache than the tiers: reserve them there");
        let is_whole = self.check_match(namespace, tokens, &hit);
        let ends = (hit.blocks().len() + blocks.len()) * self.shared.sizes.device;
        let tokens = &tokens[..tokens.len().min(ends + offset(namespace.keys()))];
        let request = Request { namespace, tokens, room: 0 };
        if !is_whole {
            let cached = hit.blocks().to_vec();
            let prepared = Prepared { cached, lease: hit.into_lease(), host: None, remote_tokens: 0, blocks };
            return prepared.start_without_host();
        }
        let remote_tokens = self.look_below(request);
        self.onboard(request, self.prepared(request, hit, blocks, remote_tokens)).wait()
    }

    /// Panics if a match is not of these tokens in this namespace. Returns whether the cache still
    /// finds all of it. If not, it was invalidated or cleared meanwhile, or is a match of other
    /// tokens, and nothing may be inserted after it.
    fn check_match(&self, namespace: &Namespace, tokens: &[Token], hit: &PrefixMatch) -> bool {
        assert!(
            hit.lease().is_of(&self.shared.cache),
            "the match is of another cache than the tiers: match in their cache"
        );
        let known = self.session.match_prefix_untouched(namespace, tokens);
        let is_same = known.blocks().iter().zip(hit.blocks()).all(|(known, matched)| known == matched);
        // After a clear, another request may have cached the same tokens in other blocks.
        assert!(
            is_same || !self.is_cached(hit.lease()),
            "a match of {} tokens is not of these {} tokens in their namespace: pass the match's own tokens",
            hit.len_tokens(),
            tokens.len(),
        );
        is_same && known.blocks().len() >= hit.blocks().len()
    }

    /// Whether the cache still finds a leased prefix: it was not cleared or invalidated.
    pub(super) fn is_cached(&self, lease: &Lease) -> bool {
        self.session.upgrade(&lease.downgrade()).is_some()
    }

    /// Reserves device blocks as [`Session::reserve`] does: evicted blocks are copied to the host.
    ///
    /// # Errors
    ///
    /// As [`Session::reserve`].
    ///
    /// # Panics
    ///
    /// As [`Session::reserve`].
    pub fn reserve<'a>(&self, request: impl Into<BlockRequest<'a>>) -> Result<Reservation, ReserveError> {
        self.session.reserve(request)
    }

    /// Starts a request as [`acquire`](Self::acquire) does, from an earlier match of these tokens
    /// or of their beginning. A mover's thread
    /// ([`TieredBuilder::mover_thread`](super::TieredBuilder::mover_thread)) copies to the device
    /// while the caller continues; without one, this thread copies.
    ///
    /// It waits for the copies of blocks that are evicted for it, for room if too many blocks are
    /// in flight, and as long as [`TieredBuilder::remote_wait`](super::TieredBuilder::remote_wait)
    /// says.
    ///
    /// # Errors
    ///
    /// As `acquire`; the match is dropped.
    ///
    /// # Panics
    ///
    /// If the namespace or the match is of another cache, or the match is of another host tier or
    /// namespace, or of tokens that the sequence does not begin with: before anything has changed.
    pub fn begin(
        &self,
        namespace: &Namespace,
        tokens: &[Token],
        room: usize,
        found: TieredMatch,
    ) -> Result<Onboarding, ReserveError> {
        let request = Request { namespace, tokens, room };
        self.begin_with(request, found.of_request(self, request), Use::Counted)
    }

    pub(super) fn begin_with(&self, request: Request<'_>, found: Found, use_: Use) -> Result<Onboarding, ReserveError> {
        self.check_size(request)?;
        let prepared = self.prepare(request, found, use_)?;
        Ok(self.onboard(request, prepared))
    }

    /// Publishes whole blocks as [`Session::insert`] does. With [`WritePolicy::Through`] it also
    /// copies them to the host; a mover's thread does so once there is room for them in flight.
    ///
    /// # Errors
    ///
    /// As [`Session::insert`].
    ///
    /// # Panics
    ///
    /// If the lease is of another namespace, before anything has changed.
    pub fn insert(
        &self,
        namespace: &Namespace,
        lease: &Lease,
        tokens: &[Token],
        blocks: Reservation,
    ) -> Result<Inserted, InsertError> {
        if let Some(leased) = lease.namespace().filter(|leased| **leased != namespace.name()) {
            let (leased, given) = (leased.parts().collect::<Vec<_>>(), namespace.name());
            let given: Vec<_> = given.parts().collect();
            panic!("the lease is of namespace {leased:?}, the insert of {given:?}: pass the namespace of the lease");
        }
        // Begun before the insert, so that no earlier clear concerns the inserted blocks.
        let offload = (self.shared.write == WritePolicy::Through).then(|| self.shared.host.offload());
        let inserted = self.session.insert(lease, tokens, blocks)?;
        if let Some(offload) = offload {
            let named = inserted.lease.len_tokens() + offset(namespace.keys());
            let tokens = &tokens[..named.min(tokens.len())];
            self.shared.write_through(offload, namespace, tokens, lease.len_tokens(), &inserted);
        }
        Ok(inserted)
    }

    /// Fetches blocks from remote tiers to the host before the request waits for device blocks, as
    /// long as the settings allow. Returns how many tokens arrived.
    fn look_below(&self, request: Request<'_>) -> usize {
        let mut found = self.find(request.namespace, request.tokens);
        let in_host = found.host_tokens();
        self.take_fetched(request, &mut found);
        found.host_tokens() - in_host
    }

    /// Adds the host's match to a request that has its device blocks. Some of its tokens may come
    /// from remote tiers.
    pub(super) fn prepared(
        &self,
        request: Request<'_>,
        hit: PrefixMatch,
        blocks: Reservation,
        remote_tokens: usize,
    ) -> Prepared {
        let from = hit.len_tokens();
        let host = self
            .reaches_below(request.namespace, request.tokens, from)
            .then(|| self.host_match(request.namespace, request.tokens, hit.lease()));
        if let Some(host) = &host {
            host.count_lookup();
        }
        let remote_tokens = remote_tokens.min(host.as_ref().map_or(0, HostMatch::len_tokens));
        Prepared { cached: hit.blocks().to_vec(), lease: hit.into_lease(), host, remote_tokens, blocks }
    }

    /// Refuses a request that can never fit.
    fn check_size(&self, request: Request<'_>) -> Result<(), ReserveError> {
        let (requested, capacity) = (self.blocks(request), self.shared.cache.capacity_blocks());
        if requested > capacity { Err(ReserveError::TooLarge { requested, capacity }) } else { Ok(()) }
    }

    /// The number of blocks of the whole sequence.
    fn blocks(&self, Request { namespace, tokens, room }: Request<'_>) -> usize {
        let all = tokens.len().saturating_add(room).saturating_sub(offset(namespace.keys()));
        all.div_ceil(self.shared.sizes.device)
    }

    /// Waits for remote tiers, reserves the blocks that the device lacks, and counts the lookup.
    fn prepare(&self, request: Request<'_>, mut found: Found, use_: Use) -> Result<Prepared, ReserveError> {
        let in_host = found.host_tokens();
        self.take_fetched(request, &mut found);
        let remote_tokens = found.host_tokens() - in_host;
        let missing = self.blocks(request).saturating_sub(found.device.blocks().len());
        let blocks = self.session.reserve(BlockRequest::new(missing).paid_by(request.namespace))?;
        let Found { device, host, .. } = found;
        let cached = device.blocks().to_vec();
        let prepared = Prepared { lease: device.into_lease(), cached, host, remote_tokens, blocks };
        Ok(if use_ == Use::Counted { self.counted(request, prepared) } else { prepared })
    }

    /// Waits for blocks from remote tiers as long as the settings allow, and adds those that
    /// arrived to the match.
    fn take_fetched(&self, request: Request<'_>, found: &mut Found) {
        let Some(fetch) = found.remote.take() else { return };
        fetch.wait(self.shared.remote_wait);
        if fetch.arrived_tokens() > 0 {
            let host = self.host_match(request.namespace, request.tokens, found.device.lease());
            if host.len_tokens() > found.host_tokens() {
                found.host = Some(host);
            }
        }
    }

    /// The host's blocks after a leased prefix; none if the prefix was cleared or invalidated, as
    /// the host's blocks may then be newer.
    pub(super) fn host_match(&self, namespace: &Namespace, tokens: &[Token], lease: &Lease) -> HostMatch {
        let (tier, from) = (&self.shared.host, lease.len_tokens());
        let host = tier.pinned_from(&namespace.name(), tokens, from);
        // Checked after the match: a clear empties the host before the device.
        if from == 0 || host.blocks().is_empty() || self.is_cached(lease) { host } else { tier.nothing_from(from) }
    }

    /// Counts the lookup and the use. Blocks of the sequence that other threads have inserted
    /// meanwhile are added to the prefix.
    fn counted(&self, request: Request<'_>, prepared: Prepared) -> Prepared {
        let Prepared { lease, mut cached, mut host, mut remote_tokens, mut blocks } = prepared;
        let mut beyond = Vec::new();
        let lease = self.session.resume_into(lease, request.tokens, &mut beyond);
        if !beyond.is_empty() {
            drop(blocks.split(beyond.len()));
            cached.append(&mut beyond);
            host = host.map(|_| self.host_match(request.namespace, request.tokens, &lease));
            remote_tokens = remote_tokens.min(host.as_ref().map_or(0, HostMatch::len_tokens));
        }
        if let Some(host) = &host {
            host.count_lookup();
        }
        Prepared { lease, cached, host, remote_tokens, blocks }
    }

    /// Copies the host's blocks into the reserved ones, on the mover's thread if there is one.
    pub(super) fn onboard(&self, request: Request<'_>, prepared: Prepared) -> Onboarding {
        let Some(host) = prepared.host.as_ref().filter(|host| host.len_tokens() > 0) else {
            return Onboarding::done(prepared.start_without_host());
        };
        let Request { namespace, tokens, .. } = request;
        let Some(copies) = self.shared.copies_elsewhere() else {
            return Onboarding::done(self.shared.onboard(&self.session, namespace, tokens, prepared));
        };
        let (done, start) = oneshot::channel();
        let (shared, namespace) = (Arc::clone(&self.shared), namespace.clone());
        let tokens = tokens[..tokens.len().min(host.tokens().end + offset(namespace.keys()))].to_vec();
        copies.room(host.len_tokens().div_ceil(self.shared.sizes.device)).submit(move || {
            let start = shared.onboard(&shared.cache.session(), &namespace, &tokens, prepared);
            // The receiver may be gone: then the copied blocks stay cached.
            let _ = done.send(start);
        });
        Onboarding::under_way(start)
    }
}

impl fmt::Debug for TieredSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TieredSession").finish_non_exhaustive()
    }
}
