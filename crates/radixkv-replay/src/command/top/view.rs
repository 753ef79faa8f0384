//! Draws a state on the screen.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Cell, Gauge, Paragraph, Row, Sparkline, Table},
};

use super::plain::{figures, is_of_metrics, share};
use crate::{
    console::printable,
    figures::{grouped, percent},
    live::{Namespace, State},
};

/// From this width on, the figures are beside the curves.
const SIDE_BY_SIDE: u16 = 70;
/// Width of the name of a figure.
const NAME: usize = 17;
/// Minimum width of a curve.
const CURVE: u16 = 30;

/// Draws a state on the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let rows = [Constraint::Length(1), Constraint::Length(3), Constraint::Min(0), Constraint::Length(1)];
    let [title, gauges, body, keys] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Line::from(headline(state)).bold(), title);
    draw_gauges(frame, gauges, state);
    // Metrics have no prefixes, and some have no namespaces.
    let is_listed = !is_of_metrics(state) || !state.namespaces.is_empty();
    let upper = if is_listed { (body.height * 3 / 5).clamp(1, 15) } else { body.height };
    let [upper, lower] = Layout::vertical([Constraint::Length(upper), Constraint::Min(0)]).areas(body);
    if body.width < SIDE_BY_SIDE {
        draw_figures(frame, upper, state);
    } else {
        let width = figures_width(state).min(body.width.saturating_sub(CURVE));
        let [left, right] = Layout::horizontal([Constraint::Length(width), Constraint::Min(0)]).areas(upper);
        draw_figures(frame, left, state);
        draw_curves(frame, right, state);
    }
    if !is_of_metrics(state) {
        draw_prefixes(frame, lower, state);
    } else if is_listed {
        draw_namespaces(frame, lower, state);
    }
    let what = if state.ended { "the replay has ended   q quits" } else { "q quits" };
    frame.render_widget(Line::from(what).dim(), keys);
}

fn headline(state: &State) -> String {
    let (capacity, size) = (grouped(state.capacity_blocks as u64), state.block_size);
    // A trace is shown by its file name without folders, an address in full.
    let name = match is_of_metrics(state) {
        true => &state.trace,
        false => state.trace.rsplit('/').next().unwrap_or(&state.trace),
    };
    let policy = if is_of_metrics(state) { String::new() } else { format!("  {}", printable(&state.policy)) };
    format!("radixkv{policy}  {capacity} blocks of {size} tokens  {}", printable(name))
}

/// Draws the progress of the replay, the cached blocks, and the leased blocks.
fn draw_gauges(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let rows = Layout::vertical([Constraint::Length(1); 3]).split(area);
    let gauges = [
        ("served", state.requests, state.all_requests, Color::Blue),
        ("cached", state.cached_blocks, state.capacity_blocks, Color::Green),
        ("leased", state.protected_blocks, state.capacity_blocks, Color::Magenta),
    ];
    let of_all = |gauge: &(&str, usize, usize, Color)| gauge.0 != "served" || !is_of_metrics(state);
    for (&row, (name, part, whole, colour)) in rows.iter().zip(gauges.into_iter().filter(of_all)) {
        let ratio = share(part as u64, whole as u64).clamp(0.0, 1.0);
        let label = format!("{name} {} of {} ({})", grouped(part as u64), grouped(whole as u64), percent(ratio));
        frame.render_widget(Gauge::default().ratio(ratio).label(label).gauge_style(Style::new().fg(colour)), row);
    }
}

/// The figures that are not shown elsewhere on the screen.
fn shown_figures(state: &State) -> Vec<(&'static str, String)> {
    let elsewhere = ["metrics", "trace", "policy", "capacity", "requests"];
    figures(state).into_iter().filter(|(name, _)| !elsewhere.contains(name)).collect()
}

/// Width of the figures with their names and a border.
fn figures_width(state: &State) -> u16 {
    let longest = shown_figures(state).iter().map(|(_, value)| value.len()).max().unwrap_or(0);
    u16::try_from(NAME + longest + 3).unwrap_or(u16::MAX)
}

fn draw_figures(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let line =
        |(name, value): (&str, String)| Line::from(vec![Span::from(format!("{name:<NAME$}")).dim(), Span::from(value)]);
    let lines: Vec<Line<'_>> = shown_figures(state).into_iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" figures ")), area);
}

