//! A state on the screen.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Cell, Gauge, Paragraph, Row, Sparkline, Table},
};

use super::plain::{figures, is_of_metrics, share};
use crate::{
    figures::{grouped, percent},
    live::State,
};

/// Columns from which on the figures stand beside the curves, and not above them.
const SIDE_BY_SIDE: u16 = 70;
/// Width of the figures with their names.
const FIGURES: u16 = 38;
/// The width of the name of a figure.
const NAME: usize = 17;

/// Draws a state on all of the screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let rows = [Constraint::Length(1), Constraint::Length(3), Constraint::Min(0), Constraint::Length(1)];
    let [title, gauges, body, keys] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Line::from(headline(state)).bold(), title);
    draw_gauges(frame, gauges, state);
    // Metrics say nothing of prefixes.
    let upper = if is_of_metrics(state) { body.height } else { (body.height * 3 / 5).clamp(1, 15) };
    let [upper, lower] = Layout::vertical([Constraint::Length(upper), Constraint::Min(0)]).areas(body);
    if body.width < SIDE_BY_SIDE {
        draw_figures(frame, upper, state);
    } else {
        let [left, right] = Layout::horizontal([Constraint::Length(FIGURES), Constraint::Min(0)]).areas(upper);
        draw_figures(frame, left, state);
        draw_curves(frame, right, state);
    }
    if !is_of_metrics(state) {
        draw_prefixes(frame, lower, state);
    }
    let what = if state.ended { "the replay has ended   q quits" } else { "q quits" };
    frame.render_widget(Line::from(what).dim(), keys);
}

fn headline(state: &State) -> String {
    let (capacity, size) = (grouped(state.capacity_blocks as u64), state.block_size);
    format!("radixkv  {}  {capacity} blocks of {size}  {}", state.policy, state.trace)
}

/// How far the replay is, how full the cache is, and how much of it is leased.
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

fn draw_figures(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let shown = figures(state)
        .into_iter()
        .filter(|(name, _)| !["metrics", "trace", "policy", "capacity", "requests"].contains(name));
    let line =
        |(name, value): (&str, String)| Line::from(vec![Span::from(format!("{name:<NAME$}")).dim(), Span::from(value)]);
    let lines: Vec<Line<'_>> = shown.map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" figures ")), area);
}

/// The last periods: how much was hit, and how much was evicted.
fn draw_curves(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let [upper, lower] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let room = usize::from(area.width.saturating_sub(2));
    let periods: Vec<_> = state.periods.iter().skip(state.periods.len().saturating_sub(room)).collect();
    let rates: Vec<u64> = periods.iter().map(|period| (1000.0 * period.hit_rate()) as u64).collect();
    let evicted: Vec<u64> = periods.iter().map(|period| period.evicted_blocks).collect();
    let latest = periods.last().map_or(0.0, |period| period.hit_rate());
    let curve = |title: String, colour| {
        Sparkline::default().block(Block::bordered().title(title)).style(Style::new().fg(colour))
    };
    let rate = format!(" hit rate, now {} ", percent(latest));
    frame.render_widget(curve(rate, Color::Green).data(&rates).max(1000), upper);
    let most = evicted.iter().max().copied().unwrap_or(0);
    let evictions = format!(" evicted blocks, most {} ", grouped(most));
    frame.render_widget(curve(evictions, Color::Yellow).data(&evicted), lower);
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
    let widths = [8, 18, 9, 14, 11].map(Constraint::Length);
    let table = Table::new(state.top_prefixes.iter().map(prefix), widths)
        .header(Row::new(header).bold())
        .block(Block::bordered().title(" hottest prefixes "));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;
    use crate::live::Period;

    fn state() -> State {
        let prefix = r#"{"row": 7, "from_token": 0, "to_token": 512, "requests": 12000, "hit_tokens": 6144000}"#;
        State {
            trace: "conversation.jsonl.zst".to_owned(),
            policy: "lru".to_owned(),
            capacity_blocks: 13_321,
            block_size: 16,
            all_requests: 12_031,
            requests: 6_000,
            prompt_tokens: 1_000_000,
            hit_tokens: 371_200,
            cached_blocks: 13_000,
            protected_blocks: 100,
            evicted_blocks: 123_456,
            periods: (0..100).map(|at| Period { prompt_tokens: 100, hit_tokens: at, ..Period::default() }).collect(),
            top_prefixes: vec![serde_json::from_str(prefix).expect("a prefix"); 20],
            ..State::default()
        }
    }

    fn drawn(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, &state())).expect("drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn everything_is_on_a_screen_of_80_columns_and_of_200() {
        for (width, height) in [(80, 24), (200, 50), (120, 40)] {
            let screen = drawn(width, height);
            for figure in
                ["37.12 %", "123,456", "13,321 blocks", "6,144,000", "hit rate, now", "evicted blocks, most", "q quits"]
            {
                assert!(screen.contains(figure), "{figure} at {width} x {height}:\n{screen}");
            }
        }
    }

    #[test]
    fn what_metrics_do_not_say_is_not_drawn() {
        let screen = |state: &State| {
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
            terminal.draw(|frame| draw(frame, state)).expect("drawn");
            terminal.backend().to_string()
        };
        let scraped = State { policy: String::new(), per_second: Some(42.0), ..state() };
        let drawn = screen(&scraped);
        for figure in
            ["37.12 %", "123,456", "lookups", "lookups / s      42", "hit rate, now", "cached 13,000 of 13,321"]
        {
            assert!(drawn.contains(figure), "{figure}:\n{drawn}");
        }
        assert!(!drawn.contains("served") && !drawn.contains("hottest"), "{drawn}");
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        for width in (1..100).step_by(7) {
            for height in 1..30 {
                drawn(width, height);
            }
        }
        assert!(drawn(40, 24).contains("37.12 %"), "{}", drawn(40, 24));
    }
}
