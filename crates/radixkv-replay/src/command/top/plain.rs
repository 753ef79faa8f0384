//! A state as text.

use crate::{
    console::printable,
    figures::{grouped, percent},
    grid::{Column, Grid},
    live::State,
    screen::Screen,
};

/// The figures of a state, a line for each, and the hottest prefixes under them.
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
    format!("{}\n{}", table.text(screen), prefixes.text(screen))
}

/// The figures of a state, by name.
pub(super) fn figures(state: &State) -> Vec<(&'static str, String)> {
    let blocks = |blocks: usize| {
        format!("{} ({})", grouped(blocks as u64), percent(share(blocks as u64, state.capacity_blocks as u64)))
    };
    let rate = state.requests as f64 / state.seconds.max(f64::MIN_POSITIVE);
    let mut figures = vec![
        ("trace", printable(&state.trace)),
        ("policy", printable(&state.policy)),
        ("capacity", format!("{} x {} tokens", grouped(state.capacity_blocks as u64), state.block_size)),
        ("requests", format!("{} of {}", grouped(state.requests as u64), grouped(state.all_requests as u64))),
        ("hit rate", percent(share(state.hit_tokens, state.prompt_tokens))),
        ("cached blocks", blocks(state.cached_blocks)),
        ("protected blocks", blocks(state.protected_blocks)),
        ("inserted blocks", grouped(state.inserted_blocks)),
        ("evicted blocks", grouped(state.evicted_blocks)),
        ("bypassed", grouped(state.bypassed_requests as u64)),
        ("index bytes", grouped(state.index_bytes as u64)),
        ("runs", grouped(state.runs as u64)),
        ("requests / s", grouped(rate as u64)),
    ];
    if state.ended {
        figures.push(("ended", format!("after {:.1} s", state.seconds)));
    }
    figures
}

pub(super) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
