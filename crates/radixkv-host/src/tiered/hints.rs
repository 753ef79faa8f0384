//! Hints of an engine about prompts that it expects, and prompts that it does not expect again.

use std::sync::Arc;

use radixkv::{Namespace, PrefixMatch, Token};

use super::{
    Shared, TierMode, TieredSession,
    matching::Found,
    offloading::Piece,
    session::{Request, Use},
};
use crate::{grid::offset, offload::Offload};

impl TieredSession {
    /// Copies the blocks of an expected prompt up from the tiers below, ahead of its request.
    ///
    /// Blocks in the host are copied to the device, if enough device blocks are free and the mover
    /// has room. Nothing is evicted for them, and the call does not wait, unless other threads take
    /// the free blocks or the room meanwhile; without a mover's thread, this thread copies. Returns
    /// whether these copies are in progress or done. Blocks in remote tiers are copied to the host
    /// meanwhile: another call continues from there.
    ///
    /// Counts neither as a lookup nor as a use.
    ///
    /// # Panics
    ///
    /// As [`Session::match_prefix`](radixkv::Session::match_prefix).
    pub fn prefetch(&self, namespace: &Namespace, tokens: &[Token]) -> bool {
        let Found { device, host, .. } = self.find(namespace, tokens);
        let Some(mut host) = host else { return false };
        let size = self.shared.sizes.device;
        let end = host.tokens().end / size * size;
        let missing = (end / size).saturating_sub(device.blocks().len());
        if missing == 0 || self.shared.cache.free_blocks() < missing {
            return false;
        }
        if self.shared.copies.as_ref().is_some_and(|copies| copies.try_room(missing).is_none()) {
            return false;
        }
        let tokens = &tokens[..end + offset(namespace.keys())];
        host.shorten(end);
        let found = Found { device, host: Some(host), remote: None };
        self.begin_with(Request { namespace, tokens, room: 0 }, found, Use::Uncounted).is_ok()
    }

    /// Marks a prompt as not expected again soon: its device blocks are evicted first
    /// ([`Session::demote`](radixkv::Session::demote)).
    ///
    /// With [`TierMode::Shared`] it is copied to the host now, so that evicting it later copies
    /// nothing. If there is a mover's thread, that copies it, unless its queue has no room. Returns
    /// the tokens that the device has. Does not count as a use of the prompt.
    ///
    /// # Panics
    ///
    /// As [`Session::match_prefix`](radixkv::Session::match_prefix).
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv::PrefixCache;
    /// use radixkv_host::{HostTier, NoCopies, TierMode, TieredCache};
    ///
    /// let cache = PrefixCache::builder(2, 8).build()?;
    /// let host = HostTier::builder(2, 8).build()?;
    /// let tiers = TieredCache::builder(&cache, &host, NoCopies).mode(TierMode::Shared).build()?;
    /// let (session, space) = (tiers.session(), cache.default_namespace());
    /// let start = session.acquire(&space, &[1, 2, 3, 4], 0)?;
    /// drop(session.insert(&space, &start.lease, &[1, 2, 3, 4], start.blocks)?);
    /// assert_eq!(session.demote(&space, &[1, 2, 3, 4, 5]), 4);
    /// assert_eq!(host.peek(&space.name(), &[1, 2, 3, 4], 0), 4);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn demote(&self, namespace: &Namespace, tokens: &[Token]) -> usize {
        // Begun before the match, so that no earlier clear concerns the matched blocks.
        let offload = (self.shared.mode == TierMode::Shared).then(|| self.shared.host.offload());
        let cached = self.session.match_prefix_untouched(namespace, tokens);
        let len = cached.len_tokens();
        self.session.demote(cached.lease());
        if let Some(offload) = offload.filter(|_| len > 0) {
            self.copy_down(offload, namespace, &tokens[..len + offset(namespace.keys())], cached);
        }
        len
    }

    fn copy_down(&self, offload: Offload, namespace: &Namespace, tokens: &[Token], cached: PrefixMatch) {
        let Some(copies) = self.shared.copies_elsewhere() else {
            return self.shared.copy_cached(&offload, namespace, tokens, &cached);
        };
        let Some(room) = copies.try_room(cached.blocks().len()) else { return };
        let (shared, namespace, tokens) = (Arc::clone(&self.shared), namespace.clone(), tokens.to_vec());
        room.submit(move || shared.copy_cached(&offload, &namespace, &tokens, &cached));
    }
}

impl Shared {
    /// Copies the cached blocks of a sequence to the host.
    fn copy_cached(&self, offload: &Offload, namespace: &Namespace, tokens: &[Token], cached: &PrefixMatch) {
        let piece = Piece { namespace: &namespace.name(), tokens, start: 0, blocks: cached.blocks() };
        self.take_in(offload, &[piece]);
    }
}
