//! `radixkv bench`: measures the cache on this machine, compared with a lower bound of the time and
//! with a simple alternative behind a mutex.

pub(crate) mod arena;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::{
    console,
    screen::Screen,
    status::{AT_FAULT, BROKEN},
};
use arena::{
    mutexed::Mutexed,
    own::Radixkv,
    row::{Entry, Row},
    rows::{self, entries, look_up_hot, look_up_together, turn_over},
    settings::{self, Settings},
    table::Figures,
};

/// The default number of measured rounds.
const ROUNDS: usize = 31;

/// Measure the cache on this machine, compared with memcmp or malloc and with a radix tree behind a
/// mutex.
///
/// Three rows, in less than a minute: a hot prefix matched by one thread (match) and by all threads
/// (contention), and new prompts while the pool is full (turnover). All rows are measured in turn,
/// round by round, in this process; the tables show medians with quartiles, and the median of each
/// round's ratios. Answers are checked. Other load on the machine disturbs the rows with several
/// threads most.
///
/// Exit status: 0 if all went well, 1 if a match was wrong, 2 if the command line or the system is
/// at fault.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The rows to measure [default: all]
    #[arg(value_enum, value_name = "ROW")]
    rows: Vec<Name>,
    /// Maximum number of threads, at most 256 [default: the machine's parallelism, at most 16]
    #[arg(long, value_name = "N", value_parser = settings::threads)]
    threads: Option<usize>,
    /// Rounds of each row
    #[arg(long, default_value_t = ROUNDS, value_name = "N", value_parser = settings::rounds)]
    rounds: usize,
    /// Run a fifth of the rounds with a tenth of the calls: takes seconds, to see that it works
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    Match,
    Contention,
    Turnover,
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> ExitCode {
    let settings = Settings::new(arguments.rounds, arguments.threads, arguments.quick);
    let wanted = |name| arguments.rows.is_empty() || arguments.rows.contains(&name);
    let rows = [Name::Match, Name::Contention, Name::Turnover];
    let rows: Vec<Row> = rows.into_iter().filter(|&name| wanted(name)).map(|name| row(name, &settings)).collect();
    let figures = Figures::of(rows);
    let wrong = figures.wrong.clone();
    if let Err(error) = console::print(&figures.text(screen)) {
        console::say(format_args!("radixkv: standard output: cannot be written: {error}"));
        return ExitCode::from(AT_FAULT);
    }
    if wrong.is_empty() {
        return ExitCode::SUCCESS;
    }
    console::say(format_args!("radixkv: matched wrong tokens: {}", wrong.join(", ")));
    ExitCode::from(BROKEN)
}

fn row(name: Name, settings: &Settings) -> Row {
    match name {
        Name::Match => rows::hot(settings, entries!(look_up_hot, settings; Radixkv, Mutexed)),
        Name::Contention => rows::contention(settings, entries!(look_up_together, settings; Radixkv, Mutexed)),
        Name::Turnover => rows::turnover(settings, entries!(turn_over, settings; Radixkv, Mutexed)),
    }
}
