//! Draws the miss ratio over the capacity: a chart for each block size, one below the other.

use plotters::{
    coord::{
        Shift,
        combinators::{LogCoord, WithKeyPoints},
        types::RangedCoordf64,
    },
    prelude::*,
};
use radixkv_replay::sweep::{Line, Sweep, SweepPoint};

use crate::{bytes, figures::counted};

/// Size of a chart, and height of the title above all charts.
const WIDTH: u32 = 960;
const HEIGHT: u32 = 440;
const HEAD: u32 = 48;
/// Width at the right for the names of the lines.
const LEGEND: u32 = 190;
const ENTRY: i32 = 24;
/// Maximum number of labels on the axis of capacities, so that they do not overlap.
const TICKS: usize = 9;
/// Space before the first mark and after the last one, as a fraction of the distance between them.
const ROOM: f64 = 0.03;
/// Colours that colour-blind people can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 80, 40),
    RGBColor(90, 90, 200),
];
const GREY: RGBColor = RGBColor(110, 110, 110);

/// One line of a chart.
struct Drawn {
    name: &'static str,
    /// The points of the line; a curve has more than the sweep.
    points: Vec<(f64, f64)>,
    /// The points of the sweep.
    marks: Vec<(f64, f64)>,
    colour: RGBColor,
    style: Style,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// A line with dots at its marks.
    Solid,
    /// Dashes of this length; a level line extends from end to end of the chart.
    Dashes {
        length: i32,
        is_level: bool,
    },
    /// Only marks: the values between them are not known.
    Circles,
    Crosses,
}

/// Draws a sweep as SVG. `curves` computes more points of lru and of the optimum for a block size,
/// which is cheap.
pub(super) fn svg(
    title: &str,
    sweep: &Sweep,
    kv_bytes: Option<u64>,
    curves: impl Fn(usize) -> Vec<SweepPoint>,
) -> String {
    let mut text = String::new();
    {
        let height = HEAD + HEIGHT * sweep.block_sizes.len() as u32;
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        // Writing to a string does not fail.
        let _ = draw(&root, title, sweep, kv_bytes, &curves);
    }
    text
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<WithKeyPoints<LogCoord<f64>>, RangedCoordf64>>;
type Fault<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn draw<'a>(
    root: &Area<'a>,
    title: &str,
    sweep: &Sweep,
    kv_bytes: Option<u64>,
    curves: &dyn Fn(usize) -> Vec<SweepPoint>,
) -> Result<(), Fault<'a>> {
    root.fill(&WHITE)?;
    let (head, charts) = root.split_vertically(HEAD);
    let title = format!("Miss ratio by capacity: {title}, {}", counted(sweep.requests as u64, "request"));
    head.draw(&Text::new(title, (16, 16), ("sans-serif", 20).into_font().color(&BLACK)))?;
    let areas = charts.split_evenly((sweep.block_sizes.len().max(1), 1));
    for (area, size) in areas.iter().zip(&sweep.block_sizes) {
        let of_size = |point: &&SweepPoint| point.block_size == size.block_size;
        let points: Vec<&SweepPoint> = sweep.points.iter().filter(of_size).collect();
        let lines = lines(&points, &curves(size.block_size));
        chart(area, size.block_size, &lines, kv_bytes)?;
    }
    root.present()
}

fn xy(point: &SweepPoint) -> (f64, f64) {
    (point.capacity_tokens as f64, 100.0 * (1.0 - point.hit_rate))
}

fn lines(points: &[&SweepPoint], curves: &[SweepPoint]) -> Vec<Drawn> {
    let mut lines: Vec<Drawn> = Vec::new();
    for line in distinct(points) {
        let mut marks: Vec<_> = points.iter().filter(|point| point.line == line).map(|point| xy(point)).collect();
        marks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let policies = lines.iter().filter(|line| line.style == Style::Solid).count();
        let (colour, style) = match line {
            Line::Policy(_) => (COLOURS[policies % COLOURS.len()], Style::Solid),
            Line::Apc => (GREY, Style::Circles),
            Line::ApcVllm => (GREY, Style::Crosses),
            Line::Infinite => (GREY, Style::Dashes { length: 2, is_level: true }),
            _ => (BLACK, Style::Dashes { length: 7, is_level: false }),
        };
        let curve: Vec<_> = curves.iter().filter(|point| point.line == line).map(xy).collect();
        let points = if curve.is_empty() { marks.clone() } else { curve };
        lines.push(Drawn { name: line.name(), points, marks, colour, style });
    }
    lines
}

/// The distinct lines, in the order of the points.
fn distinct(points: &[&SweepPoint]) -> Vec<Line> {
    let mut lines = Vec::new();
    for point in points {
        if !lines.contains(&point.line) {
            lines.push(point.line);
        }
    }
    lines
}

