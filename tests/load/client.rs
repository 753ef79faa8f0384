//! A client: sends its requests, and leaves when it has waited for long enough.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::engine::{COMPLETED, Engine};
use crate::plan::Request;

/// Sends each request at its time. A client that leaves drops the request wherever it waits.
pub async fn run(engine: Arc<Engine>, requests: Vec<Arc<Request>>) {
    for request in requests {
        engine.clock.at(request.arrives).await;
        let place = AtomicUsize::new(0);
        let served = engine.clock.until(request.leaves, engine.serve(&request, &place)).await;
        engine.count(if served.is_some() { COMPLETED } else { place.load(Relaxed) });
    }
}
