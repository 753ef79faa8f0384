//! A measured figure, and the bounds that it is compared with.

use std::fmt;

use crate::arena::measure::Spread;

/// The bounds of a figure: the required one, then the goal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    AtMost(f64, f64),
    AtLeast(f64, f64),
    /// No bound: the figure is only shown.
    Nothing,
}

/// A measured figure and its bounds.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) asked: Asked,
    pub(crate) measured: Spread,
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, asked: Asked, measured: Spread) -> Self {
        Self { what: what.into(), asked, measured }
    }

    /// A figure that is counted rather than measured.
    pub(crate) fn counted(what: impl Into<String>, asked: Asked, count: f64) -> Self {
        Self::new(what, asked, Spread { low: count, median: count, high: count })
    }

    /// The first line of the table.
    pub(crate) fn header(quick: bool) -> String {
        let sizes = if quick { "what (quick: small sizes, few rounds)" } else { "what" };
        format!("{sizes:<WIDTH$} {:>8} {:>8} {:>8}  {:<17}", "must", "goal", "median", "quartiles")
    }

    fn verdict(&self) -> &'static str {
        let median = self.measured.median;
        let within = |must: bool, goal: bool| match (must, goal) {
            (_, true) => "goal met",
            (true, false) => "met",
            (false, false) => "NOT MET",
        };
        match self.asked {
            Asked::AtMost(must, goal) => within(median <= must, median <= goal),
            Asked::AtLeast(must, goal) => within(median >= must, median >= goal),
            Asked::Nothing => "",
        }
    }
}

/// Width of the first column, in characters.
const WIDTH: usize = 94;

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [must, goal] = match self.asked {
            Asked::AtMost(must, goal) => [must, goal].map(|bound| format!("<= {}", number(bound))),
            Asked::AtLeast(must, goal) => [must, goal].map(|bound| format!(">= {}", number(bound))),
            Asked::Nothing => [String::new(), String::new()],
        };
        let Spread { low, median, high } = self.measured;
        let quartiles = if low < high { format!("{} - {}", number(low), number(high)) } else { String::new() };
        let line = format!(
            "{:<WIDTH$} {must:>8} {goal:>8} {:>8}  {quartiles:<17} {}",
            self.what,
            number(median),
            self.verdict()
        );
        f.write_str(line.trim_end())
    }
}

/// Formats a value with about three significant digits.
fn number(value: f64) -> String {
    let digits = match value {
        large if large >= 100.0 => 0,
        medium if medium >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_judged_by_its_median() {
        let verdict = |asked, median| Figure::counted("", asked, median).verdict();
        let at_most = Asked::AtMost(2.0, 1.0);
        assert_eq!([1.0, 2.0, 2.1].map(|median| verdict(at_most, median)), ["goal met", "met", "NOT MET"]);
        let at_least = Asked::AtLeast(1.0, 2.0);
        assert_eq!([2.0, 1.5, 0.9].map(|median| verdict(at_least, median)), ["goal met", "met", "NOT MET"]);
        assert_eq!(verdict(at_most, f64::NAN), "NOT MET");
        assert_eq!(verdict(Asked::Nothing, 5.0), "");
    }
}
