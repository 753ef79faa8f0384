//! The table of results, each line printed as soon as it is known.

use std::io::Write;

use super::timer::Measured;

/// How much a case moves or computes.
#[derive(Clone, Copy)]
pub enum Amount {
    /// Bytes that have to be read.
    Read(f64),
    /// Bytes read and bytes written.
    Copied(f64),
    /// Bytes over the link to the host.
    Linked(f64),
    /// Floating-point operations.
    Operations(f64),
}

/// The target of a case on an H200.
enum Must {
    Nothing,
    Microseconds(f64),
    /// A share of the memory's speed, as measured here.
    Share(f64),
    /// GB/s or TFLOP/s.
    Rate(f64),
    /// At most so many times as long as another case took, in microseconds.
    Times(f64, f64),
}

pub struct Row {
    name: String,
    measured: Measured,
    amount: Amount,
    must: Must,
}

pub struct Table {
    /// Speed of the memory, in bytes a microsecond.
    read: f64,
    copy: f64,
    /// Without verdicts: sizes were divided.
    is_trial: bool,
    pub failed: usize,
}

impl Row {
    pub fn new(name: &str, measured: Measured, amount: Amount) -> Self {
        Self { name: name.to_owned(), measured, amount, must: Must::Nothing }
    }

    pub fn must(self, us: Option<f64>) -> Self {
        Self { must: us.map_or(Must::Nothing, Must::Microseconds), ..self }
    }

    pub fn must_share(self, share: f64) -> Self {
        Self { must: Must::Share(share), ..self }
    }

    pub fn must_rate(self, rate: f64) -> Self {
        Self { must: Must::Rate(rate), ..self }
    }
}

impl Row {
    pub fn must_times(self, most: f64, of: Measured) -> Self {
        Self { must: Must::Times(most, of.us), ..self }
    }
}

impl Table {
    pub fn new(is_trial: bool) -> Self {
        say(
            "\n| case | us | rate | of the ceiling | must (H200) | | SM, memory MHz |\n|---|---:|---:|---:|---:|---|---|",
        );
        Self { read: f64::NAN, copy: f64::NAN, is_trial, failed: 0 }
    }

    pub fn ceilings(&mut self, read: f64, copy: f64) {
        (self.read, self.copy) = (read, copy);
    }

    pub fn row(&mut self, row: Row) {
        say(&self.line(&row));
    }

    /// A case that was not measured.
    pub fn failure(&mut self, name: &str, reason: &str) {
        self.failed += 1;
        say(&format!("| {name} | failed: {} | | | | | |", reason.replace(['|', '\n'], " ")));
    }

    pub fn note(&mut self, note: &str) {
        say(&format!("| {note} | | | | | | |"));
    }

    fn line(&self, row: &Row) -> String {
        let (amount, unit, ceiling) = match row.amount {
            Amount::Read(bytes) => (bytes, "GB/s", Some(self.read)),
            Amount::Copied(bytes) => (bytes, "GB/s", Some(self.copy)),
            Amount::Linked(bytes) => (bytes, "GB/s", None),
            Amount::Operations(operations) => (operations, "TFLOP/s", None),
        };
        let us = row.measured.us;
        let per_us = amount / us;
        let rate = if unit == "GB/s" { per_us / 1e3 } else { per_us / 1e6 };
        let share = ceiling.map(|ceiling| per_us / ceiling).filter(|share| share.is_finite());
        let (must, met) = match row.must {
            Must::Nothing => (String::new(), None),
            Must::Microseconds(most) => (format!("{most:.0} us"), Some(us <= most)),
            Must::Share(least) => (format!("{:.0} %", 100.0 * least), share.map(|share| share >= least)),
            Must::Rate(least) => (format!("{least:.0} {unit}"), Some(rate >= least)),
            Must::Times(most, of) => (format!("{most:.2} times {of:.1} us: {:.2}", us / of), Some(us <= most * of)),
        };
        let share = share.map_or(String::new(), |share| format!("{:.0} %", 100.0 * share));
        let verdict = match met {
            None => "",
            Some(_) if self.is_trial => "trial",
            Some(true) => "ok",
            Some(false) => "missed",
        };
        let clocks = row.measured.clocks;
        let clocks = clocks.map_or("-".to_owned(), |clocks| format!("{}, {}", clocks.multiprocessors, clocks.memory));
        format!("| {} | {us:.1} | {rate:.0} {unit} | {share} | {must} | {verdict} | {clocks} |", row.name)
    }
}

/// Prints a line at once: a time limit or a fault loses nothing before it.
fn say(line: &str) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}
