//! Formats a sweep as tables: hit rates by capacity, and the costs of block sizes.

use radixkv_replay::sweep::{Line, Sweep, SweepPoint};

use super::extent;
use crate::{
    figures::{counted, grouped, percent},
    grid::{Cell, Column, Grid, wrapped},
    screen::Screen,
};

/// Ranks of the columns, those that are left out first at the top; the columns of policies have
/// lower ranks.
const TOKENS: u8 = 250;
const BLOCKS: u8 = 249;
const APC_VLLM: u8 = 248;
const APC: u8 = 247;

/// All tables, one below the other, in the width of the screen.
pub(super) fn text(trace: &str, sweep: &Sweep, kv_bytes: Option<u64>, screen: &Screen) -> String {
    let requests = counted(sweep.requests as u64, "request");
    let head = format!("{trace}: {requests}, {}", counted(sweep.prompt_tokens, "prompt token"));
    let mut parts = vec![wrapped(&head, screen.width())];
    for size in &sweep.block_sizes {
        let title = format!("hit rate in %, blocks of {}:", counted(size.block_size as u64, "token"));
        parts.push(format!("{title}\n{}", rates(sweep, size.block_size, kv_bytes).text(screen)));
    }
    parts.push(format!("block sizes:\n{}", sizes(sweep).text(screen)));
    parts.join("\n\n")
}

/// The hit rates of one block size: a row for each capacity, a column for each line.
fn rates(sweep: &Sweep, block_size: usize, kv_bytes: Option<u64>) -> Grid {
    let of_size = |point: &&SweepPoint| point.block_size == block_size;
    let points: Vec<&SweepPoint> = sweep.points.iter().filter(of_size).collect();
    let (infinite, points): (Vec<_>, Vec<_>) = points.into_iter().partition(|point| point.line == Line::Infinite);
    let mut lines: Vec<Line> = Vec::new();
    points.iter().map(|point| point.line).for_each(|line| lines.extend((!lines.contains(&line)).then_some(line)));
    let extent_name = if kv_bytes.is_some() { "memory" } else { "tokens" };
    let heads = [
        // Low priority beside the memory column, which has the same information.
        Column::figures("capacity").rank(u8::from(kv_bytes.is_some())),
        Column::figures("blocks").rank(BLOCKS),
        Column::figures(extent_name).rank(if kv_bytes.is_some() { 0 } else { TOKENS }),
    ];
    let rates = lines.iter().enumerate().map(|(at, line)| Column::figures(line.name()).rank(rank(*line, at)));
    let mut grid = Grid::new(heads.into_iter().chain(rates));
    let mut rows: Vec<_> = points.chunks(lines.len().max(1)).collect();
    rows.sort_by_key(|row| row[0].capacity);
    for row in rows {
        let best = row.iter().filter(|point| is_policy(point.line)).map(|point| point.hit_tokens).max();
        let rates = row.iter().map(|point| {
            let text = format!("{:.2}", 100.0 * point.hit_rate);
            let is_best = is_policy(point.line) && Some(point.hit_tokens) == best;
            if is_best { Cell::best(text) } else { text.into() }
        });
        grid.row(head(row[0], kv_bytes).into_iter().chain(rates));
    }
    for point in infinite {
        let mut cells: Vec<Cell> = head(point, kv_bytes).into();
        cells[0] = "infinite".into();
        let rate = format!("{:.2}", 100.0 * point.hit_rate);
        cells.extend(lines.iter().map(|_| Cell::from(rate.as_str())));
        grid.row(cells);
    }
    grid
}

fn is_policy(line: Line) -> bool {
    matches!(line, Line::Policy(_))
}

/// Policies listed first are left out last; the optimum is never left out.
fn rank(line: Line, at: usize) -> u8 {
    match line {
        Line::ApcVllm => APC_VLLM,
        Line::Apc => APC,
        Line::Policy(_) => u8::try_from(at).unwrap_or(u8::MAX).min(100),
        _ => 0,
    }
}

/// The capacity of a cache: as a share of the working set, in blocks, and in tokens or bytes.
fn head(point: &SweepPoint, kv_bytes: Option<u64>) -> [Cell; 3] {
    [
        percent(point.working_set_share).into(),
        grouped(point.capacity as u64).into(),
        extent(point.capacity_tokens, kv_bytes).into(),
    ]
}

/// The costs of each block size.
fn sizes(sweep: &Sweep) -> Grid {
    let mut grid = Grid::new([
        Column::figures("block\nsize"),
        Column::figures("distinct\nblocks").rank(3),
        Column::figures("infinite\ncache"),
        Column::figures("prompt tokens\nin no whole block").rank(2),
        Column::figures("hit tokens\nlost to rounding").rank(1),
        Column::figures("index bytes\n/ token"),
    ]);
    for size in &sweep.block_sizes {
        let is_infinite = |point: &&SweepPoint| point.line == Line::Infinite && point.block_size == size.block_size;
        let infinite = sweep.points.iter().find(is_infinite).map_or(0.0, |point| point.hit_rate);
        grid.row([
            size.block_size.to_string().into(),
            grouped(size.working_set_blocks as u64).into(),
            percent(infinite).into(),
            share(size.rounded_tokens, sweep.prompt_tokens).into(),
            share(size.lost_hit_tokens, sweep.prompt_tokens).into(),
            format!("{:.2}", size.index_bytes_per_token).into(),
        ]);
    }
    grid
}

/// A number of tokens, and its share of `of`.
fn share(tokens: u64, of: u64) -> String {
    format!("{} ({})", grouped(tokens), percent(tokens as f64 / of.max(1) as f64))
}
