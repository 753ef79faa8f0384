//! Measures one load: all contenders take turns in each round.

use std::{
    any::Any,
    fmt,
    panic::{self, AssertUnwindSafe},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::{
    contender::{Contender, WrongAnswer},
    measure::{Spread, time},
    mutexed::Mutexed,
    settings::Settings,
};

/// Target duration of a round of [`repeated`], in nanoseconds.
const ROUND: f64 = 3e6;

/// After its rounds have taken this long, an entry is measured no more.
const ENOUGH: Duration = Duration::from_secs(15);

/// Runs one round: returns a value for each figure of the row, `NaN` if there is none.
pub(crate) type Round = Box<dyn FnMut() -> Vec<f64>>;
/// Prepares a measurement.
pub(crate) type Start = Box<dyn FnOnce() -> Round>;

/// One load, and the entries that are measured with it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// A description of the load.
    pub(crate) what: String,
    /// The name of each value of a round, with its unit.
    pub(crate) figures: Vec<String>,
    pub(crate) entries: Vec<Entry>,
    /// Whether all contenders hold their caches at the same time; otherwise they are measured one
    /// after the other, each beside the limit.
    pub(crate) at_once: bool,
    pub(crate) rounds: usize,
}

/// A contender or a limit that is measured.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// What the entry does not do.
    pub(crate) lacks: &'static str,
    pub(crate) role: Role,
    /// Prepares the measurement, or says why the entry is not measured here.
    pub(crate) start: Result<Start, &'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Limit,
    Strawman,
    Other,
}

impl Entry {
    pub(crate) fn new<C: Contender>(start: impl FnOnce() -> Round + 'static) -> Self {
        let role = if C::NAME == Mutexed::NAME { Role::Strawman } else { Role::Other };
        Self { name: C::NAME, lacks: C::LACKS, role, start: Ok(Box::new(start)) }
    }

    /// A lower bound of the time: no contender that does the work can be faster.
    pub(crate) fn limit(name: &'static str, start: impl FnOnce() -> Round + 'static) -> Self {
        Self { name, lacks: "", role: Role::Limit, start: Ok(Box::new(start)) }
    }
}

/// The result of an entry.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) lacks: &'static str,
    pub(crate) role: Role,
    /// A value for each figure of the row.
    pub(crate) outcome: Result<Vec<Measured>, Failure>,
}

/// A figure of one entry, also as a ratio to the limit and to the strawman.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) value: Spread,
    pub(crate) over_limit: Option<Spread>,
    pub(crate) over_strawman: Option<Spread>,
}

/// Why an entry has no figures.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// The entry cannot do this load.
    Absent(&'static str),
    Panicked(String),
    Wrong(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(why) => f.write_str(why),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Wrong(message) => f.write_str(message),
        }
    }
}

impl From<Box<dyn Any + Send>> for Failure {
    fn from(panic: Box<dyn Any + Send>) -> Self {
        if let Some(wrong) = panic.downcast_ref::<WrongAnswer>() {
            return Self::Wrong(wrong.to_string());
        }
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Self::Panicked(text.or_else(|| panic.downcast_ref().cloned()).unwrap_or_else(|| "no message".to_owned()))
    }
}

/// A round of as many calls of `work` as take about 3 ms; its value is the nanoseconds per call.
pub(crate) fn repeated(settings: &Settings, mut work: impl FnMut() + 'static) -> Round {
    let once = time(64, &mut work);
    let calls = settings.calls((ROUND / once) as usize).clamp(16, 100_000);
    Box::new(move || vec![time(calls, &mut work)])
}

/// A progress bar for all rounds of all rows; hidden if standard error is not a terminal.
pub(crate) fn progress(rows: &[Row]) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:44} [{bar:30}] {human_pos}/{human_len} rounds, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(rows.iter().map(Row::steps).sum()).with_style(style)
}

