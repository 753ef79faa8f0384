//! A progress bar on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar for `count` requests; hidden if standard error is not a terminal.
pub(crate) fn requests(count: usize, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {human_pos}/{human_len} requests, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    // A new bar draws on standard error, and hides itself if that is not a terminal.
    ProgressBar::new(count as u64).with_style(style).with_message(what.to_owned())
}
