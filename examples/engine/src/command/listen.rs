//! The option `--serve`: runs the command as an HTTP server.

use std::io::Write;
use std::net::TcpListener;

use radixkv_attention::cpu::Cpu;
#[cfg(feature = "cuda")]
use radixkv_cuda::{Device, Staged};
use tokio::signal::unix::{SignalKind, signal};

use super::{Arguments, CommandError};
use crate::model::{HostBackend, Model};
#[cfg(feature = "events")]
use crate::server::PublishedEvents;
use crate::server::{ServerError, ServerOptions, serve};
use crate::tokenizer::Tokenizer;

/// Serves until SIGINT or SIGTERM, and then answers the accepted requests.
pub(super) fn listen(
    arguments: &Arguments,
    address: &str,
    model: &Model,
    tokenizer: Tokenizer,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    if !arguments.on_gpu() {
        return listen_on(Cpu, arguments, address, model, tokenizer, out);
    }
    #[cfg(feature = "cuda")]
    return listen_on(Staged::new(&Device::open(0)?), arguments, address, model, tokenizer, out);
    #[cfg(not(feature = "cuda"))]
    Err(CommandError::NoCuda)
}

fn listen_on<B>(
    backend: B,
    arguments: &Arguments,
    address: &str,
    model: &Model,
    tokenizer: Tokenizer,
    out: &mut dyn Write,
) -> Result<(), CommandError>
where
    B: HostBackend + Clone + Send + Sync + 'static,
    B::Kv: Send + Sync + 'static,
{
    let engine = arguments.engine(backend, model, !arguments.no_cache)?;
    tokenizer.check_chat_template()?;
    let unusable = |source| ServerError::Listen { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).map_err(unusable)?;
    let name = arguments.model.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy());
    let defaults = ServerOptions::default();
    let options = ServerOptions {
        model: name.map_or_else(|| defaults.model.clone(), |name| name.into_owned()),
        waiting: usize::from(arguments.waiting),
        new_tokens: arguments.new_tokens,
        retained_blocks: arguments.blocks / 4,
        ..defaults
    };
    #[cfg(feature = "events")]
    let events = arguments.events.as_deref();
    #[cfg(feature = "events")]
    let events = events
        .map(|endpoint| PublishedEvents::start(engine.cache(), endpoint, arguments.events_replay.as_deref()))
        .transpose()
        .map_err(ServerError::Events)?;
    writeln!(out, "serving {} at http://{}", options.model, listener.local_addr()?)?;
    #[cfg(feature = "events")]
    if let Some(events) = &events {
        let replay = events.replay_endpoint().map(|replay| format!(", replay at {replay}")).unwrap_or_default();
        writeln!(out, "events at {}{replay}", events.endpoint())?;
    }
    out.flush()?;
    serve(&engine, tokenizer, listener, options, interrupted())?;
    Ok(())
}

/// Waits for SIGINT or SIGTERM.
async fn interrupted() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
