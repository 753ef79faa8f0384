//! What a caller asks for: how many blocks, which namespace pays, and in which lane it waits.

use super::inner::Inner;
use super::namespace::Namespace;
use super::wait_list::Lane;
use crate::sync::Arc;
use crate::tree::Holdings;

/// A request for blocks; a number is one, which the default namespace pays for.
///
/// Every form of reserving takes it: [`Session::reserve`](crate::Session::reserve),
/// [`Session::reserve_until`](crate::Session::reserve_until) and `PrefixCache::reserve_async` (feature `async`).
///
/// # Examples
///
/// ```
/// use radixkv::{BlockRequest, PrefixCache, Quota, ReserveError};
///
/// let cache = PrefixCache::builder(16, 1024).build()?;
/// let tenant = cache.namespace(&["tenant-7"]);
/// cache.set_quota(&tenant, Quota::default().pinned_blocks(64));
///
/// let session = cache.session();
/// let prompt = session.reserve(BlockRequest::new(60).paid_by(&tenant))?;
/// let refused = session.reserve(BlockRequest::new(5).paid_by(&tenant)).unwrap_err();
/// assert_eq!(refused, ReserveError::OverQuota { requested: 5, pinned: 60, limit: 64 });
/// let others = session.reserve(900)?; // the default namespace pays, which has no limit
/// # drop((prompt, others));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct BlockRequest<'a> {
    pub(super) blocks: usize,
    pub(super) payer: Option<&'a Namespace>,
    pub(super) lane: Lane,
}

impl From<usize> for BlockRequest<'_> {
    fn from(blocks: usize) -> Self {
        Self::new(blocks)
    }
}

impl<'a> BlockRequest<'a> {
    /// Asks for `blocks` blocks, to admit a request; the default namespace pays.
    pub const fn new(blocks: usize) -> Self {
        Self { blocks, payer: None, lane: Lane::Admission }
    }

    /// Lets `namespace` pay: the blocks count against its [`Quota::pinned_blocks`](crate::Quota::pinned_blocks) until they are
    /// cached or given back. It should be the namespace into which they will be inserted: an insert into another one moves the
    /// charge there, if its quota allows it.
    #[must_use]
    pub const fn paid_by(mut self, namespace: &'a Namespace) -> Self {
        self.payer = Some(namespace);
        self
    }

    /// Asks for a sequence that runs and cannot go on without: it waits before the requests that wait to be admitted.
    ///
    /// An admission that 64 of them have passed looks first whenever blocks become available. If they are too few for it, growth
    /// goes on: what it waits for comes when running sequences end.
    #[must_use]
    pub const fn to_grow(mut self) -> Self {
        self.lane = Lane::Growth;
        self
    }
}

/// A request with the counts of its payer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) blocks: usize,
    pub(super) lane: Lane,
    /// Of the namespace that pays; nothing for the default one.
    payer: Option<&'a Arc<Holdings>>,
}

impl<'a> Ask<'a> {
    /// # Panics
    ///
    /// If the payer is a namespace of another cache.
    #[inline]
    pub(super) fn new(request: BlockRequest<'a>, inner: &Inner) -> Self {
        let payer = request.payer.map(|namespace| {
            inner.namespaces.check(namespace);
            &namespace.0.holdings
        });
        Self { blocks: request.blocks, lane: request.lane, payer }
    }

    /// What the blocks are counted with, if they are: blocks that the default namespace pays for are while it has a limit on
    /// them.
    #[inline]
    pub(super) fn charged(self, inner: &'a Inner) -> Option<&'a Arc<Holdings>> {
        let default = || Some(inner.namespaces.default_holdings()).filter(|default| default.pinned_limit().is_some());
        self.payer.or_else(default)
    }

    /// The line in which it waits if its payer is at its limit: each namespace has its own.
    pub(super) fn line(self, inner: &Inner) -> usize {
        let payer = self.payer.unwrap_or_else(|| inner.namespaces.default_holdings());
        std::ptr::from_ref::<Holdings>(payer).addr()
    }
}
