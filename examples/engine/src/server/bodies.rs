//! Reads the bodies of requests, with a limit on the total bytes of all bodies.
//!
//! A body keeps its share of the budget until its request is dropped or tokenized. When the budget
//! is used up, the oldest unfinished body is dropped. So clients that do not finish their bodies
//! cannot block others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use futures_util::StreamExt;
use tokio::sync::Notify;

use super::error::ApiError;

/// Maximum time for a client to send a body.
const PATIENCE: Duration = Duration::from_secs(20);

/// All bodies of a server.
#[derive(Debug)]
pub(super) struct Bodies {
    /// Maximum bytes of one body, and of all bodies.
    longest: usize,
    budget: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    next: u64,
    unfinished: BTreeMap<u64, Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    bytes: usize,
    gives_way: Arc<Notify>,
}

/// A body's share of the budget, given back on drop.
#[derive(Debug)]
pub(super) struct Share<'b> {
    bodies: &'b Bodies,
    number: u64,
    gives_way: Arc<Notify>,
    /// The bytes of a finished body; 0 before.
    whole: usize,
}

impl State {
    /// Removes an unfinished body, and returns its bytes to the budget.
    fn take_off(&mut self, number: u64) -> Option<Unfinished> {
        let body = self.unfinished.remove(&number)?;
        self.used -= body.bytes;
        Some(body)
    }
}

impl Bodies {
    pub(super) fn new(longest: usize, budget: usize) -> Self {
        Self { longest, budget: budget.max(longest), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that may panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a body to its end.
    pub(super) async fn read(&self, body: Body) -> Result<(Vec<u8>, Share<'_>), ApiError> {
        if body.size_hint().lower() > self.longest as u64 {
            return Err(self.too_long());
        }
        let mut share = self.begin();
        let gives_way = Arc::clone(&share.gives_way);
        let read = tokio::select! {
            biased;
            () = gives_way.notified() => return Err(gave_way()),
            read = tokio::time::timeout(PATIENCE, self.read_into(body, &mut share)) => read,
        };
        let too_slow = |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body came too slowly");
        let whole = read.map_err(too_slow)??;
        share.finish()?;
        Ok((whole, share))
    }

    async fn read_into(&self, body: Body, share: &mut Share<'_>) -> Result<Vec<u8>, ApiError> {
        let (mut whole, mut parts) = (Vec::new(), body.into_data_stream());
        while let Some(part) = parts.next().await {
            let part = part.map_err(|_| ApiError::new(StatusCode::BAD_REQUEST, "the body was cut off"))?;
            let len = whole.len() + part.len();
            if len > self.longest {
                return Err(self.too_long());
            }
            if len > whole.capacity() {
                let capacity = len.max(2 * whole.capacity()).min(self.longest);
                share.grow(capacity - whole.capacity())?;
                whole.reserve_exact(capacity - whole.len());
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole)
    }

    fn begin(&self) -> Share<'_> {
        let mut state = self.lock();
        let (number, gives_way) = (state.next, Arc::new(Notify::new()));
        state.next += 1;
        state.unfinished.insert(number, Unfinished { bytes: 0, gives_way: Arc::clone(&gives_way) });
        Share { bodies: self, number, gives_way, whole: 0 }
    }

    fn too_long(&self) -> ApiError {
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {} bytes", self.longest))
    }
}

fn gave_way() -> ApiError {
    ApiError::later(1, "the body gave way to newer ones: send it again, faster")
}

impl Share<'_> {
    /// Takes more bytes from the budget. If necessary, drops other unfinished bodies, the oldest
    /// first.
    fn grow(&self, bytes: usize) -> Result<(), ApiError> {
        let mut state = self.bodies.lock();
        while state.used + bytes > self.bodies.budget {
            let oldest = state.unfinished.iter().find(|(number, body)| **number != self.number && body.bytes > 0);
            let oldest = oldest.map(|(number, _)| *number);
            let Some(body) = oldest.and_then(|number| state.take_off(number)) else {
                return Err(ApiError::later(1, "the bodies of requests that wait have all bytes that bodies may have"));
            };
            body.gives_way.notify_one();
        }
        let own = state.unfinished.get_mut(&self.number).ok_or_else(gave_way)?;
        own.bytes += bytes;
        state.used += bytes;
        Ok(())
    }

    /// Marks the body as finished: it is not dropped for others any more. An error if it has been
    /// dropped already, and its bytes are no longer counted.
    fn finish(&mut self) -> Result<(), ApiError> {
        let body = self.bodies.lock().unfinished.remove(&self.number).ok_or_else(gave_way)?;
        self.whole = body.bytes;
        Ok(())
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut state = self.bodies.lock();
        state.take_off(self.number);
        state.used -= self.whole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(bodies: &Bodies) -> usize {
        bodies.lock().used
    }

    #[test]
    fn the_unfinished_body_that_began_first_gives_way() {
        let bodies = Bodies::new(40, 100);
        let mut shares: Vec<_> = (0..4).map(|_| bodies.begin()).collect();
        shares.iter_mut().take(2).for_each(|share| share.grow(40).expect("room"));
        shares[1].finish().expect("it has its bytes");
        shares[2].grow(40).expect("the first gives way");
        assert!(shares[0].grow(1).is_err() && shares[0].finish().is_err(), "it gave way");
        assert_eq!(used(&bodies), 80);
        shares[2].finish().expect("it has its bytes");
        assert!(shares[3].grow(40).is_err(), "whole bodies do not give way");
        shares[3].grow(20).expect("what is left");
        drop(shares.remove(1));
        assert_eq!(used(&bodies), 60);
        drop(shares);
        assert_eq!(used(&bodies), 0);
    }
}