/// The values of every round of an entry.
type Rounds = Result<Vec<Vec<f64>>, Failure>;

impl Row {
    fn steps(&self) -> u64 {
        let measured = self.entries.iter().filter(|entry| entry.start.is_ok()).count();
        (measured * (self.rounds + 1)) as u64
    }

    /// Measures all entries. The first round of each does not count, unless it took so long that it
    /// is the only one.
    pub(crate) fn run(self, bar: &ProgressBar) -> Vec<Line> {
        let Self { name, entries, at_once, rounds, figures, .. } = self;
        let (limits, others): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.role == Role::Limit);
        let mut turns: Vec<Turn> = limits.into_iter().chain(others).map(|entry| Turn::new(name, entry)).collect();
        // If contenders hold their caches one at a time, the limit, which has no cache, is measured
        // again beside each of them.
        let limits = turns.iter().filter(|turn| turn.role == Role::Limit).count();
        let alone: Vec<usize> = (limits..turns.len()).collect();
        let groups: Vec<Vec<usize>> = match at_once {
            true => vec![(0..turns.len()).collect()],
            false => alone.into_iter().map(|one| (0..limits).chain([one]).collect()).collect(),
        };
        let mut beside = vec![Vec::new(); turns.len()];
        for group in groups {
            let from = turns[0].measured.len();
            group.iter().for_each(|&at| turns[at].begin(bar));
            for _ in 0..rounds {
                group.iter().for_each(|&at| turns[at].round(bar));
            }
            for &at in &group {
                if limits > 0 {
                    beside[at] = turns[0].measured[from..].to_vec();
                }
                if at >= limits {
                    turns[at].running = None;
                }
            }
        }
        lines(turns, &beside, figures.len())
    }
}

/// An entry that is being measured.
struct Turn {
    row: &'static str,
    name: &'static str,
    lacks: &'static str,
    role: Role,
    start: Option<Start>,
    running: Option<Round>,
    measured: Vec<Vec<f64>>,
    /// The total time of the rounds.
    taken: Duration,
    failure: Option<Failure>,
}

impl Turn {
    fn new(row: &'static str, entry: Entry) -> Self {
        let Entry { name, lacks, role, start } = entry;
        let (start, failure) = match start {
            Ok(start) => (Some(start), None),
            Err(why) => (None, Some(Failure::Absent(why))),
        };
        Self { row, name, lacks, role, start, running: None, measured: Vec::new(), taken: Duration::ZERO, failure }
    }

    /// Prepares the entry unless it is prepared, and runs the round that does not count.
    fn begin(&mut self, bar: &ProgressBar) {
        self.taken = Duration::ZERO;
        if let Some(start) = self.start.take() {
            bar.set_message(format!("{}: {}", self.row, self.name));
            self.guarded(bar, |turn| {
                let mut round = start();
                let begun = Instant::now();
                let values = round();
                turn.taken = begun.elapsed();
                // It took too long for a second round.
                if turn.taken > ENOUGH {
                    turn.measured.push(values);
                }
                turn.running = Some(round);
            });
        }
    }

    fn round(&mut self, bar: &ProgressBar) {
        if self.taken > ENOUGH {
            return bar.inc(1);
        }
        if let Some(mut round) = self.running.take() {
            bar.set_message(format!("{}: {}", self.row, self.name));
            self.guarded(bar, |turn| {
                let begun = Instant::now();
                turn.measured.push(round());
                turn.taken += begun.elapsed();
                turn.running = Some(round);
            });
        }
    }

    fn guarded(&mut self, bar: &ProgressBar, work: impl FnOnce(&mut Self)) {
        // An entry that panicked is not used again.
        if let Err(panic) = panic::catch_unwind(AssertUnwindSafe(|| work(self))) {
            self.failure = Some(panic.into());
        }
        bar.inc(1);
    }

    fn rounds(&mut self) -> Rounds {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(std::mem::take(&mut self.measured)),
        }
    }
}

