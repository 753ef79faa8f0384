//! Tables that fit the screen.
//!
//! A table that is wider than the screen first wraps its columns of words. If that does not
//! suffice, it leaves columns out, those with the highest rank first, and names them under the
//! table. A cell with figures is never broken.
//!
//! ```text
//! let mut grid = Grid::new([Column::words("class"), Column::figures("hit rate"), Column::figures("evicted").rank(1)]);
//! grid.row(["agents".into(), percent(rate).into(), Cell::bad("many")]);
//! console::print(&grid.text(&Screen::of_stdout(wide)))?;
//! ```

use comfy_table::{
    Attribute, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width, presets::UTF8_FULL_CONDENSED,
};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

use crate::{console::printable, screen::Screen};

/// Width that a cell takes in addition to its text: a space on either side and a border.
const FRAME: usize = 3;
/// A column of words is wrapped into at most about this many lines before columns are left out.
const MOST_LINES: usize = 2;
/// A word that is wider than this, such as the path of a file, may be broken.
const LONGEST_WORD: usize = 24;
/// Words are broken into pieces that are at least this wide.
const SHORTEST: usize = 8;

/// A table, column by column and row by row.
pub(crate) struct Grid {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    titled: bool,
}

/// One column: its name, its alignment, and its rank on a narrow screen.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    name: String,
    kind: Kind,
    rank: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Left-aligned; wrapped if the screen is narrow.
    Words,
    /// Right-aligned; never broken.
    Figures,
}

/// The text of one cell. Control characters in it are escaped: it may come from an untrusted
/// source.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

/// The meaning of a cell, shown by its colour if the screen has colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
    Best,
}

impl Column {
    /// A column of words.
    pub(crate) fn words(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: Kind::Words, rank: 0 }
    }

    /// A column of figures.
    pub(crate) fn figures(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: Kind::Figures, rank: 0 }
    }

    /// Allows the column to be left out if the screen is narrow: the highest rank first, of equal
    /// ranks the last column. Default: 0, the column is always shown.
    pub(crate) fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

impl Cell {
    /// Green.
    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self::of(text, Tone::Good)
    }

    /// Red.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self::of(text, Tone::Bad)
    }

    /// Bold: the best of its kind.
    pub(crate) fn best(text: impl Into<String>) -> Self {
        Self::of(text, Tone::Best)
    }

    fn of(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: printable(&text.into()), tone }
    }

    fn longest_line(&self) -> usize {
        width(self.text.lines())
    }

    fn longest_word(&self) -> usize {
        width(self.text.split_whitespace())
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::of(text, Tone::Plain)
    }
}

impl Grid {
    /// A table with a header row of column names.
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new(), titled: true }
    }

    /// A table with two columns without names: the names of figures, and the figures.
    pub(crate) fn of_pairs() -> Self {
        let columns = vec![Column::words(""), Column { kind: Kind::Words, ..Column::figures("") }];
        Self { columns, rows: Vec::new(), titled: false }
    }

    /// Adds a row, with a cell for each column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Renders the table for the screen, and lists the columns that are left out.
    pub(crate) fn text(&self, screen: &Screen) -> String {
        let shown = self.fitting(screen.width());
        let table = self.table(&shown, screen);
        let left_out: Vec<_> = (0..self.columns.len()).filter(|at| !shown.contains(at)).collect();
        if left_out.is_empty() {
            return table.to_string();
        }
        let names: Vec<_> = left_out.iter().map(|&at| self.columns[at].name.replace('\n', " ")).collect();
        let note = format!("--wide shows more columns: {}", names.join(", "));
        format!("{table}\n{}", wrapped(&note, screen.width()))
    }

    /// The indices of the columns that fit.
    fn fitting(&self, width: Option<usize>) -> Vec<usize> {
        let mut shown: Vec<_> = (0..self.columns.len()).collect();
        let needed = |shown: &[usize]| 1 + shown.iter().map(|&at| self.narrowest(at) + FRAME).sum::<usize>();
        while width.is_some_and(|width| needed(&shown) > width) {
            let last = shown.iter().enumerate().max_by_key(|&(_, &at)| self.columns[at].rank);
            match last {
                Some((place, &at)) if self.columns[at].rank > 0 => drop(shown.remove(place)),
                _ => break,
            }
        }
        shown
    }

    /// The minimum text width of a column.
    fn narrowest(&self, at: usize) -> usize {
        let cells = || self.rows.iter().map(|row| &row[at]);
        let name = width(self.columns[at].name.lines());
        let longest = cells().map(Cell::longest_line).max().unwrap_or(0).max(name);
        match self.columns[at].kind {
            Kind::Figures => longest,
            Kind::Words => {
                let word = cells().map(|cell| cell.longest_word().min(LONGEST_WORD)).max().unwrap_or(0);
                longest.min(word.max(longest.div_ceil(MOST_LINES).min(LONGEST_WORD)).max(name))
            }
        }
    }

    /// The minimum text width of each column that is shown. If the widths do not fit the screen,
    /// the widest columns of words are narrowed, which breaks words.
    fn least_widths(&self, shown: &[usize], width: Option<usize>) -> Vec<usize> {
        let mut least: Vec<usize> = shown.iter().map(|&at| self.narrowest(at)).collect();
        let fits =
            |least: &[usize]| width.is_none_or(|width| least.iter().map(|text| text + FRAME).sum::<usize>() < width);
        while !fits(&least) {
            let is_words = |&place: &usize| self.columns[shown[place]].kind == Kind::Words && least[place] > SHORTEST;
            let Some(widest) = (0..least.len()).filter(is_words).max_by_key(|&place| least[place]) else { break };
            least[widest] -= 1;
        }
        least
    }

    fn table(&self, shown: &[usize], screen: &Screen) -> Table {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
        if screen.colours() {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        if let Some(width) = screen.width() {
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(u16::try_from(width).unwrap_or(u16::MAX));
        }
        if self.titled {
            let name = |&at: &usize| comfy_table::Cell::new(&self.columns[at].name).add_attribute(Attribute::Bold);
            table.set_header(shown.iter().map(name));
        }
        for row in &self.rows {
            table.add_row(shown.iter().map(|&at| row[at].styled()));
        }
        let least = self.least_widths(shown, screen.width());
        for ((column, &at), least) in table.column_iter_mut().zip(shown).zip(least) {
            let is_last_of_pairs = !self.titled && at > 0;
            let right = self.columns[at].kind == Kind::Figures || is_last_of_pairs;
            column.set_cell_alignment(if right { CellAlignment::Right } else { CellAlignment::Left });
            if self.columns[at].kind == Kind::Figures {
                column.set_constraint(ColumnConstraint::ContentWidth);
            } else {
                let least = u16::try_from(least + FRAME - 1).unwrap_or(u16::MAX);
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
            }
        }
        table
    }
}

