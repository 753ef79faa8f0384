//! The `radixkv` command.
//!
//! Exit status: 0 if all went well, 1 if a cache broke a promise, 2 if the input or the command line is at fault.

mod progress;
mod replay;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A concurrent prefix cache for LLM inference, from the command line.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Replay(replay::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Replay(arguments) => replay::run(&arguments),
    }
}