/// Draws the hit rate and the evicted blocks of the last periods.
fn draw_curves(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let [upper, lower] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let rates: Vec<u64> = state.periods.iter().map(|period| (1000.0 * period.hit_rate()) as u64).collect();
    let evicted: Vec<u64> = state.periods.iter().map(|period| period.evicted_blocks).collect();
    let latest = state.periods.back().map_or(0.0, |period| period.hit_rate());
    let rate = format!(" hit rate, now {} ", percent(latest));
    draw_curve(frame, upper, rate, Color::Green, &rates, (1000, "100 %".to_owned()));
    let most = evicted.iter().max().copied().unwrap_or(0).max(1);
    let now = grouped(evicted.last().copied().unwrap_or(0));
    draw_curve(frame, lower, format!(" evicted blocks, now {now} "), Color::Yellow, &evicted, (most, grouped(most)));
}

/// Draws the latest values that fit as a curve from zero to `top`, which is labelled `top_name`.
fn draw_curve(
    frame: &mut Frame<'_>,
    area: Rect,
    title: String,
    colour: Color,
    values: &[u64],
    (top, top_name): (u64, String),
) {
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    let name_width = u16::try_from(top_name.len() + 1).unwrap_or(u16::MAX);
    let [names, curve] = Layout::horizontal([Constraint::Length(name_width), Constraint::Min(0)]).areas(inner);
    let values = &values[values.len().saturating_sub(usize::from(curve.width))..];
    let block = block
        .title_bottom(format!(" {} samples ago ", values.len().saturating_sub(1)))
        .title_bottom(Line::from(" now ").right_aligned());
    frame.render_widget(block, area);
    let mut scale = vec![Line::from(top_name)];
    scale.resize(usize::from(names.height.saturating_sub(1)).max(1), Line::default());
    scale.push("0".into());
    frame.render_widget(Paragraph::new(scale).dim(), names);
    // The latest value is at the right end, above the label "now".
    let width = u16::try_from(values.len()).unwrap_or(u16::MAX).min(curve.width);
    let curve = Rect { x: curve.right() - width, width, ..curve };
    frame.render_widget(Sparkline::default().style(Style::new().fg(colour)).data(values).max(top), curve);
}

/// Draws the lookups of each namespace; a narrow screen does not show their number.
fn draw_namespaces(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let longest = state.namespaces.iter().map(|space| Span::from(&*space.name).width()).max().unwrap_or(0);
    let name = u16::try_from(longest + 2).unwrap_or(u16::MAX).clamp(12, 60);
    let is_wide = area.width >= SIDE_BY_SIDE;
    let shown = |[name, lookups, tokens, rate]: [String; 4]| match is_wide {
        true => vec![name, lookups, tokens, rate],
        false => vec![name, tokens, rate],
    };
    let row = |space: &Namespace| {
        let rate = percent(share(space.hit_tokens, space.query_tokens));
        Row::new(shown([printable(&space.name), grouped(space.lookups), grouped(space.query_tokens), rate]))
    };
    let lookups = if is_wide { Some(Constraint::Length(14)) } else { None };
    let figures = [Constraint::Length(18), Constraint::Length(9)];
    let widths = [Constraint::Max(name)].into_iter().chain(lookups).chain(figures);
    let table = Table::new(state.namespaces.iter().map(row), widths)
        .header(Row::new(shown(["namespace", "lookups", "tokens", "hit rate"].map(str::to_owned))).bold())
        .block(Block::bordered().title(" namespaces "));
    frame.render_widget(table, area);
}

fn draw_prefixes(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let header = ["row", "tokens", "requests", "hit tokens", "of all hits"];
    let prefix = |prefix: &radixkv_replay::details::HotPrefix| {
        Row::new([
            Cell::from(grouped(prefix.row as u64)),
            Cell::from(format!("{}-{}", grouped(prefix.from_token as u64), grouped(prefix.to_token as u64))),
            Cell::from(grouped(prefix.requests)),
            Cell::from(grouped(prefix.hit_tokens)),
            Cell::from(percent(share(prefix.hit_tokens, state.hit_tokens))),
        ])
    };
    // Wide enough for a trace of millions of rows, and a cache that serves billions of tokens.
    let widths = [12, 22, 12, 18, 11].map(Constraint::Length);
    let table = Table::new(state.top_prefixes.iter().map(prefix), widths)
        .header(Row::new(header).bold())
        .block(Block::bordered().title(" hottest prefixes "));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests;
