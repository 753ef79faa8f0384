//! The tables that the command prints.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use radixkv_scheduler::Finished;

use crate::acceptance::{Acceptance, Served};

/// The results of one pass over the prompts.
pub(crate) struct Run {
    pub(crate) finished: Vec<Finished>,
    /// Times to first tokens, ascending.
    pub(crate) first: Vec<Duration>,
    pub(crate) took: Duration,
}

/// A table with a row for each run.
pub(crate) fn runs(runs: &[(&str, Run)]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_FULL_CONDENSED).set_header([
        "",
        "requests",
        "prompt tokens",
        "cached",
        "computed",
        "sampled",
        "first token, median",
        "last",
        "tokens/s",
        "time",
    ]);
    for (name, Run { finished, first, took }) in runs {
        let sum = |of: fn(&Finished) -> usize| finished.iter().map(of).sum::<usize>();
        let sampled = sum(|finished| finished.tokens.len() - finished.prompt_len);
        let at = |place: usize| first.get(place).map_or("-".to_owned(), |time| milliseconds(*time));
        table.add_row([
            (*name).to_owned(),
            finished.len().to_string(),
            sum(|finished| finished.prompt_len).to_string(),
            sum(|finished| finished.cached_len).to_string(),
            sum(|finished| finished.computed_len).to_string(),
            sampled.to_string(),
            at(first.len() / 2),
            at(first.len().saturating_sub(1)),
            format!("{:.0}", sampled as f64 / took.as_secs_f64()),
            milliseconds(*took),
        ]);
    }
    align(table)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Aligns numbers to the right.
fn align(mut table: Table) -> Table {
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// A table of the acceptance case's results.
pub(crate) fn acceptance(acceptance: &Acceptance) -> Table {
    let Acceptance { with, copied, without, unrelated, .. } = acceptance;
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_FULL_CONDENSED)
        .set_header(["request", "matched", "computed", "saved", "tokens", "logits"]);
    let same = |same: bool| if same { "the same" } else { "DIFFERENT" }.to_owned();
    let mut row = |name: &str, served: &Served, tokens: String, logits: String| {
        let saved = (without.computed as isize) - (served.computed as isize);
        let share = 100.0 * saved as f64 / without.computed as f64;
        let saved = format!("{saved} ({share:.1} %)");
        table.add_row([
            name.to_owned(),
            served.matched.to_string(),
            served.computed.to_string(),
            saved,
            tokens,
            logits,
        ]);
    };
    row("97 + 5 tokens, without the cache", without, without.output.len().to_string(), "-".to_owned());
    let shared = [("97 + 5 tokens, 97 of them shared", with), ("the same, partial hits copied", copied)];
    for (name, served) in shared {
        row(name, served, same(served.output == without.output), same(served.logits == without.logits));
    }
    row("nothing shared", unrelated, "-".to_owned(), "-".to_owned());
    align(table)
}
