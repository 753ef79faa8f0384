//! Formats what a region holds, and which processes hold it, as tables and as JSON.

use std::time::Duration;

use radixkv_host::radixkv_tiers::radixkv_region::{Census, NamespaceCensus, ProcessCensus};
use serde::Serialize;

use crate::{
    bytes::shown,
    console::printable,
    figures::{grouped, percent},
    grid::{Cell, Column, Grid},
    screen::Screen,
};

/// A census in the form in which it is shown.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    region: String,
    capacity: usize,
    entry_bytes: usize,
    blocks: usize,
    free: usize,
    bytes: usize,
    ownerless_blocks: usize,
    in_flight: usize,
    dead_processes: usize,
    namespaces: Vec<Namespace>,
    processes: Vec<Process>,
}

#[derive(Debug, Serialize)]
struct Namespace {
    name: String,
    model: String,
    dtype: String,
    shard: String,
    block_bytes: usize,
    blocks: usize,
    bytes: usize,
    quota: Option<u64>,
    oldest_seconds: Option<f64>,
    newest_seconds: Option<f64>,
    /// All fields of the namespace, by name.
    fields: Vec<(&'static str, String)>,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    state: &'static str,
    blocks: usize,
    in_flight: usize,
    hits: u64,
    misses: u64,
    /// `None` if the process has looked up no block.
    hit_rate: Option<f64>,
    stored: u64,
    open_seconds: f64,
}

impl Shown {
    pub(super) fn of(region: &str, census: &Census) -> Self {
        let namespaces: Vec<_> = census.namespaces.iter().map(Namespace::of).collect();
        let processes: Vec<_> = census.processes.iter().map(Process::of).collect();
        Self {
            region: region.to_owned(),
            capacity: census.capacity,
            entry_bytes: census.entry_bytes,
            blocks: namespaces.iter().map(|namespace| namespace.blocks).sum(),
            free: census.free,
            // Numbers of a damaged region may be anything.
            bytes: namespaces.iter().fold(0, |sum, namespace| sum.saturating_add(namespace.bytes)),
            ownerless_blocks: census.ownerless_blocks,
            in_flight: processes.iter().map(|process| process.in_flight).sum(),
            dead_processes: census.processes.iter().filter(|process| process.is_dead).count(),
            namespaces,
            processes,
        }
    }

    pub(super) fn text(&self, screen: &Screen) -> String {
        let tables = [self.figures(), self.namespaces(), self.processes()];
        tables.map(|table| table.text(screen)).join("\n")
    }

    fn figures(&self) -> Grid {
        let mut table = Grid::of_pairs();
        let mut row = |what: &str, value: String| table.row([what.into(), value.into()]);
        let share = percent(self.blocks as f64 / self.capacity as f64);
        row("region", self.region.clone());
        row(
            "capacity",
            format!("{} blocks of up to {}", grouped(self.capacity as u64), shown(self.entry_bytes as u64)),
        );
        row("blocks", format!("{} ({share}), {}", grouped(self.blocks as u64), shown(self.bytes as u64)));
        row("free entries", grouped(self.free as u64));
        row("being written", grouped(self.in_flight as u64));
        row("of dead processes", format!("{} blocks", grouped(self.ownerless_blocks as u64)));
        row("dead processes", grouped(self.dead_processes as u64));
        table
    }

    fn namespaces(&self) -> Grid {
        let mut table = Grid::new([
            Column::words("namespace"),
            Column::words("model").rank(2),
            Column::words("dtype").rank(4),
            Column::words("shard").rank(3),
            Column::figures("blocks"),
            Column::figures("bytes"),
            Column::figures("quota").rank(1),
            Column::figures("oldest"),
            Column::figures("newest").rank(1),
        ]);
        for space in &self.namespaces {
            let age = |seconds: Option<f64>| seconds.map_or("-".to_owned(), age);
            table.row([
                space.name.clone().into(),
                space.model.clone().into(),
                space.dtype.clone().into(),
                space.shard.clone().into(),
                grouped(space.blocks as u64).into(),
                shown(space.bytes as u64).into(),
                space.quota.map_or("-".to_owned(), grouped).into(),
                age(space.oldest_seconds).into(),
                age(space.newest_seconds).into(),
            ]);
        }
        table
    }

    fn processes(&self) -> Grid {
        let mut table = Grid::new([
            Column::figures("pid"),
            Column::words("state"),
            Column::figures("blocks"),
            Column::figures("being written").rank(2),
            Column::figures("hits").rank(1),
            Column::figures("misses").rank(3),
            Column::figures("hit rate"),
            Column::figures("stored").rank(2),
            Column::figures("open for").rank(1),
        ]);
        for process in &self.processes {
            let state = match process.state {
                "dead" => Cell::bad(process.state),
                state => state.into(),
            };
            table.row([
                process.pid.to_string().into(),
                state,
                grouped(process.blocks as u64).into(),
                grouped(process.in_flight as u64).into(),
                grouped(process.hits).into(),
                grouped(process.misses).into(),
                process.hit_rate.map_or("-".to_owned(), percent).into(),
                grouped(process.stored).into(),
                age(process.open_seconds).into(),
            ]);
        }
        table
    }
}

impl Namespace {
    fn of(census: &NamespaceCensus) -> Self {
        let fields: Vec<_> =
            census.namespace.fields().into_iter().map(|(field, text)| (field, printable(&text))).collect();
        let field =
            |name| fields.iter().find(|(field, _)| *field == name).map_or_else(String::new, |(_, text)| text.clone());
        Self {
            name: printable(census.namespace.name()),
            model: field("model"),
            dtype: field("dtype"),
            shard: field("shard"),
            block_bytes: census.namespace.block_bytes(),
            blocks: census.blocks,
            bytes: census.bytes,
            quota: census.quota,
            oldest_seconds: census.oldest.as_ref().map(Duration::as_secs_f64),
            newest_seconds: census.newest.as_ref().map(Duration::as_secs_f64),
            fields,
        }
    }
}

impl Process {
    fn of(census: &ProcessCensus) -> Self {
        // Counters of a damaged region may be anything.
        let lookups = census.hits.saturating_add(census.misses);
        Self {
            pid: census.pid,
            state: if census.is_dead { "dead" } else { "alive" },
            blocks: census.blocks,
            in_flight: census.in_flight,
            hits: census.hits,
            misses: census.misses,
            hit_rate: (lookups > 0).then(|| census.hits as f64 / lookups as f64),
            stored: census.stored,
            open_seconds: census.open_for.as_secs_f64(),
        }
    }
}

/// A duration in its largest unit.
fn age(seconds: f64) -> String {
    match seconds {
        0.0..60.0 => format!("{seconds:.1} s"),
        60.0..3600.0 => format!("{:.1} min", seconds / 60.0),
        3600.0..86_400.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}