fn lines(turns: Vec<Turn>, beside: &[Vec<Vec<f64>>], figures: usize) -> Vec<Line> {
    let strawman = turns.iter().position(|turn| turn.role == Role::Strawman && turn.failure.is_none());
    let strawman = strawman.map(|at| turns[at].measured.clone());
    let line = |(mut turn, limit): (Turn, &Vec<Vec<f64>>)| Line {
        name: turn.name,
        lacks: turn.lacks,
        role: turn.role,
        outcome: turn.rounds().map(|own| {
            let figure = |at| Measured {
                value: Spread::of(own.iter().map(|round| round[at]).collect()),
                over_limit: (turn.role != Role::Limit).then(|| ratio(&own, limit, at)).flatten(),
                over_strawman: strawman.as_ref().and_then(|strawman| ratio(&own, strawman, at)),
            };
            (0..figures).map(figure).collect()
        }),
    };
    turns.into_iter().zip(beside).map(line).collect()
}

/// The ratios of figure `at`, round by round; `None` if the other entry has no such figure.
fn ratio(own: &[Vec<f64>], other: &[Vec<f64>], at: usize) -> Option<Spread> {
    let ratios: Vec<f64> = own.iter().zip(other).map(|(own, other)| own[at] / other[at]).collect();
    (!ratios.is_empty() && ratios.iter().all(|ratio| ratio.is_finite())).then(|| Spread::of(ratios))
}

#[cfg(test)]
mod tests {
    use super::{super::contender::check, *};

    fn entry(name: &'static str, role: Role, round: impl FnMut() -> Vec<f64> + 'static) -> Entry {
        Entry { name, lacks: "", role, start: Ok(Box::new(|| Box::new(round))) }
    }

    fn run(entries: Vec<Entry>, at_once: bool) -> Vec<Line> {
        let row = Row { name: "row", what: String::new(), figures: vec!["ns".into()], entries, at_once, rounds: 3 };
        row.run(&ProgressBar::hidden())
    }

    #[test]
    fn figures_stand_over_the_limit_and_the_strawman_of_the_same_round() {
        for at_once in [true, false] {
            let mut now = 1.0;
            let growing = move || {
                now += 1.0;
                vec![now]
            };
            let entries = vec![
                entry("limit", Role::Limit, || vec![2.0]),
                entry("growing", Role::Other, growing),
                entry("strawman", Role::Strawman, || vec![8.0]),
            ];
            let lines = run(entries, at_once);
            // The first round, with 2.0, does not count.
            let grown = lines[1].outcome.as_ref().expect("figures")[0];
            let medians = [Some(grown.value), grown.over_limit, grown.over_strawman];
            assert_eq!(medians.map(|spread| spread.expect("a ratio").median), [4.0, 2.0, 0.5], "{at_once}");
            assert!(lines[0].outcome.as_ref().expect("figures")[0].over_limit.is_none());
        }
    }

    #[test]
    fn what_fails_is_a_line_and_the_others_go_on() {
        let entries = vec![
            entry("wrong", Role::Other, || {
                check(16, 32);
                vec![1.0]
            }),
            entry("panics", Role::Other, || panic!("out of room")),
            Entry { name: "absent", lacks: "", role: Role::Other, start: Err("has no pool") },
            entry("strawman", Role::Strawman, || vec![1.0]),
        ];
        let lines = run(entries, true);
        let said = |at: usize| lines[at].outcome.as_ref().err().map(ToString::to_string);
        assert_eq!(said(0).as_deref(), Some("wrong answer: 16 tokens matched instead of 32"));
        assert!(matches!(lines[0].outcome, Err(Failure::Wrong(_))));
        assert_eq!(said(1).as_deref(), Some("panicked: out of room"));
        assert_eq!(said(2).as_deref(), Some("has no pool"));
        assert_eq!(said(3), None);
    }
}
