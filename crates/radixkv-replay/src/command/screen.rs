//! The properties of standard output: the width of a line, and whether there are colours.

use std::{
    env,
    ffi::OsStr,
    io::{self, IsTerminal},
};

/// The width if nothing determines it, as for a pipe or a file.
const USUAL: usize = 80;
/// Tables are made for at least this width.
const NARROWEST: usize = 40;

/// The width and the colours of the output.
///
/// The width is the terminal's, or else the value of `COLUMNS`, or else 80. So the output into a
/// pipe does not depend on the terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// `None`: as wide as the table.
    width: Option<usize>,
    colours: bool,
}

impl Screen {
    /// The screen of standard output; `wide` requests all columns of every table.
    pub(crate) fn of_stdout(wide: bool) -> Self {
        let stdout = io::stdout();
        let colours =
            stdout.is_terminal() && may_colour(env::var_os("NO_COLOR").as_deref(), env::var_os("TERM").as_deref());
        let width = (!wide).then(|| terminal().or_else(from_environment).unwrap_or(USUAL).max(NARROWEST));
        Self { width, colours }
    }

    /// A screen with this width and without colours.
    #[allow(dead_code, reason = "for tests and for regions")]
    pub(crate) fn plain(width: usize) -> Self {
        Self { width: Some(width), colours: false }
    }

    /// Columns of a line; `None` if it may be as long as it needs to be.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Whether text may have colours.
    pub(crate) fn colours(&self) -> bool {
        self.colours
    }
}

/// Width of the terminal, if standard output is one.
fn terminal() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
}

fn from_environment() -> Option<usize> {
    env::var("COLUMNS").ok()?.trim().parse().ok().filter(|&columns| columns > 0)
}

/// Whether the user and the terminal accept colours (`NO_COLOR`, `TERM=dumb`).
fn may_colour(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_not_shown_where_they_are_not_wanted() {
        let may =
            |no_color: Option<&str>, term: Option<&str>| may_colour(no_color.map(OsStr::new), term.map(OsStr::new));
        assert!(may(None, None) && may(Some(""), Some("xterm-256color")));
        assert!(!may(Some("1"), Some("xterm")) && !may(None, Some("dumb")));
    }
}
