//! The miss ratio over the capacity, drawn: a chart for each block size, one under the other.

use plotters::{coord::Shift, prelude::*};
use radixkv_replay::sweep::{Line, Sweep, SweepPoint};

use super::extent;
use crate::figures::counted;

/// Size of a chart, and of what stands above all of them.
const WIDTH: u32 = 960;
const HEIGHT: u32 = 440;
const HEAD: u32 = 48;
/// Room at the right for the names of the lines.
const LEGEND: u32 = 190;
const ENTRY: i32 = 24;
/// Colours that colour-blind people tell apart (Okabe and Ito).
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
    points: Vec<(f64, f64)>,
    /// The points that were asked for; a curve has more.
    marks: Vec<(f64, f64)>,
    colour: RGBColor,
    /// Length of a dash; `None` for a line without gaps.
    dash: Option<i32>,
}

/// The SVG of a sweep. `curve` computes the line of lru for a block size, which costs little.
pub(super) fn svg(
    trace: &str,
    sweep: &Sweep,
    kv_bytes: Option<u64>,
    curve: impl Fn(usize) -> Vec<SweepPoint>,
) -> String {
    let mut text = String::new();
    {
        let height = HEAD + HEIGHT * sweep.block_sizes.len() as u32;
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        // Writing into a text does not fail.
        let _ = draw(&root, trace, sweep, kv_bytes, &curve);
    }
    text
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Fault<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn draw<'a>(
    root: &Area<'a>,
    trace: &str,
    sweep: &Sweep,
    kv_bytes: Option<u64>,
    curve: &dyn Fn(usize) -> Vec<SweepPoint>,
) -> Result<(), Fault<'a>> {
    root.fill(&WHITE)?;
    let (head, charts) = root.split_vertically(HEAD);
    let title = format!("Miss ratio by capacity: {}, {}", file(trace), counted(sweep.requests as u64, "request"));
    head.draw(&Text::new(title, (16, 16), ("sans-serif", 20).into_font().color(&BLACK)))?;
    let areas = charts.split_evenly((sweep.block_sizes.len().max(1), 1));
    for (area, size) in areas.iter().zip(&sweep.block_sizes) {
        let of_size = |point: &&SweepPoint| point.block_size == size.block_size;
        let points: Vec<&SweepPoint> = sweep.points.iter().filter(of_size).collect();
        let lines = lines(&points, &curve(size.block_size));
        chart(area, size.block_size, &lines, kv_bytes)?;
    }
    root.present()
}

/// The name of a file without its folders.
fn file(trace: &str) -> &str {
    trace.rsplit('/').next().unwrap_or(trace)
}

fn xy(point: &SweepPoint) -> (f64, f64) {
    (point.capacity_tokens as f64, 100.0 * (1.0 - point.hit_rate))
}

fn lines(points: &[&SweepPoint], curve: &[SweepPoint]) -> Vec<Drawn> {
    let mut lines: Vec<Drawn> = Vec::new();
    for line in distinct(points) {
        let mut marks: Vec<_> = points.iter().filter(|point| point.line == line).map(|point| xy(point)).collect();
        marks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let policies = lines.iter().filter(|line| line.dash.is_none()).count();
        let (colour, dash) = match line {
            Line::Policy(_) => (COLOURS[policies % COLOURS.len()], None),
            Line::Apc => (GREY, Some(10)),
            Line::ApcVllm => (GREY, Some(3)),
            _ => (BLACK, Some(6)),
        };
        let points = match line.name() {
            "lru" => curve.iter().map(xy).collect(),
            _ => marks.clone(),
        };
        lines.push(Drawn { name: line.name(), points, marks, colour, dash });
    }
    lines
}

/// Each line once, in the order of the points.
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
    let (least, most) =
        all().fold((100.0, 0.0), |(least, most): (f64, f64), point| (least.min(point.1), most.max(point.1)));
    let margin = ((most - least) * 0.08).max(1.0);
    let mut chart = ChartBuilder::on(&plot)
        .margin(12)
        .caption(format!("blocks of {}", counted(block_size as u64, "token")), ("sans-serif", 16))
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d((low..high).log_scale(), (least - margin).max(0.0)..(most + margin).min(100.0))?;
    let unit = if kv_bytes.is_some() { "capacity (KV memory)" } else { "capacity (tokens)" };
    chart
        .configure_mesh()
        .x_labels(8)
        .y_labels(8)
        .x_desc(unit)
        .y_desc("prompt tokens computed, %")
        .x_label_formatter(&|tokens| short(*tokens, kv_bytes))
        .y_label_formatter(&|percent| format!("{percent:.0}"))
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 14))
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .draw()?;
    for line in lines {
        let level = [
            (low, line.points.first().map_or(0.0, |point| point.1)),
            (high, line.points.first().map_or(0.0, |point| point.1)),
        ];
        let points = if line.name == Line::Infinite.name() { level.to_vec() } else { line.points.clone() };
        match line.dash {
            None => chart.draw_series(LineSeries::new(points, line.colour.stroke_width(2)))?,
            Some(dash) => chart.draw_series(DashedLineSeries::new(points, dash, dash, line.colour.stroke_width(2)))?,
        };
        if line.name != Line::Infinite.name() {
            chart.draw_series(line.marks.iter().map(|&mark| Circle::new(mark, 3, line.colour.filled())))?;
        }
    }
    names(&legend, lines)
}

/// The names of the lines, one under the other beside a piece of each.
fn names<'a>(legend: &Area<'a>, lines: &[Drawn]) -> Result<(), Fault<'a>> {
    for (at, line) in lines.iter().enumerate() {
        let y = 56 + ENTRY * at as i32;
        let ends = vec![(8, y), (44, y)];
        match line.dash {
            None => legend.draw(&PathElement::new(ends, line.colour.stroke_width(2)))?,
            Some(dash) => {
                for start in (8..44).step_by(2 * dash as usize) {
                    let piece = vec![(start, y), ((start + dash).min(44), y)];
                    legend.draw(&PathElement::new(piece, line.colour.stroke_width(2)))?;
                }
            }
        }
        legend.draw(&Text::new(line.name, (52, y - 7), ("sans-serif", 14).into_font().color(&BLACK)))?;
    }
    Ok(())
}

/// A capacity in few characters.
fn short(tokens: f64, kv_bytes: Option<u64>) -> String {
    if kv_bytes.is_some() {
        return extent(tokens.round() as usize, kv_bytes);
    }
    match tokens {
        large if large >= 1e9 => format!("{} G", trimmed(large / 1e9)),
        large if large >= 1e6 => format!("{} M", trimmed(large / 1e6)),
        large if large >= 1e3 => format!("{} k", trimmed(large / 1e3)),
        small => trimmed(small),
    }
}

/// A number without zeros behind its point.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
