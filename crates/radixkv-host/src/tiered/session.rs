//! The verbs of one thread: matching in both tiers, and starting a request from what they have.

use std::{
    fmt,
    sync::{Arc, mpsc},
};

use radixkv::{
    BlockId, BlockRequest, InsertError, Inserted, Lease, Namespace, PrefixMatch, Reservation, ReserveError, Session,
    Token,
};

use super::{
    Shared, TierMode, WritePolicy, offloading::Piece, onboarding::Onboarding, sizes::Part, start::TieredStart,
};
use crate::{fetch::Fetch, grid::offset, host_match::HostMatch, mover::ToDevice};

/// One thread's access to a [`TieredCache`](super::TieredCache); made by [`TieredCache::session`](super::TieredCache::session).
/// `Send` and not `Sync`, as a [`Session`] is.
pub struct TieredSession {
    pub(super) session: Session,
    pub(super) shared: Arc<Shared>,
}

/// What the tiers have of a prompt, leased and pinned.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "dropping it releases its lease and its pins"]
pub struct TieredMatch {
    /// The longest prefix that the device caches.
    pub device: PrefixMatch,
    /// What the host has beyond it, up to the first hole.
    pub host: HostMatch,
    /// What remote tiers are asked for beyond that; it comes to the host meanwhile. None if there is nothing to ask for.
    pub remote: Option<Fetch>,
}

impl TieredMatch {
    /// Tokens that need not be computed; what remote tiers have is not known yet.
    pub fn len_tokens(&self) -> usize {
        self.device.len_tokens() + self.host.len_tokens()
    }
}

/// A match that is done: with what came from remote tiers.
struct Found {
    of: TieredMatch,
    remote_tokens: usize,
}

impl TieredSession {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { session: shared.cache.session(), shared: Arc::clone(shared) }
    }

    /// The cache's own session, for what concerns the device alone.
    pub fn device(&self) -> &Session {
        &self.session
    }

    /// Finds the longest prefix of `tokens` on the device and in the host, and counts as a use of it in both. Asks remote tiers for what
    /// follows in the host's blocks, and does not wait for the answer: each call asks anew.
    ///
    /// # Panics
    ///
    /// As [`Session::match_prefix`].
    pub fn match_prefix(&self, namespace: &Namespace, tokens: &[Token]) -> TieredMatch {
        let device = self.session.match_prefix(namespace, tokens);
        let name = namespace.name();
        let host = self.shared.host.match_from(&name, tokens, device.len_tokens());
        let remote = self.shared.host.fetch(&name, tokens, host.tokens().end);
        TieredMatch { device, host, remote }
    }

    /// Matches `tokens` in both tiers, reserves blocks for what the device lacks of them and for `room` tokens that are to follow,
    /// and copies what the host has into them; or takes nothing. Waits for the copies.
    ///
    /// Evicted for it are the blocks that [`Session::reserve`] would evict; they are copied to the host first. An engine that
    /// wants the logits of the last token passes the tokens before it, and one more of `room`.
    ///
    /// Waits for what remote tiers have as long as [`TieredBuilder::remote_wait`](super::TieredBuilder::remote_wait) says: with
    /// [`RemoteWait::BestEffort`](crate::RemoteWait::BestEffort) match first, and [`begin`](Self::begin) later.
    ///
    /// If the mover fails, the request starts from what the device had, and the host keeps its blocks.
    ///
    /// # Errors
    ///
    /// As [`Session::acquire`].
    ///
    /// # Panics
    ///
    /// As [`Session::acquire`].
    pub fn acquire(&self, namespace: &Namespace, tokens: &[Token], room: usize) -> Result<TieredStart, ReserveError> {
        let found = self.match_prefix(namespace, tokens);
        Ok(self.begin(namespace, tokens, room, found)?.wait())
    }

    /// As [`acquire`](Self::acquire), from a match of the same tokens that was made before, and without waiting for what is copied
    /// to the device: with a mover's thread ([`TieredBuilder::mover_thread`](super::TieredBuilder::mover_thread)) the caller goes on
    /// meanwhile.
    ///
    /// It waits for blocks that are evicted for it, where too many are on their way, and as
    /// [`TieredBuilder::remote_wait`](super::TieredBuilder::remote_wait) says.
    ///
    /// # Errors
    ///
    /// As [`Session::acquire`]; the match is given up.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    pub fn begin(
        &self,
        namespace: &Namespace,
        tokens: &[Token],
        room: usize,
        mut found: TieredMatch,
    ) -> Result<Onboarding, ReserveError> {
        let in_host = found.host.len_tokens();
        self.take_fetched(namespace, tokens, &mut found);
        let remote_tokens = found.host.len_tokens() - in_host;
        let all = tokens.len().saturating_add(room).saturating_sub(offset(namespace.keys()));
        let all = all.div_ceil(self.shared.sizes.device);
        let missing = all.saturating_sub(found.device.blocks().len());
        self.make_room(missing);
        let blocks = self.session.reserve(BlockRequest::new(missing).paid_by(namespace))?;
        if let Some(keeping_free) = &self.shared.keeping_free {
            keeping_free.look(self.shared.cache.stats().free_blocks);
        }
        Ok(self.onboard(namespace, tokens, Found { of: found, remote_tokens }, blocks))
    }

    /// Waits for what remote tiers have, as long as the settings say, and takes what came into the match.
    fn take_fetched(&self, namespace: &Namespace, tokens: &[Token], found: &mut TieredMatch) {
        let Some(fetch) = found.remote.take() else { return };
        fetch.wait(self.shared.remote_wait);
        if fetch.arrived_tokens() > 0 {
            let host = self.shared.host.pinned_from(&namespace.name(), tokens, found.device.len_tokens());
            if host.len_tokens() > found.host.len_tokens() {
                found.host = host;
            }
        }
    }

    /// Publishes whole blocks as [`Session::insert`] does; with [`WritePolicy::Through`] copies them to the host too.
    ///
    /// # Errors
    ///
    /// As [`Session::insert`].
    pub fn insert(
        &self,
        namespace: &Namespace,
        lease: &Lease,
        tokens: &[Token],
        blocks: Reservation,
    ) -> Result<Inserted, InsertError> {
        let start = lease.len_tokens();
        let offload = (self.shared.write == WritePolicy::Through).then(|| self.shared.host.offload());
        let inserted = self.session.insert(lease, tokens, blocks)?;
        if let Some(offload) = offload {
            let named = inserted.lease.len_tokens() + offset(namespace.keys());
            let tokens = &tokens[..named.min(tokens.len())];
            let piece = Piece { namespace: &namespace.name(), tokens, start, blocks: &inserted.blocks };
            self.shared.take_in(&offload, &[piece]);
        }
        Ok(inserted)
    }

    /// Evicts what a reservation of so many blocks would evict, and offloads it.
    fn make_room(&self, blocks: usize) {
        let free = self.shared.cache.stats().free_blocks;
        if free < blocks {
            self.shared.evict(blocks - free);
        }
    }

    /// Brings what the host has into `blocks`: on the mover's thread, if there is one.
    fn onboard(&self, namespace: &Namespace, tokens: &[Token], found: Found, blocks: Reservation) -> Onboarding {
        let host = &found.of.host;
        let Some(copies) = self.shared.copies.as_ref().filter(|_| host.len_tokens() > 0) else {
            return Onboarding::done(self.shared.onboard(&self.session, namespace, tokens, found, blocks));
        };
        let (done, start) = mpsc::sync_channel(1);
        let (shared, namespace) = (Arc::clone(&self.shared), namespace.clone());
        let tokens = tokens[..tokens.len().min(host.tokens().end + offset(namespace.keys()))].to_vec();
        copies.room(host.len_tokens().div_ceil(self.shared.sizes.device)).submit(move || {
            let start = shared.onboard(&shared.cache.session(), &namespace, &tokens, found, blocks);
            // Nobody may wait for it: then what came up stays cached.
            let _ = done.send(start);
        });
        Onboarding::under_way(start)
    }
}

