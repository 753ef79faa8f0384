//! Acquiring: matches a prompt and reserves blocks for the rest of it, in one operation.
//!
//! A request must not hold a lease while it waits for blocks: two requests that each hold half of
//! the pool would wait for each other for ever. So a waiting request holds nothing. Each attempt
//! matches again, and releases its lease if there are too few blocks. The caller gets the match of
//! the last attempt.

use super::allocate::Effort;
use super::block_request::{Ask, BlockRequest};
use super::reservation::{Reservation, ReserveError};
use crate::cache::inner::Inner;
use crate::cache::leases::lease::PrefixMatch;
use crate::cache::line::in_line::Request;
use crate::cache::line::wait_list::QueuePosition;
use crate::cache::line::waiter::Waiter;
use crate::cache::namespaces::namespace::Namespace;
use crate::cache::session::Session;
use crate::key::Token;
use crate::tree::walk;

/// The start of a request: its leased cached prefix, and blocks for the rest.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// let prompt = [1, 2, 3, 4, 5];
/// let start = session.acquire(&space, &prompt, 1)?;
/// // ... compute `prompt[start.hit.len_tokens()..]` into `start.blocks` ...
/// let mut own = start.blocks;
/// let whole = own.split(prompt.len() / 2 - start.hit.blocks().len());
/// let inserted = session.insert(start.hit.lease(), &prompt, whole)?;
/// assert_eq!((inserted.lease.len_tokens(), own.len()), (4, 1)); // the last block is still being filled
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "dropping it releases the lease and gives the blocks back"]
pub struct Acquired {
    /// The longest cached prefix; it counts as a use.
    pub hit: PrefixMatch,
    /// Blocks for the tokens beyond it, paid for by the namespace.
    pub blocks: Reservation,
}

/// A prompt for which blocks are acquired.
#[derive(Clone, Copy)]
pub(in crate::cache) struct Prompt<'a> {
    pub(in crate::cache) namespace: &'a Namespace,
    pub(in crate::cache) tokens: &'a [Token],
    /// Tokens that will follow the prompt.
    pub(in crate::cache) room: usize,
}

impl Prompt<'_> {
    /// Blocks of the whole sequence: the prompt and its room.
    fn blocks(self) -> usize {
        let layout = self.namespace.0.layout;
        let all = self.tokens.len().saturating_add(self.room);
        // In a namespace of bigrams the last token has no keys and values.
        all.saturating_sub(layout.offset() as usize).div_ceil(layout.tokens())
    }

    /// Refuses a sequence that its namespace's limit can never allow, unless all of its blocks are
    /// cached.
    fn check_limit(self, missing: impl FnOnce() -> usize) -> Result<(), ReserveError> {
        let refused = self.namespace.0.account.check_limit(self.blocks());
        Ok(refused.or_else(|refused| if missing() > 0 { Err(refused) } else { Ok(()) })?)
    }

    /// Refuses a request that can never be served.
    fn check(self, inner: &Inner) -> Result<(), ReserveError> {
        inner.namespaces.check(self.namespace);
        inner.check_request(self.blocks())
    }
}

/// A request that may wait for a prompt's match and blocks.
pub(in crate::cache) struct Asking<'a> {
    pub(in crate::cache) session: &'a Session,
    pub(in crate::cache) prompt: Prompt<'a>,
}

impl Request for Asking<'_> {
    type Served = Acquired;

    fn inner(&self) -> &Inner {
        self.session.inner()
    }

    fn is_empty(&self) -> bool {
        self.prompt.blocks() == 0
    }

    fn look(&self) -> Result<Acquired, ReserveError> {
        self.session.acquire_once(self.prompt, Effort::BeforeWaiting)
    }

    fn join(&self) -> Waiter {
        // 0: each look computes how many blocks are missing.
        let ask = Ask::new(BlockRequest::new(0).paid_by(self.prompt.namespace), self.inner());
        Waiter::join(&self.session.strong_refs.take(), ask)
    }

    fn look_in_turn(&self, waiter: &Waiter) -> Result<Acquired, ReserveError> {
        self.session.acquire_in_turn(self.prompt, waiter)
    }
}

