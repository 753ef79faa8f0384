//! A row of the table: two things that are measured in turn, what their times mean, and what the
//! machine would give at best.

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
        println!("| row | ours, ms | other, ms | figure | this machine's limit |\n|---|---:|---:|---:|---:|");
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
    pub fn measure(self, ours: impl FnMut(), theirs: impl FnMut()) {
        self.measure_within(ours, theirs, |_, _| None);
    }

    /// As `measure`; and in each round what the figure is at best, from the row's clock and the
    /// seconds of `theirs`.
    pub fn measure_within(
        self,
        mut ours: impl FnMut(),
        mut theirs: impl FnMut(),
        mut limit: impl FnMut(Clock, f64) -> Option<f64>,
    ) {
        ours();
        theirs();
        let (mut rounds, mut limits) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let [ours, theirs] = [self.clock.seconds(&mut ours), self.clock.seconds(&mut theirs)];
            rounds.push([ours, theirs]);
            limits.extend(limit(self.clock, theirs));
        }
        let [ours, theirs] = [0, 1].map(|side| quartiles(rounds.iter().map(|round| round[side] * 1e3).collect())[1]);
        let figures = quartiles(rounds.iter().map(|[ours, theirs]| (self.figure)(*ours, *theirs)).collect());
        let limit = if limits.is_empty() { String::new() } else { brief(quartiles(limits)) };
        println!("| {} | {ours:.2} | {theirs:.2} | {} {} | {limit} |", self.name, brief(figures), self.unit);
    }
}

fn brief([low, middle, high]: [f64; 3]) -> String {
    format!("{middle:.2} [{low:.2} {high:.2}]")
}

fn quartiles(mut figures: Vec<f64>) -> [f64; 3] {
    figures.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| figures[(figures.len() - 1) * quarter / 4])
}
