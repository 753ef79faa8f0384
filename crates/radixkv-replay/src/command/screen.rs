//! What standard output shows: how wide a line may be, and whether there are colours.

use std::{
    env,
    ffi::OsStr,
    io::{self, IsTerminal},
};

/// Columns of a line where nothing says how many there are: in a pipe, in a file.
const USUAL: usize = 80;
/// Tables are not squeezed into fewer columns than this.
const NARROWEST: usize = 40;

/// How much of a table is shown, and how.
///
/// A terminal says how wide it is. Elsewhere the variable `COLUMNS` says it, and without that a line has 80 columns: what is
/// written into a pipe does not depend on the terminal beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// `None`: as wide as the table.
    width: Option<usize>,
    colours: bool,
}

impl Screen {
    /// Standard output; `wide` asks for all columns of every table.
    pub(crate) fn of_stdout(wide: bool) -> Self {
        let stdout = io::stdout();
        let colours =
            stdout.is_terminal() && may_colour(env::var_os("NO_COLOR").as_deref(), env::var_os("TERM").as_deref());
        let width = (!wide).then(|| terminal().or_else(from_environment).unwrap_or(USUAL).max(NARROWEST));
        Self { width, colours }
    }

    /// A line of this many columns without colours.
    #[allow(dead_code, reason = "for tests and for regions")]
    pub(crate) fn plain(width: usize) -> Self {
        Self { width: Some(width), colours: false }
    }

    /// Columns of a line; `None` where it is as long as it needs to be.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Whether text may have colours.
    pub(crate) fn colours(&self) -> bool {
        self.colours
    }
}

/// Columns of the terminal that standard output is.
fn terminal() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
}

fn from_environment() -> Option<usize> {
    env::var("COLUMNS").ok()?.trim().parse().ok().filter(|&columns| columns > 0)
}

/// Whether the user and the terminal want colours (`NO_COLOR`, and terminals that show text alone).
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
