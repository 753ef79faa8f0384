//! A row of the table: two things that are measured in turn, and what their times mean.

use super::clock::Clock;

const ROUNDS: usize = 15;

/// A row.
pub struct Row {
    name: String,
    clock: Clock,
    /// From the seconds of both to a figure.
    figure: fn(f64, f64) -> f64,
    unit: &'static str,
}

impl Row {
    /// Prints what stands above the rows.
    pub fn header() {
        println!("| row | ours, ms | other, ms | figure |\n|---|---:|---:|---:|");
    }

    /// Of one thread, in the time that it computes.
    pub fn of_one(name: impl Into<String>, figure: fn(f64, f64) -> f64, unit: &'static str) -> Self {
        Self { name: name.into(), clock: Clock::Thread, figure, unit }
    }

    /// Of several threads, in the time that passes.
    pub fn of_several(name: impl Into<String>, figure: fn(f64, f64) -> f64, unit: &'static str) -> Self {
        Self { clock: Clock::Wall, ..Self::of_one(name, figure, unit) }
    }

    /// Measures both, round by round, and prints medians, with quartiles of the figure.
    pub fn measure(self, mut ours: impl FnMut(), mut theirs: impl FnMut()) {
        ours();
        theirs();
        let rounds: Vec<[f64; 2]> =
            (0..ROUNDS).map(|_| [self.clock.seconds(&mut ours), self.clock.seconds(&mut theirs)]).collect();
        let [ours, theirs] = [0, 1].map(|side| quartiles(rounds.iter().map(|round| round[side] * 1e3).collect())[1]);
        let figures = rounds.iter().map(|[ours, theirs]| (self.figure)(*ours, *theirs));
        let ([low, middle, high], Self { name, unit, .. }) = (quartiles(figures.collect()), self);
        println!("| {name} | {ours:.2} | {theirs:.2} | {middle:.2} [{low:.2} {high:.2}] {unit} |");
    }
}

fn quartiles(mut figures: Vec<f64>) -> [f64; 3] {
    figures.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| figures[(figures.len() - 1) * quarter / 4])
}