impl Cell {
    fn styled(&self) -> comfy_table::Cell {
        let cell = comfy_table::Cell::new(&self.text);
        match self.tone {
            Tone::Plain => cell,
            Tone::Good => cell.fg(Color::Green),
            Tone::Bad => cell.fg(Color::Red),
            Tone::Best => cell.add_attribute(Attribute::Bold),
        }
    }
}

/// Wraps a text to lines of at most `width` columns, between words; only a word that is longer than
/// a line is broken.
pub(crate) fn wrapped(text: &str, width: Option<usize>) -> String {
    let width = width.unwrap_or(usize::MAX);
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let mut current = String::new();
        for word in line.split(' ') {
            let longer = current.width() + 1 + word.width();
            if !current.is_empty() && longer > width {
                lines.push(std::mem::take(&mut current));
            } else if !current.is_empty() {
                current.push(' ');
            }
            for character in word.chars() {
                if current.width() + character.width().unwrap_or(0) > width {
                    lines.push(std::mem::take(&mut current));
                }
                current.push(character);
            }
        }
        lines.push(current);
    }
    lines.join("\n")
}

/// Width of the widest piece in columns of a terminal, where a character may take two columns or
/// none.
fn width<'a>(pieces: impl Iterator<Item = &'a str>) -> usize {
    pieces.map(UnicodeWidthStr::width).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new([
            Column::words("class"),
            Column::words("strains").rank(2),
            Column::figures("tokens").rank(1),
            Column::figures("rate"),
        ]);
        grid.row([
            "agents".into(),
            "three roots, fan-out in the thousands".into(),
            "24,000,000".into(),
            "59.30 %".into(),
        ]);
        grid
    }

    fn widest(text: &str) -> usize {
        width(text.lines())
    }

    #[test]
    fn a_table_is_as_wide_as_it_needs_to_be_and_no_wider_than_the_screen() {
        let natural = widest(&grid().text(&Screen::plain(200)));
        assert_eq!(natural, 73);
        for columns in 40..natural + 10 {
            let text = grid().text(&Screen::plain(columns));
            assert!(widest(&text) <= columns, "{columns}:\n{text}");
            assert!(text.contains("59.30 %"), "figures are never broken:\n{text}");
        }
    }

    #[test]
    fn words_are_wrapped_before_a_column_is_left_out() {
        let narrow = grid().text(&Screen::plain(60));
        assert!(!narrow.contains("three roots, fan-out in the thousands") && narrow.contains("thousands"), "{narrow}");
        assert!(!narrow.contains("--wide"), "{narrow}");
        let narrower = grid().text(&Screen::plain(50));
        assert!(narrower.ends_with("--wide shows more columns: strains"), "{narrower}");
        assert!(narrower.contains("24,000,000"), "{narrower}");
    }

    #[test]
    fn pairs_are_wrapped_at_words() {
        let mut pairs = Grid::of_pairs();
        pairs.row(["leases".into(), "held for output_length steps, 1,234 dropped early".into()]);
        let text = pairs.text(&Screen::plain(40));
        assert_eq!(widest(&text), 40, "{text}");
        assert!(text.contains("output_length"), "{text}");
    }

    #[test]
    fn control_characters_are_written_out() {
        let mut pairs = Grid::of_pairs();
        pairs.row([Cell::bad("\u{1b}[2J"), "a\nb\u{9b}\u{202e}".into()]);
        let text = pairs.text(&Screen::plain(80));
        assert!(text.contains("\\u{1b}[2J") && text.contains("a\\nb\\u{9b}\\u{202e}"), "{text}");
    }

    #[test]
    fn lines_are_cut_at_words() {
        assert_eq!(wrapped("one two three", Some(8)), "one two\nthree");
        assert_eq!(wrapped("one two\nthree", None), "one two\nthree");
        assert_eq!(wrapped("a toolongforaline", Some(6)), "a\ntoolon\ngforal\nine");
        // Each character is two columns wide.
        assert_eq!(wrapped("日本 日本語", Some(7)), "日本\n日本語");
    }
}
