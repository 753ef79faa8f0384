//! What the tiers have of a prompt, before a request begins with it.

use radixkv::{Namespace, PrefixMatch, Token};

use super::{TieredSession, session::Request};
use crate::{
    fetch::Fetch,
    grid::{Grid, offset},
    host_match::HostMatch,
};

/// What the tiers have of a prompt, leased and pinned; made by [`TieredSession::match_prefix`].
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
    namespace: Namespace,
    /// The tokens that name what was matched.
    tokens: Box<[Token]>,
}

/// The same between the steps of one verb: of the verb's own tokens.
pub(super) struct Found {
    pub(super) device: PrefixMatch,
    /// None if the host's blocks cannot reach beyond the device's.
    pub(super) host: Option<HostMatch>,
    pub(super) remote: Option<Fetch>,
}

impl TieredMatch {
    /// Tokens that need not be computed; what remote tiers have is not known yet.
    pub fn len_tokens(&self) -> usize {
        self.device.len_tokens() + self.host.len_tokens()
    }

    /// What was found, for a request that begins with what it was matched by.
    ///
    /// # Panics
    ///
    /// If the match is of another cache, or the request is of another namespace or of other tokens.
    pub(super) fn of_request(self, session: &TieredSession, request: Request<'_>) -> Found {
        for namespace in [&self.namespace, request.namespace] {
            // Panics if it is of another cache.
            session.session.peek(namespace, &[]);
        }
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
        let Self { device, host, remote, .. } = self;
        Found { device, host: Some(host), remote }
    }
}

impl Found {
    /// Tokens of the sequence that the host has beyond the device's.
    pub(super) fn host_tokens(&self) -> usize {
        self.host.as_ref().map_or(0, HostMatch::len_tokens)
    }
}

impl TieredSession {
    /// Finds the longest prefix of `tokens` on the device and in the host, and keeps it there. Asks remote tiers for what
    /// follows in the host's blocks, and does not wait for the answer: each call asks again.
    ///
    /// A lookup and a use of what was found is counted when a request begins with it ([`begin`](Self::begin)), not before.
    /// Copies the tokens that were matched. Takes the tier's lock only if the host could have a block beyond what the device
    /// has.
    ///
    /// # Panics
    ///
    /// As [`Session::match_prefix`](radixkv::Session::match_prefix).
    pub fn match_prefix(&self, namespace: &Namespace, tokens: &[Token]) -> TieredMatch {
        let Found { device, host, remote } = self.find(namespace, tokens);
        let host = host.unwrap_or_else(|| self.shared.host.nothing_from(device.len_tokens()));
        let matched = device.len_tokens() + host.len_tokens();
        let named = if matched > 0 { matched + offset(namespace.keys()) } else { 0 };
        TieredMatch { device, host, remote, namespace: namespace.clone(), tokens: tokens[..named].into() }
    }

    /// The same for the steps of one verb.
    pub(super) fn find(&self, namespace: &Namespace, tokens: &[Token]) -> Found {
        let device = self.session.match_prefix_untouched(namespace, tokens);
        let (tier, from) = (&self.shared.host, device.len_tokens());
        let size = tier.block_size();
        if Grid::new(size, namespace.keys()).blocks(tokens.len()) <= from / size {
            return Found { device, host: None, remote: None };
        }
        let name = namespace.name();
        let host = tier.pinned_from(&name, tokens, from);
        let remote = tier.fetch(&name, tokens, host.tokens().end);
        Found { device, host: Some(host), remote }
    }
}