impl Session {
    /// Tries once. The caller counts a refusal.
    pub(in crate::cache) fn acquire_once(&self, prompt: Prompt<'_>, effort: Effort) -> Result<Acquired, ReserveError> {
        prompt.check(self.inner())?;
        match self.try_acquire(prompt, effort) {
            Ok(acquired) => Ok(self.counted(prompt, acquired)),
            Err((refused, _)) => Err(refused),
        }
    }

    /// Acquires if `waiter` is the first in the list; after a refusal it holds no lease and no
    /// block.
    fn acquire_in_turn(&self, prompt: Prompt<'_>, waiter: &Waiter) -> Result<Acquired, ReserveError> {
        prompt.check(self.inner())?;
        prompt.check_limit(|| self.missing(prompt))?;
        let position = waiter.position();
        if position == QueuePosition::Behind {
            return Err(self.inner().behind(prompt.blocks()));
        }
        if position == QueuePosition::HeldBack {
            self.look_from_line(prompt)?;
            if waiter.pass() != QueuePosition::First {
                // The quota now allows the request, but other waiters come first.
                return Err(self.inner().behind(prompt.blocks()));
            }
        }
        let (refused, hit) = match self.try_acquire(prompt, Effort::Waiting) {
            Ok(acquired) => {
                waiter.count_served();
                return Ok(self.counted(prompt, acquired));
            }
            Err(refused) => refused,
        };
        // The lease may have protected blocks that the first waiter needs. Released quietly, so
        // that this waiter does not wake itself.
        hit.lease.release_quietly();
        self.inner().call_waiting_evictor();
        match refused {
            ReserveError::OverQuota { .. } => waiter.hold_back(),
            _ => _ = waiter.pass(),
        }
        waiter.wake_another();
        Err(refused)
    }

    /// Returns an error if the quota does not allow the missing blocks. Takes no lease, which might
    /// protect blocks that the first waiter needs.
    fn look_from_line(&self, prompt: Prompt<'_>) -> Result<(), ReserveError> {
        Ok(self.inner().look_at_quota(&prompt.namespace.0.account, self.missing(prompt))?)
    }

    /// Number of blocks that are missing now, found without taking a lease.
    fn missing(&self, prompt: Prompt<'_>) -> usize {
        let cached = self.peek(prompt.namespace, prompt.tokens) / prompt.namespace.0.layout.tokens();
        prompt.blocks().saturating_sub(cached)
    }

    /// Tries once. If there are too few blocks, the error carries the match with its lease.
    fn try_acquire(&self, prompt: Prompt<'_>, effort: Effort) -> Result<Acquired, (ReserveError, PrefixMatch)> {
        let inner = self.inner();
        let hit = self.match_prefix_untouched(prompt.namespace, prompt.tokens);
        let missing = prompt.blocks().saturating_sub(hit.blocks().len());
        if let Err(refused) = prompt.check_limit(|| missing) {
            return Err((refused, hit));
        }
        let ask = Ask::new(BlockRequest::new(missing).paid_by(prompt.namespace), inner);
        match inner.take(self.near(), ask, &|| self.strong_refs.take(), effort) {
            Ok(blocks) => Ok(Acquired { hit, blocks }),
            Err(refused) => Err((refused, hit)),
        }
    }

    /// Counts the match, which was not counted before, as a lookup and a use.
    fn counted(&self, prompt: Prompt<'_>, mut acquired: Acquired) -> Acquired {
        let inner = self.inner();
        let participant = self.participant();
        let guard = participant.pin();
        let lease = &mut acquired.hit.lease;
        if let Some(held) = lease.held().filter(|held| held.point.depth() > 0) {
            let now = inner.time.now();
            inner.hot.statistics(&held).touch(now);
            inner.undo_demotions(held.point, now, &guard);
            lease.counted = true;
        }
        lease.queried = true;
        let reached = lease.held().map_or(0, |held| walk(held.point, prompt.tokens, &guard).end);
        inner.count_lookup(prompt.namespace.query(prompt.tokens), lease, reached, &guard);
        acquired
    }
}
