//! Matches in all tiers: the blocks that each tier has of a prompt. `session` begins requests with
//! them.

use radixkv::{Namespace, PrefixMatch, Token};

use super::{TieredSession, session::Request};
use crate::{
    fetch::Fetch,
    grid::{Grid, offset},
    host_match::HostMatch,
};

/// The match of a prompt in all tiers, leased and pinned; made by [`TieredSession::match_prefix`].
///
/// Its parts belong to one prompt, so they cannot be exchanged:
///
/// ```compile_fail,E0616
/// fn exchange(one: &mut radixkv_host::TieredMatch, other: &mut radixkv_host::TieredMatch) {
///     std::mem::swap(&mut one.host, &mut other.host); // the blocks of another prompt
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping it releases its lease and its pins"]
pub struct TieredMatch {
    device: PrefixMatch,
    host: HostMatch,
    remote: Option<Fetch>,
    /// Whether the host was asked; it is not if its blocks cannot reach beyond the device's.
    asked_host: bool,
    namespace: Namespace,
    /// The tokens that identify the matched prefix.
    tokens: Box<[Token]>,
}

/// A [`TieredMatch`] inside a method that has the tokens.
pub(super) struct Found {
    pub(super) device: PrefixMatch,
    /// `None` if the host's blocks cannot reach beyond the device's.
    pub(super) host: Option<HostMatch>,
    pub(super) remote: Option<Fetch>,
}

impl TieredMatch {
    /// The longest prefix that the device caches.
    pub fn device(&self) -> &PrefixMatch {
        &self.device
    }

    /// The host blocks beyond the device's match, up to the first missing one.
    pub fn host(&self) -> &HostMatch {
        &self.host
    }

    /// The fetch of the blocks beyond that from remote tiers, which copies them to the host
    /// meanwhile. `None` if nothing can be fetched.
    pub fn remote(&self) -> Option<&Fetch> {
        self.remote.as_ref()
    }

    /// Tokens that need not be computed, not counting remote tiers, which have not answered yet.
    pub fn len_tokens(&self) -> usize {
        self.device.len_tokens() + self.host.len_tokens()
    }

    /// The match, after checking that the request begins with its tokens.
    ///
    /// # Panics
    ///
    /// If the match is of another cache or host tier, or the request has another namespace or other
    /// tokens.
    pub(super) fn of_request(self, session: &TieredSession, request: Request<'_>) -> Found {
        for namespace in [&self.namespace, request.namespace] {
            // Panics if the namespace is of another cache.
            session.session.peek(namespace, &[]);
        }
        let host = &session.shared.host;
        assert!(
            self.host.is_of(host),
            "the match is of another host tier than {host:?}, which the session uses: match in the same session"
        );
        let [of_match, of_request] = [&self.namespace, request.namespace].map(Namespace::name);
        assert!(
            of_match == of_request,
            "the match is of namespace {:?}, the request of {:?}: match in the request's namespace",
            of_match.parts().collect::<Vec<_>>(),
            of_request.parts().collect::<Vec<_>>(),
        );
        let matched = self.len_tokens();
        let named = if matched > 0 { matched + offset(of_match.keys()) } else { 0 };
        assert!(
            request.tokens.starts_with(&self.tokens[..named]),
            "a request of {} tokens does not begin with the {named} tokens of its match: match the request's own tokens",
            request.tokens.len(),
        );
        let Self { device, host, remote, asked_host, .. } = self;
        Found { device, host: asked_host.then_some(host), remote }
    }
}

impl Found {
    /// Tokens of the sequence that the host has beyond the device's.
    pub(super) fn host_tokens(&self) -> usize {
        self.host.as_ref().map_or(0, HostMatch::len_tokens)
    }
}

impl TieredSession {
    /// Finds the longest prefix of `tokens` on the device and in the host, and protects it from
    /// eviction. Requests the following blocks from remote tiers without waiting for them; each
    /// call requests them again.
    ///
    /// The lookup and the use of the blocks are counted when a request begins with the match
    /// ([`begin`](Self::begin)), not before. Copies the matched tokens. Takes the tier's lock only
    /// if the host could have a block beyond the device's blocks.
    ///
    /// # Panics
    ///
    /// As [`Session::match_prefix`](radixkv::Session::match_prefix).
    pub fn match_prefix(&self, namespace: &Namespace, tokens: &[Token]) -> TieredMatch {
        let Found { device, host, remote } = self.find(namespace, tokens);
        let asked_host = host.is_some();
        let host = host.unwrap_or_else(|| self.shared.host.nothing_from(device.len_tokens()));
        let matched = device.len_tokens() + host.len_tokens();
        let named = if matched > 0 { matched + offset(namespace.keys()) } else { 0 };
        let tokens = tokens[..named].into();
        TieredMatch { device, host, remote, asked_host, namespace: namespace.clone(), tokens }
    }

    /// Whether a host block of the sequence could end beyond its first `from` tokens.
    pub(super) fn reaches_below(&self, namespace: &Namespace, tokens: &[Token], from: usize) -> bool {
        let size = self.shared.host.block_size();
        Grid::new(size, namespace.keys()).blocks(tokens.len()) > from / size
    }

    /// As [`match_prefix`](Self::match_prefix), without copying the tokens.
    pub(super) fn find(&self, namespace: &Namespace, tokens: &[Token]) -> Found {
        let device = self.session.match_prefix_untouched(namespace, tokens);
        let (tier, from) = (&self.shared.host, device.len_tokens());
        if !self.reaches_below(namespace, tokens, from) {
            return Found { device, host: None, remote: None };
        }
        let name = namespace.name();
        let host = self.host_match(namespace, tokens, device.lease());
        let remote = tier.fetch(&name, tokens, host.tokens().end);
        Found { device, host: Some(host), remote }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use radixkv::PrefixCache;

    use crate::{HostTier, NoCopies, TieredCache};

    // Holds: HT10.
    #[test]
    fn a_prompt_that_the_device_has_takes_no_lock_of_the_host() {
        let cache = PrefixCache::builder(4, 8).build().expect("a cache");
        let host = HostTier::builder(2, 8).build().expect("a tier");
        let tiers = TieredCache::builder(&cache, &host, NoCopies).build().expect("they go together");
        let (prompt, space) = ([1, 2, 3, 4, 5], cache.default_namespace());
        let start = tiers.session().acquire(&space, &prompt[..4], 0).expect("room");
        drop(tiers.session().insert(&space, &start.lease, &prompt[..4], start.blocks).expect("it is inserted"));
        let locked = host.inner.lock();
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            let session = tiers.session();
            // Another host block would need a sixth token.
            let matched = session.match_prefix(&space, &prompt).len_tokens();
            let started = session.acquire(&space, &prompt, 3).expect("room").len_tokens();
            let begun = session.begin(&space, &prompt, 0, session.match_prefix(&space, &prompt)).expect("room");
            done.send([matched, started, begun.wait().len_tokens()])
        });
        assert_eq!(is_done.recv_timeout(Duration::from_secs(60)), Ok([4; 3]));
        drop(locked);
    }
}
