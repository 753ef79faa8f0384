//! The subcommand `must`: measures the cache's required figures and compares each with its bound.
//!
//! Each row is measured in its own process, so that other rows' memory does not disturb it.

#[allow(dead_code)]
#[path = "../../../common/mod.rs"]
mod common;
#[path = "../../../growth/dimensions.rs"]
mod dimensions;
mod emptied;
mod figure;
mod flat;
mod holds;
#[allow(dead_code)]
#[path = "../../../ratios/lookups.rs"]
mod lookups;
mod matches;
#[path = "../../../instructions/operations.rs"]
mod operations;
mod profile;
mod rounds;
mod writes;

use std::{
    io,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    process::{Command, ExitCode},
};

use clap::{Args, ValueEnum};

use crate::arena::{
    row::Failure,
    settings::{self, Settings},
};
use figure::Figure;
use profile::Profiled;

/// Rounds of each row by default.
const ROUNDS: usize = 9;
/// The most threads of a row.
const THREADS: usize = 2;

/// Measure what the cache must show, and say which rows it meets
///
/// Medians of rounds in turn, with quartiles. Exit status: 0 if all was measured, met or not; 1 if
/// an answer was wrong or a row could not be measured; 2 if the command line is at fault.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The rows to measure; all of them without any
    #[arg(value_enum, value_name = "ROW")]
    rows: Vec<Name>,
    /// The trace of the row `replay`, as `radixkv replay` takes it [default: a built-in workload]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Rounds of each row
    #[arg(long, default_value_t = ROUNDS, value_name = "N", value_parser = settings::rounds)]
    rounds: usize,
    /// A fifth of the rounds, a tenth of the calls and of a million: about a minute, to see that it
    /// works
    #[arg(long)]
    quick: bool,
    /// Measure one row in this process
    #[arg(long, hide = true)]
    here: bool,
    /// Do what is profiled, so many times, and nothing else
    #[arg(long, hide = true, num_args = 2, value_names = ["WHAT", "CALLS"])]
    profiled: Option<Vec<String>>,
}

/// How a row is measured.
struct Plan {
    settings: Settings,
    trace: Option<PathBuf>,
}

impl Plan {
    /// The size `full`, or a tenth of it if `--quick` is given.
    fn size(&self, full: usize) -> usize {
        self.settings.calls(full)
    }

    /// Number of rounds of a row whose rounds take seconds.
    fn few(&self) -> usize {
        self.settings.rounds.min(5)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    Replay,
    Evict,
    Insert,
    Mixed,
    LockShare,
    Turnover,
    Sessions,
    Cold,
    Rotating,
    Reserve,
    Append,
    Holds,
    Emptied,
    Hot,
}

pub(crate) fn run(arguments: Arguments) -> ExitCode {
    if let Some(what) = &arguments.profiled {
        return Profiled::run(what);
    }
    if arguments.here {
        return measure_here(arguments);
    }
    let wanted = |name: &Name| arguments.rows.is_empty() || arguments.rows.contains(name);
    println!("{}", Figure::header(arguments.quick));
    let mut status = ExitCode::SUCCESS;
    for name in Name::value_variants().iter().filter(|name| wanted(name)) {
        match measure_apart(*name, &arguments) {
            Ok(true) => {}
            Ok(false) => status = ExitCode::FAILURE,
            Err(error) => {
                eprintln!("radixkv-peers: cannot be started again: {error}");
                return ExitCode::from(2);
            }
        }
    }
    status
}

/// Measures one row in its own process, which prints the row. Returns whether that process
/// succeeded.
fn measure_apart(name: Name, arguments: &Arguments) -> io::Result<bool> {
    let mut command = Command::new(std::env::current_exe()?);
    let value = name.to_possible_value().expect("it can be named");
    command.args(["must", "--here", value.get_name(), "--rounds", &arguments.rounds.to_string()]);
    command.args(arguments.quick.then_some("--quick"));
    if let Some(trace) = &arguments.trace {
        command.arg("--trace").arg(trace);
    }
    Ok(command.status()?.success())
}

fn measure_here(arguments: Arguments) -> ExitCode {
    let settings = Settings::new(arguments.rounds, Some(THREADS), arguments.quick);
    let plan = Plan { settings, trace: arguments.trace };
    panic::set_hook(Box::new(|_| ()));
    let mut status = ExitCode::SUCCESS;
    for &name in &arguments.rows {
        match panic::catch_unwind(AssertUnwindSafe(|| measure(name, &plan))) {
            Ok(figures) => figures.iter().for_each(|figure| println!("{figure}")),
            Err(panic) => {
                let value = name.to_possible_value().expect("it can be named");
                println!("{}: {}", value.get_name(), Failure::from(panic));
                status = ExitCode::FAILURE;
            }
        }
    }
    status
}

fn measure(name: Name, plan: &Plan) -> Vec<Figure> {
    match name {
        Name::Replay => writes::replay(plan),
        Name::Evict => writes::evict(plan),
        Name::Insert => writes::insert(plan),
        Name::Mixed => writes::mixed(plan),
        Name::LockShare => profile::lock_shares(),
        Name::Turnover => writes::turnover(plan),
        Name::Sessions => flat::sessions(plan),
        Name::Cold => matches::cold(plan),
        Name::Rotating => matches::rotating(plan),
        Name::Reserve => flat::reserve(plan),
        Name::Append => flat::append(plan),
        Name::Holds => holds::holds(plan),
        Name::Emptied => emptied::emptied(plan),
        Name::Hot => matches::hot(),
    }
}
