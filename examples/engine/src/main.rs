//! The `engine` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    engine::command::main()
}
