//! `radixkv follow`: what the workers of vLLM, SGLang and radixkv hold, by their KV events.

mod seen;
mod table;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use radixkv_events::{FollowError, SubscribeError, Subscriber};

use crate::{console, output::OutputError, report::json, screen::Screen, serving::unit, status::AT_FAULT};
use seen::{Seen, Worker};

/// How often signals are looked for.
const TICK: Duration = Duration::from_millis(20);
/// How long `--once` waits for all workers.
const PATIENCE: Duration = Duration::from_secs(10);
/// What moves a terminal to its first line and clears the rest of the screen.
const HOME: &str = "\x1b[H\x1b[J";

/// Follow the KV events of running workers, and show what each holds.
///
/// A worker is a publisher of vLLM, SGLang or radixkv: tcp://HOST:5557, its data-parallel rank added to the port. With
/// --replay what was missed is asked for again, and publishers that have snapshots say what they hold at once; without
/// it a worker is seen from now on, and gaps stay. Publishers that are not there yet are waited for. Ctrl-C ends it.
///
/// Exit status: 0 on success, 2 if the command line, a worker or the system is at fault.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Where the workers publish, such as tcp://127.0.0.1:5557
    #[arg(required = true, value_name = "ENDPOINT")]
    endpoints: Vec<String>,
    /// Where the workers answer what was missed, one for each endpoint, in their order
    #[arg(long, value_name = "ENDPOINT")]
    replay: Vec<String>,
    /// Follow only topics that begin with this text [default: all topics]
    #[arg(long, value_name = "TEXT")]
    topic: Option<String>,
    /// Tokens per block that all workers must have [default: what each one's first event says]
    #[arg(long, value_name = "TOKENS", value_parser = unit)]
    block_size: Option<u32>,
    /// Print one JSON object a line instead of tables
    #[arg(long)]
    json: bool,
    /// Seconds from one table to the next
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    every: Duration,
    /// Print once, when every worker was heard or after ten seconds, and end
    #[arg(long, conflicts_with = "for")]
    once: bool,
    /// End after this time
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    r#for: Option<Duration>,
}

/// Why nothing is followed.
#[derive(Debug, thiserror::Error)]
enum FollowingError {
    #[error(transparent)]
    Subscribe(#[from] SubscribeError),
    /// Say where each worker answers, or for none.
    #[error("{replay} --replay for {endpoints} endpoints; give one for each, or none")]
    Replays { replay: usize, endpoints: usize },
    /// Follow workers with one block size, or leave --block-size out.
    #[error("{endpoint}: {source}")]
    Refused { endpoint: String, source: FollowError },
    /// Start the worker, or correct the endpoint.
    #[error("{endpoint}: nothing was heard within {} s", PATIENCE.as_secs())]
    Silent { endpoint: String },
    /// The system refuses a handler.
    #[error("signals: {0}")]
    Signals(#[source] io::Error),
    /// What was seen cannot be written.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Output(OutputError),
}

/// A time in seconds, above zero.
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
    let subscribers = subscribe(arguments)?;
    let began = Instant::now();
    let end = if arguments.once { Some(PATIENCE) } else { arguments.r#for };
    let is_over = || {
        // Relaxed: a wish; nothing else depends on it.
        let is_heard =
            |(_, subscriber): &(String, Subscriber)| subscriber.with(|follower| follower.next_seq().is_some());
        stop.load(Relaxed)
            || end.is_some_and(|end| began.elapsed() >= end)
            || (arguments.once && subscribers.iter().all(is_heard))
    };
    let mut shown = Instant::now();
    loop {
        let is_over = is_over();
        if let Some((endpoint, source)) = refused(&subscribers) {
            return Err(FollowingError::Refused { endpoint, source });
        }
        if is_over || (!arguments.once && shown.elapsed() >= arguments.every) {
            show(arguments, &see(&subscribers, began), screen)?;
            shown = Instant::now();
        }
        if is_over {
            break;
        }
        thread::sleep(TICK);
    }
    let silent = subscribers.iter().find(|(_, subscriber)| subscriber.with(|follower| follower.next_seq().is_none()));
    match silent {
        Some((endpoint, _)) if arguments.once => Err(FollowingError::Silent { endpoint: endpoint.clone() }),
        _ => Ok(()),
    }
}

/// Set by the signals that end it.
fn stop() -> Result<Arc<AtomicBool>, FollowingError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signal_hook::consts::TERM_SIGNALS {
        signal_hook::flag::register(*signal, Arc::clone(&stop)).map_err(FollowingError::Signals)?;
    }
    Ok(stop)
}

fn subscribe(arguments: &Arguments) -> Result<Vec<(String, Subscriber)>, FollowingError> {
    let (endpoints, replay) = (arguments.endpoints.len(), arguments.replay.len());
    if replay != 0 && replay != endpoints {
        return Err(FollowingError::Replays { replay, endpoints });
    }
    let mut replays = arguments.replay.iter();
    let subscribe = |endpoint: &String| {
        let mut builder = Subscriber::builder(endpoint).topic(arguments.topic.as_deref().unwrap_or_default());
        if let Some(block_size) = arguments.block_size {
            builder = builder.block_size(block_size);
        }
        if let Some(replay) = replays.next() {
            builder = builder.replay(replay);
        }
        Ok((endpoint.clone(), builder.start()?))
    };
    arguments.endpoints.iter().map(subscribe).collect()
}

/// The first worker that is followed no more, and why.
fn refused(subscribers: &[(String, Subscriber)]) -> Option<(String, FollowError)> {
    subscribers.iter().find_map(|(endpoint, subscriber)| Some((endpoint.clone(), subscriber.failure()?)))
}

fn see(subscribers: &[(String, Subscriber)], began: Instant) -> Seen {
    let worker = |(endpoint, subscriber): &(String, Subscriber)| {
        subscriber.with(|follower| Worker::new(endpoint, subscriber.is_connected(), follower))
    };
    Seen { seconds: began.elapsed().as_secs_f64(), workers: subscribers.iter().map(worker).collect() }
}

/// Prints what was seen; on a terminal a table takes the place of the one before.
fn show(arguments: &Arguments, seen: &Seen, screen: &Screen) -> Result<(), FollowingError> {
    let text = match arguments.json {
        true => json(seen)?,
        false if !arguments.once && io::stdout().is_terminal() => format!("{HOME}{}", table::text(seen, screen)),
        false => table::text(seen, screen),
    };
    console::print(&text).map_err(|error| FollowingError::Output(OutputError::stdout(error)))
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
