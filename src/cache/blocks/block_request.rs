//! Requests for blocks: the public one, and the same with its payer's account.

use std::time::Instant;

use crate::cache::inner::Inner;
use crate::cache::line::wait_list::Lane;
use crate::cache::namespaces::namespace::Namespace;
use crate::sync::Arc;
use crate::tree::NamespaceAccount;

/// A request for blocks: how many, which namespace pays, how urgent it is, and until when to wait.
///
/// [`Session::reserve`](crate::Session::reserve) and `PrefixCache::reserve_async` (feature `async`)
/// take it. A number converts to a request for that many blocks, which the default namespace pays
/// for and which does not wait.
///
/// # Examples
///
/// ```
/// use radixkv::{BlockRequest, PrefixCache, Quota, ReserveError};
///
/// let cache = PrefixCache::builder(16, 1024).build()?;
/// let tenant = cache.namespace(&["tenant-7"]);
/// tenant.set_quota(Quota::default().pinned_blocks(64));
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
    pub(in crate::cache) blocks: usize,
    pub(in crate::cache) payer: Option<&'a Namespace>,
    pub(in crate::cache) lane: Lane,
    pub(in crate::cache) deadline: Option<Instant>,
}

impl From<usize> for BlockRequest<'_> {
    fn from(blocks: usize) -> Self {
        Self::new(blocks)
    }
}

impl<'a> BlockRequest<'a> {
    /// A request for `blocks` blocks to admit a sequence; the default namespace pays.
    pub const fn new(blocks: usize) -> Self {
        Self { blocks, payer: None, lane: Lane::Admission, deadline: None }
    }

    /// Makes `namespace` pay: the blocks count against its
    /// [`Quota::pinned_blocks`](crate::Quota::pinned_blocks) until they are cached or given back.
    /// Choose the namespace into which they will be inserted: an insert into another one moves the
    /// charge there, if its quota allows it.
    #[must_use]
    pub const fn paid_by(mut self, namespace: &'a Namespace) -> Self {
        self.payer = Some(namespace);
        self
    }

    /// Marks the request as urgent: a running sequence cannot continue without the blocks. It waits
    /// ahead of all requests that admit a sequence.
    ///
    /// After 64 such requests have passed an admission, that admission is tried first whenever
    /// blocks become available. If there are still too few for it, running sequences continue to be
    /// served: their blocks return when they end.
    #[must_use]
    pub const fn for_running_sequence(mut self) -> Self {
        self.lane = Lane::Growth;
        self
    }

    /// Waits until `deadline` if leases and reservations hold too many blocks. Without it the
    /// request does not wait.
    ///
    /// `reserve_async` waits in any case; there a deadline is checked at each poll, and nothing
    /// wakes the task when it passes: put the runtime's own timer around the future.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use radixkv::{BlockRequest, PrefixCache, ReserveError};
    ///
    /// let cache = PrefixCache::builder(16, 8).build()?;
    /// let running = cache.session().reserve(6)?;
    /// let waits = |blocks, time| BlockRequest::new(blocks).until(Instant::now() + time);
    /// let refused = cache.session().reserve(waits(4, Duration::from_millis(5))).unwrap_err();
    /// assert_eq!(refused, ReserveError::TimedOut { requested: 4, available: 2 });
    ///
    /// let waiting = std::thread::spawn({
    ///     let cache = cache.clone();
    ///     move || cache.session().reserve(waits(4, Duration::from_secs(60))).map(|blocks| blocks.len())
    /// });
    /// drop(running);
    /// assert_eq!(waiting.join().unwrap(), Ok(4));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// A request with the account of its payer.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct Ask<'a> {
    pub(in crate::cache) blocks: usize,
    pub(in crate::cache) lane: Lane,
    /// The account of the namespace that pays; `None` for the default one.
    payer: Option<&'a Arc<NamespaceAccount>>,
}

impl<'a> Ask<'a> {
    /// # Panics
    ///
    /// If the payer is a namespace of another cache.
    #[inline]
    pub(in crate::cache) fn new(request: BlockRequest<'a>, inner: &Inner) -> Self {
        let payer = request.payer.map(|namespace| {
            inner.namespaces.check(namespace);
            &namespace.0.account
        });
        Self { blocks: request.blocks, lane: request.lane, payer }
    }

    /// The account to charge; `None` if the blocks are not counted: the default namespace is
    /// charged only while it has a limit on pinned blocks.
    #[inline]
    pub(in crate::cache) fn charged(self, inner: &'a Inner) -> Option<&'a Arc<NamespaceAccount>> {
        let default = || Some(&inner.namespaces.default.account).filter(|default| default.pinned_limit().is_some());
        self.payer.or_else(default)
    }

    /// The line (address of the payer's account) in which the request waits while its payer is at
    /// its limit.
    pub(in crate::cache) fn line(self, inner: &Inner) -> usize {
        let payer = self.payer.unwrap_or_else(|| &inner.namespaces.default.account);
        std::ptr::from_ref::<NamespaceAccount>(payer).addr()
    }
}
