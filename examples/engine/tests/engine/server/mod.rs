//! The engine as a server: what clients get, what they are refused, and that it goes on.

mod answers;
mod client;
mod crowd;
mod load;
mod refusals;
#[cfg(feature = "events")]
mod routing;
mod side_effects;
mod stuck;
mod tiers;
mod tokenizing;

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use engine::config::Config;
use engine::model::Model;
use engine::serve::{Engine, Options};
use engine::server::{ServerOptions, serve};
use engine::tokenizer::{TextStream, Tokenizer};
use radixkv::{PrefixCache, Token};
use radixkv_attention::Dtype;
use radixkv_attention::cpu::Cpu;
use radixkv_host::TieredCache;
use radixkv_scheduler::SchedulerConfig;
use tokio::sync::oneshot;

use crate::naive::continuation;
use crate::{assert_at_rest, random};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// A server that runs, as its test sees it.
struct Running {
    address: SocketAddr,
    cache: PrefixCache,
    /// The cache over a host tier, if there is one.
    tiers: Option<TieredCache>,
}

/// Two threads over 256 blocks of 8 tokens.
fn options() -> Options {
    let scheduler = SchedulerConfig::default().max_running(8).max_batch_tokens(72).max_chunk_tokens(64);
    Options { block_size: 8, blocks: 256, threads: 2, scheduler, ..Options::default() }
}

/// Runs a server for as long as `test` takes, over a host tier if the options have one; afterwards
/// no request holds a block of either.
fn with_server(model: &Model, options: Options, server: ServerOptions, test: impl FnOnce(&Running)) {
    with_tokenizer(model, Tokenizer::Bytes, options, server, test);
}

/// The same for a model of another tokenizer.
fn with_tokenizer(
    model: &Model,
    tokenizer: Tokenizer,
    options: Options,
    server: ServerOptions,
    test: impl FnOnce(&Running),
) {
    let engine = Engine::new(model, Cpu, options).expect("good options").over_host_tier().expect("they go together");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let running = Running { address, cache: engine.cache().clone(), tiers: engine.tiers().cloned() };
    thread::scope(|scope| {
        let stopped = async { drop(stopped.await) };
        let served = scope.spawn(|| serve(&engine, tokenizer, listener, server, stopped));
        // The server also stops when the test fails: the sender is dropped.
        let stop = stop;
        test(&running);
        drop(stop);
        served.join().expect("no panic").expect("it ends well");
    });
    assert_eq!(engine.queue().unfinished_requests(), 0);
    // Retained prefixes are given back when their time has passed.
    let end = Instant::now() + Duration::from_secs(60);
    while engine.blocks_in_use() > 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
    }
    assert_at_rest(engine.cache(), "the server");
    if let Some(tiers) = engine.tiers() {
        let stats = tiers.host().stats();
        assert_eq!(stats.pinned_blocks + stats.reserved_blocks, 0, "{stats:?}");
        tiers.host().validate().expect("a valid tier");
    }
}

/// The model that the command serves where it is given none.
fn model() -> Model {
    random(Config::small(), 4)
}

/// The text that follows a prompt, computed without a cache; up to an end token.
fn expected(model: &Model, prompt: &[Token], new_tokens: usize) -> String {
    let mut stream = TextStream::default();
    let output = continuation(model, Dtype::F32, prompt, new_tokens).output;
    let text: String = output.iter().map(|token| stream.push(&Tokenizer::Bytes, *token)).collect();
    text + &stream.finish(&Tokenizer::Bytes)
}

fn bytes(text: &str) -> Vec<Token> {
    Tokenizer::Bytes.text(text).expect("bytes")
}
