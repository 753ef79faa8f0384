//! Formats the state of the workers as a table.

use super::seen::{Seen, Worker};
use crate::{
    figures::{counted, grouped},
    grid::{Cell, Column, Grid},
    screen::Screen,
};

/// A row for each worker and medium, and a summary under them.
pub(super) fn text(seen: &Seen, screen: &Screen) -> String {
    let mut grid = Grid::new([
        Column::words("worker"),
        Column::words("state"),
        Column::words("medium"),
        Column::figures("blocks"),
        Column::figures("tokens"),
        Column::figures("next").rank(2),
        Column::figures("gaps").rank(3),
        Column::figures("lost").rank(1),
    ]);
    for worker in &seen.workers {
        // A worker about which nothing is known also has a row.
        let mut media: Vec<_> =
            worker.media.iter().map(|held| (held.medium.as_str(), held.blocks, held.tokens)).collect();
        if media.is_empty() {
            media.push(("", 0, Some(0)));
        }
        for (at, (medium, blocks, tokens)) in media.into_iter().enumerate() {
            let once = |cell: Cell| if at == 0 { cell } else { Cell::default() };
            grid.row([
                once(worker.endpoint.as_str().into()),
                once(state(worker)),
                medium.into(),
                grouped(blocks as u64).into(),
                tokens.map_or("unknown".to_owned(), grouped).into(),
                once(worker.next_batch.map_or(String::new(), grouped).into()),
                once(grouped(worker.gaps).into()),
                once(grouped(worker.lost_batches).into()),
            ]);
        }
    }
    format!("{}\n{}", grid.text(screen), summary(seen))
}

fn state(worker: &Worker) -> Cell {
    match worker.state() {
        "complete" => Cell::good("complete"),
        poor @ ("partial" | "tokenless") => Cell::bad(poor),
        other => other.into(),
    }
}

fn summary(seen: &Seen) -> String {
    let sum = |count: fn(&Worker) -> u64| seen.workers.iter().map(count).sum::<u64>();
    let mut parts = vec![format!("{:.0} s", seen.seconds), counted(sum(|worker| worker.events), "event")];
    let rare: [(u64, &str); 4] = [
        (sum(|worker| worker.restarts), "restart"),
        (sum(|worker| worker.snapshots), "snapshot"),
        (sum(|worker| worker.skipped_events), "skipped event"),
        (sum(|worker| worker.garbage), "broken message"),
    ];
    parts.extend(rare.iter().filter(|(count, _)| *count > 0).map(|(count, what)| counted(*count, what)));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use radixkv_events::{Batch, Change, Follower, HashScheme, Medium, Numbered, Recorder, Scope, Verdict};

    use super::*;

    /// A table with workers that hold millions of blocks fits 80 columns.
    #[test]
    fn a_table_fits_eighty_columns() {
        let media = vec![Medium::Gpu, Medium::CpuTier1];
        let mut recorder = Recorder::builder(1 << 20, HashScheme::xxh3()).media(media).build();
        let (scope, tokens) = (Scope::default(), vec![7; 1 << 20]);
        for tier in 0..2 {
            let change =
                Change::Stored { tier, scope: &scope, parent: None, blocks: &[0], tokens: &tokens, bigrams: false };
            recorder.record(&change).unwrap();
        }
        let mut follower = Follower::new();
        let numbered = Numbered { seq: 0, batch: Batch { epoch: None, ..recorder.take(0.0).unwrap().batch } };
        assert_eq!(follower.take(&numbered), Ok(Verdict::Applied));
        follower.accept_gap(12_345_678);
        let mut workers = vec![Worker::new("tcp://worker-17.prefill.example:5557", true, &follower)];
        workers.push(Worker::new("tcp://10.0.0.2:5557", false, &Follower::new()));
        let seen = Seen { seconds: 3.2, workers };
        let text = text(&seen, &Screen::plain(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for wanted in ["CPU_TIER1", "1,048,576", "partial", "away", "3 s, 2 events"] {
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
    }
}
