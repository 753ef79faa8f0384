//! Awaiting blocks: a waiter, as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::allocate::Effort;
use super::block_request::{Ask, BlockRequest};
use super::inner::Inner;
use super::namespace::Namespace;
use super::prefix_cache::PrefixCache;
use super::reservation::{Reservation, ReserveError};
use super::strong_ref::{StrongRef, StrongRefs};
use super::wait_list::Lane;
use super::waiter::Waiter;

/// A request for blocks that waits for its turn; made by [`PrefixCache::reserve_async`].
///
/// It joins the wait list at its first poll. It may be dropped at any time: that leaves the list, wakes the next waiter
/// and loses no block, because the blocks are taken in the poll that returns them.
///
/// Later waiters do not pass it. If it is polled once and then forgotten, or not polled again after its waker was called,
/// all waiters behind it wait, even while enough blocks are free. Drop a future that is not wanted any more, and put a
/// deadline around one whose task may stop polling.
///
/// # Examples
///
/// ```
/// use std::future::Future;
/// use std::pin::Pin;
/// use std::task::{Context, Waker};
///
/// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
/// let running = cache.session().reserve(6)?;
/// let mut waiting: radixkv::Reserving = cache.reserve_async(4);
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(Pin::new(&mut waiting).poll(&mut context).is_pending());
/// drop(running);
/// assert!(Pin::new(&mut waiting).poll(&mut context).is_ready());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless they are polled"]
pub struct Reserving {
    blocks: usize,
    lane: Lane,
    payer: Option<Namespace>,
    cache: StrongRef<Inner>,
    waiter: Option<Waiter>,
}

impl fmt::Debug for Reserving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiter.is_some();
        f.debug_struct("Reserving").field("blocks", &self.blocks).field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl PrefixCache {
    /// Takes the blocks of a [`BlockRequest`] (a number is one), and waits for them as long as leases and reservations hold too
    /// many.
    ///
    /// Waits in one list with [`Session::reserve_until`](crate::Session::reserve_until), in the same order. Needs no runtime, and is cancelled by dropping it: put a deadline around it with the
    /// runtime's own timer. A poll may evict the missing blocks; it never sleeps, but waits its turn if another thread is
    /// evicting.
    ///
    /// The waker is called on the thread that makes blocks available, with no lock of the cache held: it may poll at
    /// once, and use the cache. If it panics, the panic hook reports it, and only this wake-up is lost.
    ///
    /// When a retention ([`retain`](crate::Session::retain)) ends by its deadline, a background evictor
    /// ([`Eviction::Background`](crate::Eviction::Background)) wakes the future. With inline eviction, the next thread
    /// that evicts, settles or asks for [`stats`](Self::stats) does.
    ///
    /// # Errors
    ///
    /// Only those that waiting does not end, at once: [`ReserveError::TooLarge`], [`ReserveError::External`], and
    /// [`ReserveError::OverQuota`] if its namespace's limit is lower than the request.
    ///
    /// # Panics
    ///
    /// If the namespace that pays is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// # runtime.block_on(async {
    /// use std::time::Duration;
    /// use tokio::time::timeout;
    ///
    /// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let running = cache.reserve_async(6).await?;
    ///
    /// let waiting = cache.reserve_async(4);
    /// assert!(timeout(Duration::from_millis(5), waiting).await.is_err(), "cancelled by its deadline");
    ///
    /// let waiting = tokio::spawn(cache.reserve_async(4));
    /// tokio::task::yield_now().await;
    /// drop(running);
    /// assert_eq!(waiting.await??.len(), 4);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve_async<'a>(&self, blocks: impl Into<BlockRequest<'a>>) -> Reserving {
        let request = blocks.into();
        // Panics if the payer is of another cache.
        let Ask { blocks, lane, .. } = Ask::new(request, &self.inner);
        let payer = request.payer.cloned();
        Reserving { blocks, lane, payer, cache: StrongRefs::new(&self.inner).take(), waiter: None }
    }
}

impl Future for Reserving {
    type Output = Result<Reservation, ReserveError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { blocks, lane, payer, cache, waiter } = &mut *self;
        let request = BlockRequest { blocks: *blocks, payer: payer.as_ref(), lane: *lane };
        let ask = Ask::new(request, cache);
        cache.check_request(ask.blocks)?;
        if waiter.is_none() && !cache.wait_list.has_waiters() {
            match cache.take(0, ask, &|| cache.clone(), Effort::Once) {
                Err(refused) if refused.is_for_now() => {}
                served => {
                    cache.participant().count_reserved(served.as_ref());
                    return Poll::Ready(served);
                }
            }
        }
        let waiting = waiter.get_or_insert_with(|| Waiter::join(cache, ask));
        // First: a thread that makes blocks available after the look that finds too few must find the waker.
        waiting.signal().wake_by(context.waker());
        match cache.take_in_turn(ask, cache, waiting) {
            Err(refused) if refused.is_for_now() => Poll::Pending,
            served => {
                *waiter = None;
                cache.participant().count_reserved(served.as_ref());
                Poll::Ready(served)
            }
        }
    }
}
