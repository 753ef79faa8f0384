//! The `radixkv` command.
//!
//! Exit status: 0 on success, 1 if a bug of the cache was found, 2 if the command line, the trace
//! or the system is at fault: a file that cannot be read or written, no memory, no thread. It is
//! not an error if the reader of standard output closes it early. A message that cannot be written
//! to standard error is dropped.

mod arguments;
mod bench;
mod bytes;
mod completions;
mod console;
mod convert;
#[cfg(feature = "follow")]
mod events;
mod explain;
mod failure;
mod figures;
mod file_id;
#[cfg(feature = "follow")]
mod follow;
#[cfg(not(feature = "follow"))]
#[path = "follow/absent.rs"]
mod follow;
mod grid;
mod input;
mod inspect;
mod live;
mod metrics;
mod output;
mod page;
mod progress;
#[cfg(feature = "region")]
mod region;
#[cfg(not(feature = "region"))]
#[path = "region/absent.rs"]
mod region;
mod replay;
mod report;
mod rows;
mod screen;
mod seconds;
mod serving;
mod size;
mod status;
mod sweep;
mod table;
mod tiers;
mod tokenizer;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use console::is_obeyed;
use output::OutputError;
use screen::Screen;
use status::AT_FAULT;

/// Maximum width of the help: longer lines are hard to read.
const HELP_WIDTH: usize = 100;

/// Replays request traces through the prefix cache radixkv.
#[derive(Parser)]
#[command(name = "radixkv", version, arg_required_else_help = true)]
struct Arguments {
    /// Show all columns of every table, however wide the screen is
    #[arg(long, global = true, display_order = 100)]
    wide: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Arguments),
    Completions(completions::Arguments),
    Convert(convert::Arguments),
    Explain(explain::Arguments),
    Follow(follow::Arguments),
    Inspect(inspect::Arguments),
    Region(region::Arguments),
    Replay(Box<arguments::Arguments>),
    Size(size::Arguments),
    Sweep(sweep::Arguments),
    Top(top::Arguments),
}

fn main() -> ExitCode {
    outlast_size_limit();
    match parse() {
        Ok(Arguments { wide, command }) => run(command, &Screen::of_stdout(wide)),
        Err(message) => show(&message),
    }
}

/// Parses the command line; the help is as wide as the screen, up to [`HELP_WIDTH`].
fn parse() -> Result<Arguments, clap::Error> {
    let width = Screen::of_stdout(false).width().unwrap_or(HELP_WIDTH);
    let mut command = Arguments::command().term_width(width.min(HELP_WIDTH));
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

fn run(command: Command, screen: &Screen) -> ExitCode {
    match command {
        Command::Bench(arguments) => bench::run(&arguments, screen),
        Command::Completions(arguments) => completions::run(&arguments, Arguments::command()),
        Command::Convert(arguments) => convert::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments, screen),
        Command::Follow(arguments) => follow::run(&arguments, screen),
        Command::Inspect(arguments) => inspect::run(&arguments, screen),
        Command::Region(arguments) => region::run(&arguments, screen),
        Command::Replay(arguments) => replay::run(&arguments, screen),
        Command::Size(arguments) => size::run(&arguments, screen),
        Command::Sweep(arguments) => sweep::run(&arguments, screen),
        Command::Top(arguments) => top::run(&arguments, screen),
    }
}

/// Makes a write beyond the file size limit fail with an error. Without a handler the signal would
/// end the process, which would leave its temporary file behind.
fn outlast_size_limit() {
    // An error of the registration is ignored: it changes nothing else.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Default::default());
}

/// Shows the requested help or version, or the error in the command line.
fn show(message: &clap::Error) -> ExitCode {
    // A file name that a shell's pattern matched may contain any characters, and the message
    // repeats it.
    if message.use_stderr() && std::env::args_os().any(|text| text.to_string_lossy().contains(is_obeyed)) {
        console::say(message.render().to_string().trim_end());
        return ExitCode::from(AT_FAULT);
    }
    let shown = message.print();
    if message.use_stderr() {
        return ExitCode::from(AT_FAULT);
    }
    match console::unless_closed(shown.and_then(|()| console::flush())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say(format_args!("radixkv: {}", OutputError::stdout(error)));
            ExitCode::from(AT_FAULT)
        }
    }
}
