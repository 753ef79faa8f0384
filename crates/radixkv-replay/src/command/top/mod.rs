//! `radixkv top`: shows the state of a running cache in the terminal.
//!
//! The display shows a [`State`], which is read from the file of `radixkv replay --live`, or
//! computed from the metrics at an address.

mod plain;
mod scrape;
mod scraped;
mod view;
pub(crate) mod watch;

use std::{
    convert::Infallible,
    env, io,
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;

use crate::{console, input::Input, live::State, output::OutputError, screen::Screen, status::AT_FAULT};
use scrape::{Address, ScrapeError};
use scraped::Scraped;

/// Maximum number of bytes of a state.
const MAX_BYTES: u64 = 16 << 20;
/// Time between two reads of a file.
const PERIOD: Duration = Duration::from_millis(200);
/// Time between two scrapes of metrics, which cost the cache a little.
const SCRAPE_PERIOD: Duration = Duration::from_millis(500);

/// Show a running cache: occupancy, hit rate, evictions.
///
/// For a replay it also shows the hottest prefixes, and for metrics the hits of each namespace, if
/// the metrics have them.
///
/// Start `radixkv replay TRACE --live FILE` first, and this command next to it; or give the address
/// of an engine's metrics. q, Esc and Ctrl-C end it. If standard output is not a terminal, or only
/// shows text (TERM=dumb), the current state is printed as text.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Arguments {
    /// The file that `radixkv replay --live FILE` keeps up to date
    #[arg(long, value_name = "FILE")]
    live: Option<PathBuf>,
    /// Address of a cache's metrics, such as 127.0.0.1:9400 or http://HOST:PORT/metrics
    #[arg(long, value_name = "ADDR")]
    metrics: Option<Address>,
    /// Path of a region of digest-keyed blocks, or its name in /dev/shm
    #[cfg(feature = "region")]
    #[arg(long, value_name = "NAME")]
    region: Option<crate::region::Name>,
    #[arg(hide = true, id = "WHAT", value_parser = hint)]
    _what: Option<Infallible>,
}

/// The error for an argument without an option, which says what to use.
fn hint(text: &str) -> Result<Infallible, String> {
    Err(format!("give --metrics {text} for an address, or --live {text} for a file of `radixkv replay --live`"))
}

/// The source of states.
enum Source {
    File(PathBuf),
    Metrics(Box<Scraped>),
}

/// Why no state can be shown.
#[derive(Debug, thiserror::Error)]
enum TopError {
    /// The file cannot be read: start the replay first.
    #[error("{}: cannot be read: {source}; start `radixkv replay TRACE --live {}` first", path.display(), path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// The file is not the state of a replay: name another one.
    #[error("{}: not a file that `radixkv replay --live` of this version writes", path.display())]
    Malformed { path: PathBuf },
    /// The metrics cannot be read: first start the engine, or a replay with `--metrics`; or name
    /// another address.
    #[error("{address}: {source}")]
    Scrape { address: String, source: ScrapeError },
    /// The metrics do not belong to a cache: name the address of a program that has one.
    #[error("{address}: no metrics of a cache found")]
    NoCache { address: String },
    /// The terminal failed.
    #[error("the terminal failed: {0}")]
    Terminal(#[source] io::Error),
    #[error(transparent)]
    Output(OutputError),
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> ExitCode {
    #[cfg(feature = "region")]
    if let Some(name) = &arguments.region {
        return crate::region::top(name, screen);
    }
    match show(Source::new(arguments), screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say(format_args!("radixkv: {error}"));
            ExitCode::from(AT_FAULT)
        }
    }
}

impl Source {
    fn new(arguments: &Arguments) -> Self {
        match (&arguments.live, &arguments.metrics) {
            (_, Some(address)) => Self::Metrics(Box::new(Scraped::new(address.clone()))),
            (live, None) => Self::File(live.clone().unwrap_or_default()),
        }
    }

    /// Time between two reads.
    fn period(&self) -> Duration {
        match self {
            Self::File(_) => PERIOD,
            Self::Metrics(_) => SCRAPE_PERIOD,
        }
    }

    /// Reads the current state.
    fn read(&mut self) -> Result<State, TopError> {
        match self {
            Self::File(path) => read(path),
            Self::Metrics(scraped) => {
                let read = scraped.read();
                let address = || scraped.name().to_owned();
                match read {
                    Ok(state) => state.ok_or_else(|| TopError::NoCache { address: address() }),
                    Err(source) => Err(TopError::Scrape { address: address(), source }),
                }
            }
        }
    }
}

/// Reads a state from a file.
fn read(path: &Path) -> Result<State, TopError> {
    let text = Input::File(path.into()).bytes(MAX_BYTES);
    let text = text.map_err(|source| TopError::Unreadable { path: path.into(), source })?;
    serde_json::from_slice(&text).map_err(|_| TopError::Malformed { path: path.into() })
}

/// Whether standard output is a terminal that supports drawing.
pub(crate) fn is_drawn_on() -> bool {
    io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Shows states in a terminal; if there is none, prints the current one as text.
fn show(mut source: Source, screen: &Screen) -> Result<(), TopError> {
    let state = source.read()?;
    if is_drawn_on() {
        let watched = watch::watch(source.period(), move || source.read().ok(), state, view::draw);
        return watched.map_err(TopError::Terminal);
    }
    console::print(&plain::text(&state, screen)).map_err(|error| TopError::Output(OutputError::stdout(error)))
}
