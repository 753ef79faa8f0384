//! The `radixkv` command.
//!
//! Exit status: 0 on success, 1 if the cache broke a promise, 2 if the command line, the trace or the system is at fault:
//! a file that cannot be read or written, no memory, no thread. It is no fault if the reader of standard output closes
//! it early; a message that standard error does not take is dropped.

mod arguments;
mod bench;
mod console;
mod file_id;
mod output;
mod progress;
mod replay;
mod report;
mod status;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::OutputError;
use status::AT_FAULT;

/// Replays request traces through the concurrent prefix cache radixkv.
#[derive(Parser)]
#[command(name = "radixkv", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Arguments),
    Replay(arguments::Arguments),
}

fn main() -> ExitCode {
    outlast_size_limit();
    match Arguments::try_parse() {
        Ok(Arguments { command: Command::Bench(arguments) }) => bench::run(&arguments),
        Ok(Arguments { command: Command::Replay(arguments) }) => replay::run(&arguments),
        Err(message) => show(&message),
    }
}

/// Lets a write beyond the limit on the size of files fail. Without a handler the signal would end the process, and leave
/// its temporary file.
fn outlast_size_limit() {
    // Without a handler nothing else changes, so a failure here is ignored.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Default::default());
}

/// Shows the help or the version that was asked for, or what is wrong with the command line.
fn show(message: &clap::Error) -> ExitCode {
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
