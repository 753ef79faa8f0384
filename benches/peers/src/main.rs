//! Benchmarks radixkv and its peers under the same loads: one table, one self-contained binary.

// Shared with `radixkv bench`, so that there is one strawman and one way to measure.
#[path = "../../../crates/radixkv-replay/src/command/bench/arena/mod.rs"]
mod arena;
// `grid` uses it to escape control characters.
#[allow(dead_code)]
#[path = "../../../crates/radixkv-replay/src/command/console.rs"]
mod console;
#[cfg(test)]
mod contract;
// The table is drawn by the code of the command `radixkv`, of which this binary uses only a part.
#[allow(dead_code)]
#[path = "../../../crates/radixkv-replay/src/command/grid.rs"]
mod grid;
mod must;
mod peers;
mod rows;
#[path = "../../../crates/radixkv-replay/src/command/screen.rs"]
mod screen;
mod select;
mod writer;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand, ValueEnum};
use radixkv_replay::{Trace, workload::CLASSES};

use arena::{
    row::{Role, Row},
    settings::{self, Settings},
    table::Figures,
};
use rows::replays::Load;
use screen::Screen;
use select::{Name, grower, row};

/// Rounds of each row by default.
const ROUNDS: usize = 9;
/// The workload class that is replayed if no trace is given.
const CLASS: &str = "shared-system-zipf";

/// radixkv, its peers and a strawman under the same loads, measured in turn in one process.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Other>,
    /// The rows to measure; all of them without any
    #[arg(value_enum, value_name = "ROW")]
    rows: Vec<Name>,
    /// The trace to replay, as `radixkv replay` takes it [default: a built-in workload]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The most threads, 256 at most [default: as many as run at once, 16 at most]
    #[arg(long, value_name = "N", value_parser = settings::threads)]
    threads: Option<usize>,
    /// Only contenders whose names contain one of these words, beside the limit
    #[arg(long, value_delimiter = ',', value_name = "WORD")]
    only: Vec<String>,
    /// Rounds of each row; rows whose rounds take seconds have three at most
    #[arg(long, default_value_t = ROUNDS, value_name = "N", value_parser = settings::rounds)]
    rounds: usize,
    /// A fifth of the rounds, a tenth of the calls in each: to see that it works
    #[arg(long)]
    quick: bool,
    /// Show all columns, however wide the screen is
    #[arg(long)]
    wide: bool,
    /// Grow one contender by so many prompts and print its figures
    #[arg(long, hide = true, num_args = 2, value_names = ["NAME", "PROMPTS"])]
    grow: Option<Vec<String>>,
}

#[derive(Subcommand)]
enum Other {
    Must(must::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Other::Must(arguments)) = arguments.command {
        return must::run(arguments);
    }
    if let Some(what) = &arguments.grow {
        return grow_one(what);
    }
    let settings = Settings::new(arguments.rounds, arguments.threads, arguments.quick);
    let wanted = |name: &Name| arguments.rows.is_empty() || arguments.rows.contains(name);
    let names: Vec<Name> = Name::value_variants().iter().copied().filter(wanted).collect();
    let load = match names.contains(&Name::Replay).then(|| load(arguments.trace)).transpose() {
        Ok(load) => load,
        Err(error) => {
            eprintln!("radixkv-peers: {error}");
            return ExitCode::from(2);
        }
    };
    let only = |mut row: Row| {
        let is_wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|word| name.contains(word));
        row.entries.retain(|entry| entry.role == Role::Limit || is_wanted(entry.name));
        row
    };
    let figures = Figures::of(names.into_iter().map(|name| only(row(name, &settings, load.as_ref()))).collect());
    let wrong = figures.wrong.clone();
    println!("{}", figures.text(&Screen::of_stdout(arguments.wide)));
    for contender in &wrong {
        eprintln!("radixkv-peers: matched wrong tokens: {contender}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn grow_one(what: &[String]) -> ExitCode {
    let Some((grow, prompts)) = grower(&what[0]).zip(what[1].parse().ok().filter(|&prompts| prompts > 0)) else {
        eprintln!("radixkv-peers: no such contender, or no number of prompts");
        return ExitCode::from(2);
    };
    println!("{}", grow(prompts).map(|figure| figure.to_string()).join(" "));
    ExitCode::SUCCESS
}

fn load(trace: Option<PathBuf>) -> Result<Load, radixkv_replay::TraceError> {
    if let Some(path) = trace {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Ok(Load::new(name, &Trace::open(&path, None)?));
    }
    let class = CLASSES.iter().find(|class| class.name == CLASS).expect("it is built in");
    Ok(Load::new(format!("the workload {CLASS}"), &class.trace(0)))
}
