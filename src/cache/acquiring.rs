//! Awaiting a prompt's match and blocks: [`acquire_until`](super::Session::acquire_until), as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::acquire::{Acquired, Asking, Prompt};
use super::in_line::{Step, step};
use super::namespace::Namespace;
use super::prefix_cache::PrefixCache;
use super::reservation::ReserveError;
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

impl Future for Acquiring {
    type Output = Result<Acquired, ReserveError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { cache, namespace, tokens, room, waiter } = &mut *self;
        let (session, prompt) = (cache.session(), Prompt { namespace, tokens, room: *room });
        let asking = Asking { session: &session, prompt };
        let Step::Done(served) = step(&asking, waiter, |signal| signal.wake_by(context.waker())) else {
            return Poll::Pending;
        };
        *waiter = None;
        session.count_acquired(&served);
        Poll::Ready(served)
    }
}

pub(super) fn acquire_async(
    cache: &PrefixCache,
    namespace: &Namespace,
    tokens: impl Into<Box<[Token]>>,
    room: usize,
) -> Acquiring {
    Acquiring { cache: cache.clone(), namespace: namespace.clone(), tokens: tokens.into(), room, waiter: None }
}
