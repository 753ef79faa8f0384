//! `radixkv completions`: prints the completion script of a shell.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::{console, output::OutputError, status::AT_FAULT};

/// Print a shell's completion script.
///
/// For bash: radixkv completions bash > ~/.local/share/bash-completion/completions/radixkv
#[derive(Args)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments, mut command: Command) -> ExitCode {
    let (name, mut script) = (command.get_name().to_owned(), Vec::new());
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    match console::print(&String::from_utf8_lossy(&script)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say(format_args!("radixkv: {}", OutputError::stdout(error)));
            ExitCode::from(AT_FAULT)
        }
    }
}
