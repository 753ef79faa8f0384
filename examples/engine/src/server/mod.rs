//! The engine over HTTP, in OpenAI's interface.
//!
//! One thread reads and writes connections, the engine's scheduler threads compute, and a few more tokenize, and copy what a host tier
//! has of a prompt. A request
//! goes from a handler into the engine's queue; its tokens come back through a channel that never waits, so a client that
//! does not read holds up nobody. When the handler ends for whatever reason, its request is aborted.
//!
//! | module | what |
//! |---|---|
//! | `connections` | accepts, bounds what a connection may take, drains |
//! | `open` | which connection gives way to a new one |
//! | `bodies` | bodies of requests, within a budget for all of them |
//! | `routes` | paths, and what is not a completion |
//! | `fields`, `parameters`, `prompt` | what a body asks for, or why it is refused |
//! | `prepare` | from a prompt to a request: lengths, tokens, namespace |
//! | `generation` | one request from submission to its last text |
//! | `answer` | bodies of answers, whole and in pieces |
//! | `requests` | requests that are served, between handlers and schedulers |
//! | `worker` | a scheduler thread |
//! | `salts`, `retention` | namespaces and retained prefixes that clients ask for |
//! | `metrics` | Prometheus text |
//! | `events` | what the cache stores and removes, for routers |

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

/// Threads that tokenize, and copy from a host tier; further prompts wait for one.
const TOKENIZERS: usize = 4;

/// How many of these threads may tokenize texts of more than [`prepare::LONG`] bytes: such a text cannot be given up
/// halfway, and short ones must not wait for it.
const LONG_TEXTS: usize = TOKENIZERS / 2;

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// What clients call the model.
    pub model: String,
    /// Requests that wait at most; more are refused with 429.
    pub waiting: usize,
    /// Tokens that a prompt is continued by where its request does not say.
    pub new_tokens: usize,
    /// Blocks that `cache_control` may retain at most. A request that needs more than all other blocks is refused, so that
    /// none waits for retained ones.
    pub retained_blocks: usize,
    /// Bytes of a request's body at most.
    pub body_bytes: usize,
    /// Bytes of all bodies of requests that are being read or tokenized; beyond, unfinished ones give way to newer ones.
    pub bodies_bytes: usize,
    /// Connections at once; beyond, those without a request that is served give way to newer ones.
    pub connections: usize,
    /// How long requests may go on after the server was asked to stop.
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

/// Why a server has ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on: it is none, or another program has the port.
    #[error("cannot listen at {address}, give a host and a port such as localhost:8000: {source}")]
    Listen {
        /// Which address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The system has no more sockets or threads.
    #[error("the system has no socket or thread left for the server: {0}")]
    System(#[from] io::Error),
    /// A scheduler thread has failed; requests were answered with an error.
    #[error("{0}")]
    Engine(#[from] ServeError),
    /// The cache's events cannot be published: the endpoint is none, or taken.
    #[cfg(feature = "events")]
    #[error("{0}")]
    Events(#[from] EventsError),
    /// A scheduler thread has panicked; requests were answered with an error.
    #[error("a scheduler thread has panicked")]
    Panicked,
}

/// What handlers and scheduler threads share.
struct Service {
    intake: Intake,
    cache: PrefixCache,
    /// The cache over a host tier, if there is one.
    tiers: Option<TieredCache>,
    tokenizer: Arc<Tokenizer>,
    /// Threads that tokenize, and copy from a host tier.
    tokenizers: Arc<Semaphore>,
    /// Those of them that long texts may have.
    long_texts: Arc<Semaphore>,
    /// Whether prefixes are published at all.
    publish: bool,
    /// How tokens are sampled where a request does not say.
    sampling: Sampling,
    bodies: Bodies,
    requests: Requests,
    salts: Salts,
    retention: Arc<Retention>,
    metrics: Metrics,
    options: ServerOptions,
}

impl Service {
    /// Tokens that prompt and output may have: what the model takes, and what fits beside retained prefixes.
    fn most_tokens(&self) -> usize {
        let blocks = self.cache.capacity_blocks().saturating_sub(self.retention.budget_blocks());
        // The last token is sampled and never computed.
        let fit = blocks.saturating_mul(self.cache.block_size()).saturating_add(1);
        fit.min(self.intake.max_positions())
    }
}

/// Serves until `stop` is ready, and then until the requests that were accepted are answered.
///
/// # Errors
///
/// If the system refuses the server, or a scheduler thread fails.
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
        // Handlers that are left are dropped, and with each its request.
        drop(runtime);
        service.requests.end();
        let ended: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        for worker in ended {
            worker.map_err(|_| ServerError::Panicked)??;
        }
        Ok(listened?)
    })
}
