//! `radixkv top`: how a running replay does, in the terminal.
//!
//! What is shown is a [`State`]. It is read from the file of `radixkv replay --live` ([`read`]); another source of states
//! can stand beside it.

mod plain;
mod view;

use std::{
    env, io,
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use clap::Args;
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};

use crate::{console, input::Input, live::State, output::OutputError, screen::Screen, status::AT_FAULT};

/// Bytes of a state at most.
const MAX_BYTES: u64 = 16 << 20;
/// How long a key is waited for before the file is read again.
const PERIOD: Duration = Duration::from_millis(200);

/// Show how a running replay does: occupancy, hit rate, hottest prefixes, evictions.
///
/// Start `radixkv replay TRACE --live FILE` first, and this beside it. q, Esc and Ctrl-C end it. Where standard output is no
/// terminal, or one that shows text alone (TERM=dumb), the present state is printed as text.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The file that `radixkv replay --live FILE` keeps up to date
    #[arg(long, value_name = "FILE", required = true)]
    live: PathBuf,
}

/// Why nothing is shown.
#[derive(Debug, thiserror::Error)]
enum TopError {
    /// Start the replay first.
    #[error("{}: cannot be read: {source}; start `radixkv replay TRACE --live {}` first", path.display(), path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// Name the file of a replay.
    #[error("{}: not a file of `radixkv replay --live`: {source}", path.display())]
    Malformed { path: PathBuf, source: serde_json::Error },
    /// The terminal refuses.
    #[error("the terminal: {0}")]
    Terminal(#[source] io::Error),
    #[error(transparent)]
    Output(OutputError),
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> ExitCode {
    let path = &arguments.live;
    let shown = if io::stdout().is_terminal() && env::var_os("TERM").is_none_or(|term| term != "dumb") {
        watch(path)
    } else {
        read(path).and_then(|state| {
            console::print(&plain::text(&state, screen)).map_err(|error| TopError::Output(OutputError::stdout(error)))
        })
    };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console::say(format_args!("radixkv: {error}"));
            ExitCode::from(AT_FAULT)
        }
    }
}

/// Reads a state from a file.
fn read(path: &Path) -> Result<State, TopError> {
    let text = Input::File(path.into()).bytes(MAX_BYTES);
    let text = text.map_err(|source| TopError::Unreadable { path: path.into(), source })?;
    serde_json::from_slice(&text).map_err(|source| TopError::Malformed { path: path.into(), source })
}

/// Shows states until a key or a signal ends it; the terminal is then as it was.
fn watch(path: &Path) -> Result<(), TopError> {
    let mut state = read(path)?;
    let stop = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(TopError::Terminal)?;
    }
    let mut terminal = ratatui::try_init().map_err(TopError::Terminal)?;
    let watched = show_until(&mut terminal, path, &mut state, &stop);
    ratatui::restore();
    watched.map_err(TopError::Terminal)
}

fn show_until(terminal: &mut DefaultTerminal, path: &Path, state: &mut State, stop: &AtomicBool) -> io::Result<()> {
    // Relaxed: a wish; nothing else depends on it.
    while !stop.load(Relaxed) {
        terminal.draw(|frame| view::draw(frame, state))?;
        if event::poll(PERIOD)? && matches!(event::read()?, Event::Key(key) if ends(key)) {
            return Ok(());
        }
        // A file that is gone or half written leaves the last state on the screen.
        if let Ok(next) = read(path) {
            *state = next;
        }
    }
    Ok(())
}

fn ends(key: KeyEvent) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release && (is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_an_interrupt_end_it() {
        let key = |code, modifiers| ends(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Enter, KeyModifiers::NONE));
    }
}
