//! Waiting for blocks as a future, [`Reserving`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::in_line::{self, Step, step};
use super::wait_list::Lane;
use super::waiter::Waiter;
use crate::cache::blocks::allocate::ReserveRequest;
use crate::cache::blocks::block_request::{Ask, BlockRequest};
use crate::cache::blocks::reservation::{Reservation, ReserveError};
use crate::cache::inner::Inner;
use crate::cache::leases::strong_ref::{StrongRef, StrongRefs};
use crate::cache::namespaces::namespace::Namespace;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::session::Near;

/// A request for blocks that waits for its turn; made by [`PrefixCache::reserve_async`].
///
/// It joins the wait list at its first poll. It may be dropped at any time: it then leaves the list
/// and wakes the next waiter. No block is lost, because the blocks are taken in the poll that
/// returns them.
///
/// Later waiters do not overtake it. If it is not polled again after its waker was called, or is
/// forgotten after its first poll, all waiters behind it wait, even while enough blocks are free.
/// Drop a future that is no longer wanted, and put a deadline around one whose task may stop
/// polling.
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
    deadline: Option<Instant>,
    cache: StrongRef<Inner>,
    waiter: Option<Waiter>,
}

impl fmt::Debug for Reserving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.waiter.is_some();
        f.debug_struct("Reserving").field("blocks", &self.blocks).field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl Future for Reserving {
    type Output = Result<Reservation, ReserveError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { blocks, lane, payer, deadline, cache, waiter } = &mut *self;
        let request = BlockRequest { blocks: *blocks, payer: payer.as_ref(), lane: *lane, deadline: *deadline };
        let ask = Ask::new(request, cache);
        cache.check_request(ask.blocks)?;
        let taking = ReserveRequest { near: Near::default(), ask, inner: cache, strong_ref: &|| cache.clone() };
        let served = match step(&taking, waiter, |signal| signal.wake_by(context.waker())) {
            Step::Waits(_) if deadline.is_none_or(|moment| Instant::now() < moment) => {
                return in_line::pending(waiter.as_ref(), context);
            }
            Step::Waits(refused) => Err(refused.timed_out()),
            Step::Done(served) => served,
        };
        *waiter = None;
        cache.participant().count_reserved(served.as_ref());
        Poll::Ready(served)
    }
}

pub(in crate::cache) fn reserve_async<'a>(cache: &PrefixCache, blocks: impl Into<BlockRequest<'a>>) -> Reserving {
    let request = blocks.into();
    // Panics if the payer belongs to another cache.
    let Ask { blocks, lane, .. } = Ask::new(request, &cache.inner);
    let (payer, deadline) = (request.payer.cloned(), request.deadline);
    Reserving { blocks, lane, payer, deadline, cache: StrongRefs::new(&cache.inner).take(), waiter: None }
}
