//! `radixkv region` in a build without the feature: it prints how to build it.

use std::{ffi::OsString, process::ExitCode};

use clap::Args;

use crate::{console, screen::Screen, status::AT_FAULT};

/// Manage a region of blocks that processes share (not in this build: needs the feature region).
#[derive(Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _ignored: Vec<OsString>,
}

pub(crate) fn run(_: &Arguments, _: &Screen) -> ExitCode {
    console::say(
        "radixkv: this build has no region: install it with `cargo install --path crates/radixkv-replay --features region`",
    );
    ExitCode::from(AT_FAULT)
}
