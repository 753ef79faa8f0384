//! The HTTP server of the engine, with OpenAI's interface.
//!
//! One thread reads and writes all connections. The engine's scheduler threads compute. A few more
//! threads tokenize prompts and copy a prompt's blocks from a host tier. A handler puts its request
//! into the engine's queue. The tokens come back through an unbounded channel, so a client that
//! does not read blocks nobody. When a handler ends for any reason, its request is aborted.
//!
//! | module | what |
//! |---|---|
//! | `connections` | accepts and limits connections, drains them at the end |
//! | `open` | the open connections, and which one is closed for a new one |
//! | `bodies` | bodies of requests, within a budget for all of them |
//! | `routes` | HTTP paths, and the handlers |
//! | `fields`, `parameters`, `prompt` | parse and check a request's body |
//! | `prepare` | from a prompt to a request: lengths, tokens, namespace |
//! | `generation` | one request, from its submission to its last text |
//! | `answer` | bodies of answers, whole or as a stream |
//! | `requests` | the requests in service, shared by handlers and scheduler threads |
//! | `worker` | a scheduler thread |
//! | `salts`, `retention` | namespaces by salt, and retained prefixes |
//! | `metrics` | metrics as text |
//! | `events` | publishes the cache's KV events for routers |

mod answer;
mod bodies;
mod connections;
mod error;
#[cfg(feature = "events")]
mod events;
mod fields;
mod generation;
mod metrics;
mod open;
mod parameters;
mod prepare;
mod prompt;
mod requests;
mod retention;
mod routes;
mod salts;
mod worker;

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use radixkv::PrefixCache;
use radixkv_host::TieredCache;
use tokio::sync::Semaphore;

use crate::intake::Intake;
use crate::model::HostBackend;
use crate::sampling::Sampling;
use crate::serve::{Engine, ServeError};
use crate::tokenizer::Tokenizer;
use bodies::Bodies;
#[cfg(feature = "events")]
pub use events::{EventsError, PublishedEvents};
use metrics::Metrics;
use requests::Requests;
use retention::Retention;
use salts::Salts;

/// Number of threads that tokenize and copy from a host tier; further prompts wait.
const TOKENIZERS: usize = 4;

/// Number of these threads that may tokenize texts of more than [`prepare::LONG`] bytes. Tokenizing
/// a text cannot be cancelled, and short texts must not wait for long ones.
const LONG_TEXTS: usize = TOKENIZERS / 2;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The model's name for clients.
    pub model: String,
    /// Maximum number of waiting requests; more are refused with 429.
    pub waiting: usize,
    /// Number of tokens to generate if a request does not specify it.
    pub new_tokens: usize,
    /// Maximum number of blocks that `cache_control` may retain. A request that needs more than the
    /// other blocks is refused, so that no request waits for retained blocks.
    pub retained_blocks: usize,
    /// Maximum bytes of a request's body.
    pub body_bytes: usize,
    /// Maximum bytes of all bodies that are being read or tokenized; beyond it, unfinished bodies
    /// are dropped for newer ones.
    pub bodies_bytes: usize,
    /// Maximum number of connections; beyond it, connections without a request in service are
    /// closed for newer ones.
    pub connections: usize,
    /// How long requests may continue after the server was asked to stop.
    pub drain: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            model: "seeded".to_owned(),
            waiting: 256,
            new_tokens: 32,
            retained_blocks: 0,
            body_bytes: 4 << 20,
            bodies_bytes: 32 << 20,
            connections: 512,
            drain: Duration::from_secs(30),
        }
    }
}

/// Why a server failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The server cannot listen at the address: it is invalid, or another program uses the port.
    #[error("cannot listen at {address}, give a host and a port such as localhost:8000: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The system has no more sockets or threads.
    #[error("the system has no socket or thread left for the server: {0}")]
    System(#[from] io::Error),
    /// A scheduler thread failed; requests were answered with an error.
    #[error("{0}")]
    Engine(#[from] ServeError),
    /// The cache's events cannot be published: the endpoint is invalid or in use.
    #[cfg(feature = "events")]
    #[error("{0}")]
    Events(#[from] EventsError),
    /// A scheduler thread panicked; requests were answered with an error.
    #[error("a scheduler thread has panicked")]
    Panicked,
}

/// State that handlers and scheduler threads share.
struct Service {
    intake: Intake,
    cache: PrefixCache,
    /// The cache over a host tier, if there is one.
    tiers: Option<TieredCache>,
    tokenizer: Arc<Tokenizer>,
    /// Permits for the threads that tokenize and copy from a host tier.
    tokenizers: Arc<Semaphore>,
    /// Permits for long texts on these threads.
    long_texts: Arc<Semaphore>,
    /// Whether computed prefixes are inserted into the cache at all.
    publish: bool,
    /// The default sampling, for requests that do not specify it.
    sampling: Sampling,
    bodies: Bodies,
    requests: Requests,
    salts: Salts,
    retention: Arc<Retention>,
    metrics: Metrics,
    options: ServerOptions,
}

impl Service {
    /// Maximum number of tokens of prompt and output: limited by the model, and by the blocks that
    /// are not reserved for retained prefixes.
    fn most_tokens(&self) -> usize {
        let blocks = self.cache.capacity_blocks().saturating_sub(self.retention.budget_blocks());
        // The last token is sampled but never computed, so it needs no slot.
        let fit = blocks.saturating_mul(self.cache.block_size()).saturating_add(1);
        fit.min(self.intake.max_positions())
    }
}

/// Serves until `stop` is ready, and then until the accepted requests are answered, at most for
/// [`ServerOptions::drain`].
///
/// # Errors
///
/// If the system cannot run the server, or a scheduler thread fails.
pub fn serve<B>(
    engine: &Engine<'_, B>,
    tokenizer: Tokenizer,
    listener: TcpListener,
    options: ServerOptions,
    stop: impl Future<Output = ()>,
) -> Result<(), ServerError>
where
    B: HostBackend + Sync,
    B::Kv: Send + Sync,
{
    let setup = engine.options();
    let slots = setup.threads * setup.scheduler.max_running as usize;
    let retention = Arc::new(Retention::new(options.retained_blocks, setup.block_size));
    let service = Arc::new(Service {
        intake: engine.intake(),
        cache: engine.cache().clone(),
        tiers: engine.tiers().cloned(),
        tokenizer: Arc::new(tokenizer),
        tokenizers: Arc::new(Semaphore::new(TOKENIZERS)),
        long_texts: Arc::new(Semaphore::new(LONG_TEXTS)),
        publish: setup.publish,
        sampling: setup.sampling,
        bodies: Bodies::new(options.body_bytes, options.bodies_bytes),
        requests: Requests::new(options.waiting, slots),
        salts: Salts::new(engine.cache().clone(), engine.tiers().cloned(), Arc::clone(&retention)),
        retention,
        metrics: Metrics::new(&options.model, engine.cache()),
        options,
    });
    let runtime =
        tokio::runtime::Builder::new_current_thread().max_blocking_threads(TOKENIZERS).enable_all().build()?;
    thread::scope(|scope| {
        let worker = || worker::run(engine, &service);
        let workers: Vec<_> = (0..setup.threads).map(|_| scope.spawn(worker)).collect();
        let listened = runtime.block_on(connections::run(listener, Arc::clone(&service), stop));
        // Drops the remaining handlers, which aborts their requests.
        drop(runtime);
        service.requests.end();
        let ended: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        for worker in ended {
            worker.map_err(|_| ServerError::Panicked)??;
        }
        Ok(listened?)
    })
}
