//! Formats the measurements of several rows as one table.

use std::panic;

use super::{
    measure::Spread,
    row::{Failure, Line, Measured, Role, Row, progress},
};
use crate::{
    grid::{Cell, Column, Grid, wrapped},
    screen::Screen,
};

/// The table of several rows.
pub(crate) struct Figures {
    table: Grid,
    /// The description of each row.
    legend: Vec<String>,
    /// Contenders that matched the wrong tokens.
    pub(crate) wrong: Vec<String>,
}

impl Figures {
    /// Measures all rows, with one progress bar.
    pub(crate) fn of(rows: Vec<Row>) -> Self {
        // No messages of panics: an entry that panicked has a line in the table.
        panic::set_hook(Box::new(|_| ()));
        let bar = progress(&rows);
        let mut figures = Self::new();
        for row in rows {
            let (name, what, labels) = (row.name, row.what.clone(), row.figures.clone());
            figures.add(name, &what, &labels, &row.run(&bar));
        }
        bar.finish_and_clear();
        drop(panic::take_hook());
        figures
    }

    fn new() -> Self {
        let table = Grid::new([
            Column::words("row"),
            Column::words("figure"),
            Column::words(""),
            Column::figures("median"),
            Column::figures("quartiles").rank(4),
            Column::figures("/ limit").rank(1),
            Column::figures("/ strawman").rank(2),
            Column::words("does not").rank(3),
        ]);
        Self { table, legend: Vec::new(), wrong: Vec::new() }
    }

    /// Adds the lines of a row, figure by figure.
    fn add(&mut self, name: &str, what: &str, figures: &[String], lines: &[Line]) {
        self.legend.push(format!("{name}: {what}"));
        for (at, figure) in figures.iter().enumerate() {
            let mut heads = [name, figure.as_str()];
            for line in lines {
                match &line.outcome {
                    Ok(measured) if measured[at].value.median.is_nan() => continue,
                    Ok(measured) => self.table.row(cells(heads, line, &measured[at])),
                    // An entry that was not measured has only one line.
                    Err(_) if at > 0 => continue,
                    Err(failure) => {
                        let said = failure.to_string();
                        self.table.row([heads[0], heads[1], line.name, "-", "", "", "", &said].map(Cell::from));
                    }
                };
                heads = ["", ""];
            }
        }
        let wrong = lines.iter().filter(|line| matches!(line.outcome, Err(Failure::Wrong(_))));
        self.wrong.extend(wrong.map(|line| format!("{name}: {}", line.name)));
    }

    /// The table in the width of the screen, and below it the descriptions of its rows.
    pub(crate) fn text(&self, screen: &Screen) -> String {
        format!("{}\n\n{}", self.table.text(screen), wrapped(&self.legend.join("\n"), screen.width()))
    }
}

fn cells(heads: [&str; 2], line: &Line, measured: &Measured) -> [Cell; 8] {
    let Spread { low, median, high } = measured.value;
    let over = |ratio: Option<Spread>| ratio.map_or(String::new(), |ratio| number(ratio.median));
    [
        heads[0].to_owned(),
        heads[1].to_owned(),
        line.name.to_owned(),
        number(median),
        format!("{} - {}", number(low), number(high)),
        over(measured.over_limit),
        if line.role == Role::Strawman { String::new() } else { over(measured.over_strawman) },
        line.lacks.to_owned(),
    ]
    .map(Cell::from)
}

/// A number with two or three significant digits, however small: on a busy machine a rate can be
/// less than 0.01.
fn number(value: f64) -> String {
    match value {
        large if large >= 100.0 => format!("{large:.0}"),
        medium if medium >= 10.0 => format!("{medium:.1}"),
        tiny if 0.0 < tiny && tiny < 0.1 => format!("{tiny:.*}", (1.0 - tiny.log10().floor()) as usize),
        small => format!("{small:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.123, 1.234, 12.34, 123.4, 12_345.6].map(number), ["0.12", "1.23", "12.3", "123", "12346"]);
    }

    #[test]
    fn no_number_but_zero_is_rounded_to_zero() {
        let tiny = [0.0987, 0.01, 0.004_2, 0.000_009_87, f64::MIN_POSITIVE];
        let shown = tiny.map(|value| number(value).parse::<f64>().expect("a number"));
        assert_eq!(shown[..4], [0.099, 0.01, 0.004_2, 0.000_009_9]);
        assert!(shown[4] > 0.0 && number(0.0) == "0.00", "{shown:?}");
    }
}