fn chart<'a>(area: &Area<'a>, block_size: usize, lines: &[Drawn], kv_bytes: Option<u64>) -> Result<(), Fault<'a>> {
    let (plot, legend) = area.split_horizontally(WIDTH - LEGEND);
    let all = || lines.iter().flat_map(|line| &line.points);
    let low = all().map(|point| point.0).fold(f64::INFINITY, f64::min).clamp(1.0, 1e18);
    let high = all().map(|point| point.0).fold(low * 1.1, f64::max);
    let most = all().map(|point| point.1).fold(1.0, f64::max);
    // Space at both ends, so that no mark is drawn on an axis.
    let room = (high / low).powf(ROOM).max(1.05);
    let (left, right) = (low / room, high * room);
    let capacities = (left..right).log_scale().with_key_points(ticks(left, right, kv_bytes));
    let mut chart = ChartBuilder::on(&plot)
        .margin(12)
        .margin_right(28)
        .caption(format!("blocks of {}", counted(block_size as u64, "token")), ("sans-serif", 16))
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(capacities, 0.0..(most * 1.08).min(100.0))?;
    let unit = if kv_bytes.is_some() { "capacity (KV memory)" } else { "capacity (tokens)" };
    chart
        .configure_mesh()
        .x_labels(TICKS)
        .y_labels(8)
        .x_desc(unit)
        .y_desc("prompt tokens computed, %")
        .x_label_formatter(&|tokens| short(*tokens, kv_bytes))
        .y_label_formatter(&|percent| share(*percent))
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 14))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    lines.iter().try_for_each(|line| draw_line(&mut chart, line, [left, right]))?;
    names(&legend, lines)
}

/// Draws a line and its marks; `ends` are the ends of the chart's horizontal axis.
fn draw_line<'a>(chart: &mut Chart<'a, '_>, line: &Drawn, ends: [f64; 2]) -> Result<(), Fault<'a>> {
    let (points, colour) = (line.points.clone(), line.colour);
    let (stroke, marks) = (colour.stroke_width(2), line.marks.iter().copied());
    match line.style {
        Style::Solid => {
            chart.draw_series(LineSeries::new(points, stroke))?;
            chart.draw_series(marks.map(|mark| Circle::new(mark, 3, colour.filled())))?;
        }
        Style::Dashes { length, is_level: true } => {
            let level = points.first().map_or(0.0, |point| point.1);
            chart.draw_series(DashedLineSeries::new(ends.map(|end| (end, level)), length, length, stroke))?;
        }
        Style::Dashes { length, is_level: false } => {
            chart.draw_series(DashedLineSeries::new(points, length, length, stroke))?;
            chart.draw_series(marks.map(|mark| Circle::new(mark, 3, colour.filled())))?;
        }
        Style::Circles => drop(chart.draw_series(marks.map(|mark| Circle::new(mark, 6, stroke)))?),
        Style::Crosses => drop(chart.draw_series(marks.map(|mark| Cross::new(mark, 6, stroke)))?),
    }
    Ok(())
}

/// Draws the names of the lines, one below the other, each beside a sample of its line.
fn names<'a>(legend: &Area<'a>, lines: &[Drawn]) -> Result<(), Fault<'a>> {
    for (at, line) in lines.iter().enumerate() {
        let (y, stroke) = (56 + ENTRY * at as i32, line.colour.stroke_width(2));
        match line.style {
            Style::Solid => legend.draw(&PathElement::new(vec![(8, y), (44, y)], stroke))?,
            Style::Circles => legend.draw(&Circle::new((26, y), 6, stroke))?,
            Style::Crosses => legend.draw(&Cross::new((26, y), 6, stroke))?,
            Style::Dashes { length, .. } => {
                for start in (8..44).step_by(2 * length as usize) {
                    legend.draw(&PathElement::new(vec![(start, y), ((start + length).min(44), y)], stroke))?;
                }
            }
        }
        legend.draw(&Text::new(line.name, (56, y - 7), ("sans-serif", 14).into_font().color(&BLACK)))?;
    }
    Ok(())
}

/// The capacities in tokens that the axis labels: round numbers of tokens, or of bytes.
fn ticks(low: f64, high: f64, kv_bytes: Option<u64>) -> Vec<f64> {
    let unit = kv_bytes.map_or(1.0, |bytes| bytes.max(1) as f64);
    let all: Vec<f64> = match kv_bytes {
        Some(_) => (0..63).map(|power| 2f64.powi(power) / unit).collect(),
        None => (0..18).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power))).collect(),
    };
    let within: Vec<f64> = all.into_iter().filter(|tick| (low..=high).contains(tick)).collect();
    let step = within.len().div_ceil(TICKS).max(1);
    within.into_iter().step_by(step).collect()
}

/// A percentage with the decimals that tell it from its neighbours on the axis.
fn share(percent: f64) -> String {
    // Sums of steps are inexact, and may be a negative zero.
    ((1000.0 * percent).round() / 1000.0 + 0.0).to_string()
}

/// A capacity in few characters.
fn short(tokens: f64, kv_bytes: Option<u64>) -> String {
    if let Some(bytes) = kv_bytes {
        return bytes::shown((tokens * bytes as f64).round() as u64).replace(".0 ", " ");
    }
    match tokens {
        large if large >= 1e9 => format!("{:.0} G", large / 1e9),
        large if large >= 1e6 => format!("{:.0} M", large / 1e6),
        large if large >= 1e3 => format!("{:.0} k", large / 1e3),
        small => format!("{small:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_low_miss_ratios_differ() {
        let labels = [-0.0, 0.2, 0.5, 0.30000000000000004, 1.5, 2.5, 20.0, 100.0].map(share);
        assert_eq!(labels, ["0", "0.2", "0.5", "0.3", "1.5", "2.5", "20", "100"]);
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(900_000.0, 9e7, None), [1e6, 2e6, 5e6, 1e7, 2e7, 5e7]);
        let bytes = 327_680;
        let names: Vec<String> =
            ticks(6_000.0, 500_000.0, Some(bytes)).into_iter().map(|tick| short(tick, Some(bytes))).collect();
        assert_eq!(names, ["2 GiB", "4 GiB", "8 GiB", "16 GiB", "32 GiB", "64 GiB", "128 GiB"]);
        assert!(ticks(1.0, 1e18, None).len() <= TICKS && ticks(5.0, 6.0, None) == [5.0]);
    }
}