impl Shared {
    /// Copies what the host has into the first of `blocks`, and inserts the whole blocks among them.
    fn onboard(
        &self,
        session: &Session,
        namespace: &Namespace,
        tokens: &[Token],
        found: Found,
        mut blocks: Reservation,
    ) -> TieredStart {
        let Found { of: TieredMatch { device, host, .. }, remote_tokens } = found;
        let (device_tokens, mut cached) = (device.len_tokens(), device.blocks().to_vec());
        let copied = self.copy_in(&host, blocks.blocks());
        let remote_tokens = remote_tokens.min(copied);
        self.counters.remote_tokens.add(remote_tokens);
        let mut lease = device.into_lease();
        let size = self.sizes.device;
        let whole = (device_tokens + copied) / size - device_tokens / size;
        if whole > 0 {
            let end = (device_tokens / size + whole) * size;
            match session.insert(&lease, &tokens[..end + offset(namespace.keys())], blocks.split(whole)) {
                Ok(inserted) => {
                    cached.extend(&inserted.blocks);
                    lease = inserted.lease;
                    if self.mode == TierMode::Exclusive {
                        host.remove_up_to(end);
                    }
                }
                Err(refused) => {
                    // The tokens are in the request's own blocks all the same.
                    let rest = std::mem::replace(&mut blocks, refused.reservation);
                    blocks.append(rest);
                }
            }
        }
        TieredStart { lease, cached, blocks, device_tokens, host_tokens: copied - remote_tokens, remote_tokens }
    }

    /// Copies pinned host blocks into blocks of the device, of which the first one follows the device's match. Returns how many
    /// tokens were copied: all, or none.
    fn copy_in(&self, host: &HostMatch, blocks: &[BlockId]) -> usize {
        let tokens = host.tokens();
        if tokens.is_empty() {
            return 0;
        }
        let sizes = self.sizes;
        let (first_device, first_host) = (tokens.start / sizes.device, tokens.start / sizes.host);
        let mut copies = Vec::new();
        for (at, &host_block) in host.blocks().iter().enumerate() {
            let number = first_host + at;
            let bytes = host.bytes(at);
            let own = (number * sizes.host).max(tokens.start)..(number + 1) * sizes.host;
            for Part { device_number, device_tokens, host_tokens } in sizes.parts(own) {
                let block = blocks[device_number - first_device];
                let per = |token: usize| bytes.len() * token / sizes.host;
                let bytes = &bytes[per(host_tokens.start)..per(host_tokens.end)];
                copies.push(ToDevice { host_block, host_tokens, bytes, block, tokens: device_tokens });
            }
        }
        if !self.is_moved(|mover| mover.onboard(&copies)) {
            self.counters.failed_onboard_tokens.add(tokens.len());
            return 0;
        }
        self.counters.onboarded_tokens.add(tokens.len());
        self.counters.onboarded_bytes.add(copies.iter().map(|copy| copy.bytes.len()).sum());
        tokens.len()
    }
}

impl fmt::Debug for TieredSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TieredSession").finish_non_exhaustive()
    }
}
