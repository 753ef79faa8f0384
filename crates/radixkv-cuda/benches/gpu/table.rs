//! The table of results.

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
}

pub struct Row {
    name: String,
    us: f64,
    amount: Amount,
    must: Must,
}

#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
    notes: Vec<String>,
    /// Speed of the memory, in bytes a microsecond.
    read: f64,
    copy: f64,
}

impl Row {
    pub fn new(name: &str, us: f64, amount: Amount) -> Self {
        Self { name: name.to_owned(), us, amount, must: Must::Nothing }
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

impl Table {
    pub fn ceilings(&mut self, read: f64, copy: f64) {
        (self.read, self.copy) = (read, copy);
    }

    pub fn row(&mut self, row: Row) {
        eprintln!("{}: {:.1} us", row.name, row.us);
        self.rows.push(row);
    }

    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub fn print(&self) {
        println!(
            "\nread-only {:.2} TB/s, copy {:.2} TB/s (both directions counted)\n",
            self.read / 1e6,
            self.copy / 1e6
        );
        println!("| case | us | rate | of the ceiling | must (H200) | |\n|---|---:|---:|---:|---:|---|");
        for row in &self.rows {
            println!("{}", self.line(row));
        }
        println!();
        self.notes.iter().for_each(|note| println!("{note}"));
    }

    fn line(&self, row: &Row) -> String {
        let (amount, unit, ceiling) = match row.amount {
            Amount::Read(bytes) => (bytes, "GB/s", Some(self.read)),
            Amount::Copied(bytes) => (bytes, "GB/s", Some(self.copy)),
            Amount::Linked(bytes) => (bytes, "GB/s", None),
            Amount::Operations(operations) => (operations, "TFLOP/s", None),
        };
        let per_us = amount / row.us;
        let rate = if unit == "GB/s" { per_us / 1e3 } else { per_us / 1e6 };
        let share = ceiling.map(|ceiling| per_us / ceiling);
        let (must, met) = match row.must {
            Must::Nothing => (String::new(), None),
            Must::Microseconds(us) => (format!("{us:.0} us"), Some(row.us <= us)),
            Must::Share(least) => (format!("{:.0} %", 100.0 * least), share.map(|share| share >= least)),
            Must::Rate(least) => (format!("{least:.0} {unit}"), Some(rate >= least)),
        };
        let share = share.map_or(String::new(), |share| format!("{:.0} %", 100.0 * share));
        let verdict = met.map_or("", |met| if met { "ok" } else { "missed" });
        format!("| {} | {:.1} | {rate:.0} {unit} | {share} | {must} | {verdict} |", row.name, row.us)
    }
}
