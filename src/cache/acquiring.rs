//! Awaiting a prompt's match and blocks: [`acquire_until`](super::Session::acquire_until), as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::acquire::{Acquired, Prompt};
use super::block_request::{Ask, BlockRequest};
use super::namespace::Namespace;
use super::prefix_cache::PrefixCache;
use super::reservation::ReserveError;
use super::strong_ref::StrongRefs;
use super::waiter::Waiter;
use crate::key::Token;

/// A request for a prompt's match and blocks that waits for its turn; made by [`PrefixCache::acquire_async`].
///
/// `Send`: it may be awaited on a runtime of several threads. It may be dropped at any time: between two polls it holds no
/// lease and no block. What [`Reserving`](super::Reserving) says of waiters that are not polled holds for it too.
#[must_use = "futures do nothing unless they are polled"]
pub struct Acquiring {
    cache: PrefixCache,
    namespace: Namespace,
    tokens: Box<[Token]>,
    room: usize,
    waiter: Option<Waiter>,
}

impl fmt::Debug for Acquiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tokens, waiting) = (self.tokens.len(), self.waiter.is_some());
        f.debug_struct("Acquiring").field("tokens", &tokens).field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl PrefixCache {
    /// As [`Session::acquire`](crate::Session::acquire), and waits as long as leases and reservations hold too many blocks,
    /// without a lease or a block of its own.
    ///
    /// Waits in one list with [`reserve_async`](Self::reserve_async), which says what holds for its waker and for deadlines. A
    /// poll takes no session of the caller's, so tasks need none to be admitted.
    ///
    /// # Errors
    ///
    /// As `reserve_async`.
    ///
    /// # Panics
    ///
    /// When it is polled, as `Session::acquire`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    /// # runtime.block_on(async {
    /// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// let space = cache.default_namespace();
    /// let running = cache.reserve_async(6).await?;
    /// let prompt: Vec<u32> = (0..40).collect();
    /// let request = tokio::spawn(cache.acquire_async(&space, &prompt[..], 8));
    /// drop(running);
    /// let start = request.await??;
    /// assert_eq!((start.hit.len_tokens(), start.blocks.len()), (0, 3));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn acquire_async(&self, namespace: &Namespace, tokens: impl Into<Box<[Token]>>, room: usize) -> Acquiring {
        Acquiring { cache: self.clone(), namespace: namespace.clone(), tokens: tokens.into(), room, waiter: None }
    }
}

impl Future for Acquiring {
    type Output = Result<Acquired, ReserveError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { cache, namespace, tokens, room, waiter } = &mut *self;
        let (session, prompt) = (cache.session(), Prompt { namespace, tokens, room: *room });
        if waiter.is_none() && !cache.inner.wait_list.has_waiters() {
            match session.acquire_once(prompt) {
                Err(refused) if refused.is_for_now() => {}
                served => {
                    session.count_acquired(&served);
                    return Poll::Ready(served);
                }
            }
        }
        let waiting = waiter.get_or_insert_with(|| {
            let request = BlockRequest::new(0).paid_by(namespace);
            Waiter::join(&StrongRefs::new(&cache.inner).take(), Ask::new(request, &cache.inner))
        });
        // First, as in `reserve_async`.
        waiting.signal().wake_by(context.waker());
        match session.acquire_in_turn(prompt, waiting) {
            Err(refused) if refused.is_for_now() => Poll::Pending,
            served => {
                *waiter = None;
                session.count_acquired(&served);
                Poll::Ready(served)
            }
        }
    }
}
