//! [`acquire_until`](crate::Session::acquire_until) as a future: waits for a prompt's match and
//! blocks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::in_line::{self, Step, step};
use super::waiter::Waiter;
use crate::cache::blocks::acquire::{Acquired, Asking, Prompt};
use crate::cache::blocks::reservation::ReserveError;
use crate::cache::namespaces::namespace::Namespace;
use crate::cache::prefix_cache::PrefixCache;
use crate::key::Token;

/// A request for a prompt's match and blocks that waits for its turn; made by
/// [`PrefixCache::acquire_async`].
///
/// `Send`: it may be awaited on a multi-threaded runtime. It may be dropped at any time: between
/// two polls it holds no lease and no block. It must be polled or dropped, as
/// [`Reserving`](crate::Reserving) explains.
#[must_use = "futures do nothing unless they are polled"]
pub struct Acquiring {
    pub(in crate::cache) cache: PrefixCache,
    pub(in crate::cache) namespace: Namespace,
    pub(in crate::cache) tokens: Box<[Token]>,
    pub(in crate::cache) room: usize,
    pub(in crate::cache) waiter: Option<Waiter>,
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
            return in_line::pending(waiter.as_ref(), context);
        };
        *waiter = None;
        session.count_acquired(&served);
        Poll::Ready(served)
    }
}
