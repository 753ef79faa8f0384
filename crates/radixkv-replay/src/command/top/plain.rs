//! Formats a state as text.

use crate::{
    bytes::shown,
    console::printable,
    figures::{grouped, percent},
    grid::{Column, Grid},
    live::State,
    screen::Screen,
};

/// A table of the state's figures, and a table of its namespaces or of the hottest prefixes.
pub(super) fn text(state: &State, screen: &Screen) -> String {
    let mut table = Grid::of_pairs();
    for (name, value) in figures(state) {
        table.row([name.into(), value.into()]);
    }
    let mut prefixes = Grid::new([
        Column::figures("row"),
        Column::figures("from token").rank(3),
        Column::figures("to token").rank(2),
        Column::figures("requests").rank(4),
        Column::figures("hit tokens").rank(1),
        Column::figures("of all hits"),
    ]);
    for prefix in &state.top_prefixes {
        prefixes.row([
            grouped(prefix.row as u64).into(),
            grouped(prefix.from_token as u64).into(),
            grouped(prefix.to_token as u64).into(),
            grouped(prefix.requests).into(),
            grouped(prefix.hit_tokens).into(),
            percent(share(prefix.hit_tokens, state.hit_tokens)).into(),
        ]);
    }
    if is_of_metrics(state) {
        return match state.namespaces.is_empty() {
            true => table.text(screen),
            false => format!("{}\n{}", table.text(screen), namespaces(state).text(screen)),
        };
    }
    format!("{}\n{}", table.text(screen), prefixes.text(screen))
}

fn namespaces(state: &State) -> Grid {
    let mut grid = Grid::new([
        Column::words("namespace"),
        Column::figures("lookups").rank(2),
        Column::figures("tokens").rank(1),
        Column::figures("hit rate"),
    ]);
    for space in &state.namespaces {
        grid.row([
            space.name.as_str().into(),
            grouped(space.lookups).into(),
            grouped(space.query_tokens).into(),
            percent(share(space.hit_tokens, space.query_tokens)).into(),
        ]);
    }
    grid
}

/// The figures of a state, with their names.
pub(super) fn figures(state: &State) -> Vec<(&'static str, String)> {
    let blocks = |blocks: usize| {
        format!("{} ({})", grouped(blocks as u64), percent(share(blocks as u64, state.capacity_blocks as u64)))
    };
    let capacity = format!("{} x {} tokens", grouped(state.capacity_blocks as u64), state.block_size);
    let mut figures = if is_of_metrics(state) {
        vec![("metrics", printable(&state.trace)), ("capacity", capacity), ("lookups", grouped(state.requests as u64))]
    } else {
        let requests = format!("{} of {}", grouped(state.requests as u64), grouped(state.all_requests as u64));
        let (trace, policy) = (printable(&state.trace), printable(&state.policy));
        vec![("trace", trace), ("policy", policy), ("capacity", capacity), ("requests", requests)]
    };
    figures.extend([
        ("hit rate", percent(share(state.hit_tokens, state.prompt_tokens))),
        ("cached blocks", blocks(state.cached_blocks)),
        ("protected blocks", blocks(state.protected_blocks)),
        ("inserted blocks", grouped(state.inserted_blocks)),
        ("evicted blocks", grouped(state.evicted_blocks)),
        ("index memory", shown(state.index_bytes as u64)),
        ("runs", grouped(state.runs as u64)),
    ]);
    if is_of_metrics(state) {
        figures.extend(state.per_second.map(|rate| ("lookups / s", grouped(rate as u64))));
    } else {
        let rate = state.requests as f64 / state.seconds.max(f64::MIN_POSITIVE);
        let bypassed = grouped(state.bypassed_requests as u64);
        figures.extend([("bypassed", bypassed), ("requests / s", grouped(rate as u64))]);
    }
    if state.ended {
        figures.push(("ended", format!("after {:.1} s", state.seconds)));
    }
    figures
}

/// Whether a state was computed from metrics, and not by a replay.
pub(super) fn is_of_metrics(state: &State) -> bool {
    state.policy.is_empty()
}

pub(super) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
