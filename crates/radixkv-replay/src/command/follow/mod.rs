//! `radixkv follow`: shows what workers of vLLM, SGLang and radixkv cache, according to their KV
//! events.

mod seen;
mod table;

use std::{
    io::{self, IsTerminal},
    mem::ManuallyDrop,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use radixkv_events::{FollowError, Follower, HoldError, SubscribeError, Subscriber};

use crate::{
    bytes::Bytes, console, output::OutputError, report::json, screen::Screen, serving::unit, status::AT_FAULT,
};
use seen::{Seen, Worker};

/// How often signals are checked.
const TICK: Duration = Duration::from_millis(20);
/// How long to wait for workers that are busy with events; after that, their last known state is
/// shown.
const LOOK: Duration = Duration::from_millis(200);
/// How long `--once` waits for the first events of all workers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Moves the cursor of a terminal to its first line and clears the screen below.
const HOME: &str = "\x1b[H\x1b[J";

/// Follow the KV events of running workers, and show what each one caches.
///
/// A worker is a publisher of vLLM, SGLang or radixkv: tcp://HOST:5557, with its data-parallel rank
/// added to the port. With --replay, missed batches are requested again, and publishers with
/// snapshots send their whole content first; without it, only later blocks of a worker are known,
/// and gaps remain. The command waits for publishers that are not running yet. Ctrl-C ends it.
///
/// Exit status: 0 on success, 2 if the command line, a worker or the system is at fault.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Endpoints where the workers publish, such as tcp://127.0.0.1:5557
    #[arg(required = true, value_name = "ENDPOINT")]
    endpoints: Vec<String>,
    /// Endpoints where the workers replay missed batches, one for each worker, in the same order
    #[arg(long, value_name = "ENDPOINT")]
    replay: Vec<String>,
    /// Follow only topics that begin with this text [default: all topics]
    #[arg(long, value_name = "TEXT")]
    topic: Option<String>,
    /// Tokens per block that all workers must use [default: as in each worker's first event]
    #[arg(long, value_name = "TOKENS", value_parser = unit)]
    block_size: Option<u32>,
    /// Memory limit for the blocks of each worker; a worker that holds more is refused
    #[arg(long, default_value = "512MiB", value_name = "BYTES")]
    max_memory: Bytes,
    /// Print one JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Seconds between two tables
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    every: Duration,
    /// Print one table once every worker has sent events, or after ten seconds, and exit
    #[arg(long, conflicts_with = "for")]
    once: bool,
    /// Exit after this time
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    r#for: Option<Duration>,
}

/// Why workers cannot be followed.
#[derive(Debug, thiserror::Error)]
enum FollowingError {
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// The options differ in number: give a `--replay` for each endpoint, or none.
    #[error("{replay} --replay for {endpoints} endpoints; give one for each, or none")]
    Replays { replay: usize, endpoints: usize },
    /// The worker has another block size than `--block-size`, or too many blocks for
    /// `--max-memory`: follow workers with one block size, omit the option, or allow more memory.
    #[error("{endpoint}: {source}{}", remedy(source))]
    Refused { endpoint: String, source: FollowError },
    /// A worker sent no events in time: start the worker, or correct the endpoint.
    #[error("{endpoint}: no events within {} s", PATIENCE.as_secs())]
    Silent { endpoint: String },
    /// The system refused a signal handler.
    #[error("handling signals failed: {0}")]
    Signals(#[source] io::Error),
    /// The state cannot be serialized.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Output(OutputError),
}

/// The option that helps, if there is one.
fn remedy(error: &FollowError) -> &'static str {
    match error {
        FollowError::Refused(HoldError::TooManyBlocks { .. }) => "; raise it with --max-memory",
        _ => "",
    }
}

/// A worker that is followed.
struct Followed {
    endpoint: String,
    subscriber: Subscriber,
    is_heard: bool,
    /// The last known state of the worker.
    seen: Worker,
}

/// Parses a time in seconds, above zero.
fn seconds(text: &str) -> Result<Duration, &'static str> {
    let wanted = "not a number of seconds above zero";
    let seconds: f64 = text.parse().map_err(|_| wanted)?;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or(wanted)
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> ExitCode {
    match follow(arguments, screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say(format_args!("radixkv: {error}"));
            ExitCode::from(AT_FAULT)
        }
    }
}

