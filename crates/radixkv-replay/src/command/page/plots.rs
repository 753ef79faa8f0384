//! The plots of the page: lines over a trace, bars by name, histograms of latencies.
//!
//! No text overlaps another at the sizes below: titles and legends stand above a plot, labels of an axis are as many as
//! have room, and a bar's value stands beside the bar.

use std::fmt;

use plotters::{
    backend::SVGBackend,
    chart::ChartBuilder,
    coord::Shift,
    drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea},
    element::{PathElement, Rectangle, Text},
    series::LineSeries,
    style::{
        Color, IntoFont, RGBColor, TextStyle, WHITE,
        text_anchor::{HPos, Pos, VPos},
    },
};
use radixkv_replay::replay::LatencyBar;

use crate::figures::grouped;

/// Width and height of a plot of lines.
const LINES: (u32, u32) = (936, 240);
/// Width and height of a histogram.
const HISTOGRAM: (u32, u32) = (306, 220);
/// Width of a plot of bars, and the height of each.
const BARS: (u32, i32) = (936, 22);
/// The part of a plot of bars that has their names.
const NAMES: i32 = 260;
/// The part of it that has their values.
const VALUES: i32 = 120;
/// Height of the title.
const HEAD: i32 = 26;
/// The size of letters as the backend counts it: 12 pixels.
const FONT: i32 = 15;
/// The width of a letter at most, in pixels, over all of a label.
const LETTER: i32 = 8;
const INK: RGBColor = RGBColor(32, 36, 44);
const FAINT: RGBColor = RGBColor(213, 217, 226);
const COLOURS: [RGBColor; 2] = [RGBColor(40, 96, 176), RGBColor(214, 106, 30)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A line of a plot, in the order of its points.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// A bar, as long as its value.
pub(super) struct Bar {
    name: String,
    value: u64,
}

impl Bar {
    pub(super) fn new(name: &str, value: u64) -> Self {
        Self { name: name.to_owned(), value }
    }
}

/// Lines over requests, from zero to `top`.
pub(super) fn lines(title: &str, lines: &[Line], top: f64) -> Result<String, fmt::Error> {
    drawn(LINES, |area| {
        text(area, title, (4, HEAD / 2), HPos::Left, INK)?;
        let mut right = LINES.0 as i32 - 12;
        for (line, colour) in lines.iter().zip(COLOURS).rev() {
            right -= line.name.len() as i32 * LETTER;
            text(area, line.name, (right, HEAD / 2), HPos::Left, colour)?;
            area.draw(&PathElement::new([(right - 20, HEAD / 2), (right - 4, HEAD / 2)], colour.stroke_width(2)))?;
            right -= 36;
        }
        let ends = lines.iter().filter_map(|line| line.points.last()).map(|&(x, _)| x);
        let mut chart = ChartBuilder::on(area)
            .margin_top(HEAD)
            .margin_right(28)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..ends.fold(1.0, f64::max), 0.0..top.max(1.0))?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().light_line_style(WHITE).bold_line_style(FAINT).axis_style(FAINT);
        mesh.label_style(style(INK)).x_labels(8).y_labels(5).x_desc("requests");
        mesh.x_label_formatter(&|value| short(*value)).y_label_formatter(&|value| short(*value)).draw()?;
        for (line, colour) in lines.iter().zip(COLOURS) {
            chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
        }
        Ok(())
    })
}

