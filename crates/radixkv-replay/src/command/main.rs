//! The `radixkv` command.
//!
//! Exit status: 0 if all went well, 1 if a cache broke a promise, 2 if the input, the command line or the system is at
//! fault: a file that cannot be read or written, no memory, no thread. A reader of standard output that has read enough
//! is no fault; what cannot be said on standard error is left out.

mod bench;
mod console;
mod identity;
mod output;
mod progress;
mod replay;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::OutputError;

/// The input, the command line or the system is at fault.
pub(crate) const AT_FAULT: u8 = 2;

/// A concurrent prefix cache for LLM inference, from the command line.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Arguments),
    Replay(replay::Arguments),
}

fn main() -> ExitCode {
    outlast_size_limit();
    match Arguments::try_parse() {
        Ok(Arguments { command: Command::Bench(arguments) }) => bench::run(&arguments),
        Ok(Arguments { command: Command::Replay(arguments) }) => replay::run(&arguments),
        Err(message) => show(&message),
    }
}

/// Without a handler, a write beyond the limit on the size of files ends the process where it stands, and its temporary
/// file stays; with one, the write fails like any other.
fn outlast_size_limit() {
    // Where there can be no handler, all is as it would be without this.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Default::default());
}

/// Shows what the user asked for, such as help, or what is wrong with the command line.
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