fn follow(arguments: &Arguments, screen: &Screen) -> Result<(), FollowingError> {
    let stop = stop()?;
    // Not dropped: that would wait for a busy worker, and the process ends here.
    let mut workers = ManuallyDrop::new(subscribe(arguments)?);
    let began = Instant::now();
    let end = if arguments.once { Some(PATIENCE) } else { arguments.r#for };
    let mut shown = Instant::now();
    loop {
        workers.iter_mut().for_each(Followed::listen);
        // Relaxed: the flag publishes no other data.
        let is_over = stop.load(Relaxed)
            || end.is_some_and(|end| began.elapsed() >= end)
            || (arguments.once && workers.iter().all(|worker| worker.is_heard));
        if let Some((endpoint, source)) = refused(&workers) {
            return Err(FollowingError::Refused { endpoint, source });
        }
        if is_over || (!arguments.once && shown.elapsed() >= arguments.every) {
            if !show(arguments, &see(&mut workers, began), screen)? {
                return Ok(());
            }
            shown = Instant::now();
        }
        if is_over {
            break;
        }
        thread::sleep(TICK);
    }
    match workers.iter().find(|worker| !worker.is_heard) {
        Some(silent) if arguments.once => Err(FollowingError::Silent { endpoint: silent.endpoint.clone() }),
        _ => Ok(()),
    }
}

/// A flag that the terminating signals set.
fn stop() -> Result<Arc<AtomicBool>, FollowingError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signal_hook::consts::TERM_SIGNALS {
        signal_hook::flag::register(*signal, Arc::clone(&stop)).map_err(FollowingError::Signals)?;
    }
    Ok(stop)
}

fn subscribe(arguments: &Arguments) -> Result<Vec<Followed>, FollowingError> {
    let (endpoints, replay) = (arguments.endpoints.len(), arguments.replay.len());
    if replay != 0 && replay != endpoints {
        return Err(FollowingError::Replays { replay, endpoints });
    }
    let max_bytes = usize::try_from(arguments.max_memory.0).unwrap_or(usize::MAX);
    let mut replays = arguments.replay.iter();
    let subscribe = |endpoint: &String| {
        let mut builder = Subscriber::builder(endpoint).topic(arguments.topic.as_deref().unwrap_or_default());
        if let Some(block_size) = arguments.block_size {
            builder = builder.block_size(block_size);
        }
        if let Some(replay) = replays.next() {
            builder = builder.replay(replay);
        }
        let subscriber = builder.max_bytes(max_bytes).start()?;
        let seen = Worker::new(endpoint, false, &Follower::new());
        Ok(Followed { endpoint: endpoint.clone(), subscriber, is_heard: false, seen })
    };
    arguments.endpoints.iter().map(subscribe).collect()
}

/// The first worker that can no longer be followed, and the reason.
fn refused(workers: &[Followed]) -> Option<(String, FollowError)> {
    workers.iter().find_map(|worker| Some((worker.endpoint.clone(), worker.subscriber.failure()?)))
}

/// Updates the state of all workers, in at most about [`LOOK`].
fn see(workers: &mut [Followed], began: Instant) -> Seen {
    let end = Instant::now() + LOOK;
    workers.iter_mut().for_each(|worker| worker.look(end));
    Seen { seconds: began.elapsed().as_secs_f64(), workers: workers.iter().map(|worker| worker.seen.clone()).collect() }
}

impl Followed {
    /// Records whether the worker has sent events, unless it is busy.
    fn listen(&mut self) {
        self.is_heard |= self.subscriber.try_with(|follower| follower.next_seq().is_some()).unwrap_or(false);
    }

    /// Updates the worker's state, unless it is busy until `end`.
    fn look(&mut self, end: Instant) {
        self.seen.connected = self.subscriber.is_connected();
        loop {
            let worker = |follower: &Follower| Worker::new(&self.endpoint, self.seen.connected, follower);
            if let Some(seen) = self.subscriber.try_with(worker) {
                self.seen = seen;
                return;
            }
            if Instant::now() >= end {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Prints the state; on a terminal a table replaces the one before. Returns whether the reader of
/// standard output may still be there.
fn show(arguments: &Arguments, seen: &Seen, screen: &Screen) -> Result<bool, FollowingError> {
    let text = match arguments.json {
        true => json(seen)?,
        false if !arguments.once && io::stdout().is_terminal() => format!("{HOME}{}", table::text(seen, screen)),
        false => table::text(seen, screen),
    };
    console::print_while_read(&text).map_err(|error| FollowingError::Output(OutputError::stdout(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_above_zero() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "NaN", "1e300", "one", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