/// A bar for each value, with its name on the left and the value behind it.
pub(super) fn bars(title: &str, bars: &[Bar]) -> Result<String, fmt::Error> {
    let (width, row) = (BARS.0 as i32, BARS.1);
    let longest = bars.iter().map(|bar| bar.value).max().unwrap_or(0).max(1);
    drawn((BARS.0, (HEAD + row * bars.len() as i32 + 4) as u32), |area| {
        text(area, title, (4, HEAD / 2), HPos::Left, INK)?;
        for (at, bar) in bars.iter().enumerate() {
            let top = HEAD + row * at as i32;
            let room = f64::from(width - NAMES - VALUES);
            let end = NAMES + (room * bar.value as f64 / longest as f64).round() as i32;
            text(area, &cut(&bar.name), (NAMES - 8, top + row / 2), HPos::Right, INK)?;
            area.draw(&Rectangle::new([(NAMES, top + 3), (end.max(NAMES + 1), top + row - 3)], COLOURS[0].filled()))?;
            text(area, &grouped(bar.value), (end + 6, top + row / 2), HPos::Left, INK)?;
        }
        Ok(())
    })
}

/// Calls by the time that they took.
pub(super) fn histogram(title: &str, bars: &[LatencyBar]) -> Result<String, fmt::Error> {
    let calls: u64 = bars.iter().map(|bar| bar.calls).sum();
    let title = format!("{title}: {} calls", grouped(calls));
    drawn(HISTOGRAM, |area| {
        text(area, &title, (4, HEAD / 2), HPos::Left, INK)?;
        let most = bars.iter().map(|bar| bar.calls).max().unwrap_or(0).max(1);
        let mut chart = ChartBuilder::on(area)
            .margin_top(HEAD)
            .margin_right(34)
            .x_label_area_size(26)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..bars.len().max(1) as f64, 0.0..most as f64)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().light_line_style(WHITE).bold_line_style(FAINT).axis_style(FAINT);
        mesh.label_style(style(INK)).x_labels(0).y_labels(4).y_label_formatter(&|value| short(*value)).draw()?;
        let bar = |(at, bar): (usize, &LatencyBar)| {
            let corners = [(at as f64 + 0.08, 0.0), (at as f64 + 0.92, bar.calls as f64)];
            Rectangle::new(corners, COLOURS[0].filled())
        };
        chart.draw_series(bars.iter().enumerate().map(bar))?;
        let (left, bottom) = chart.backend_coord(&(0.0, 0.0));
        let room = HISTOGRAM.0 as i32 - 34 - left;
        let step = bars.len().div_ceil((room / 56).max(1) as usize).max(1);
        for (at, bar) in bars.iter().enumerate().skip(step - 1).step_by(step) {
            let x = left + room * (at as i32 + 1) / bars.len() as i32;
            text(area, &time(bar.to_ns), (x, bottom + 14), HPos::Center, INK)?;
        }
        Ok(())
    })
}

fn drawn(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, fmt::Error> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    let drawn = area.fill(&WHITE).and_then(|()| draw(&area)).and_then(|()| area.present());
    drop(area);
    drawn.map(|()| svg).map_err(|_| fmt::Error)
}

fn text(area: &Area<'_>, text: &str, at: (i32, i32), anchor: HPos, colour: RGBColor) -> Drawn {
    area.draw(&Text::new(text.to_owned(), at, style(colour).pos(Pos::new(anchor, VPos::Center))))
}

fn style(colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", FONT).into_font().color(&colour)
}

/// A name as far as there is room for it.
fn cut(name: &str) -> String {
    let most = ((NAMES - 12) / LETTER) as usize;
    if name.chars().count() <= most {
        return name.to_owned();
    }
    name.chars().take(most - 1).chain(['…']).collect()
}

/// A number of an axis, in four or five letters.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    if scaled.fract().abs() < 0.05 { format!("{scaled:.0}{unit}") } else { format!("{scaled:.1}{unit}") }
}

/// A latency that ends a bar.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_an_axis_are_short() {
        let said = [0.0, 7.5, 100.0, 9_999.0, 12_000.0, 1_500_000.0, 2e9].map(short);
        assert_eq!(said, ["0", "7.5", "100", "9999", "12k", "1.5M", "2G"]);
        assert_eq!([255, 1_023, 1_048_575].map(time), ["255 ns", "1 µs", "1 ms"]);
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(cut("row 3"), "row 3");
        assert_eq!(cut(&"x".repeat(50)).chars().count(), 31);
    }
}
