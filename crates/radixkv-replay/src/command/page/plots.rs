//! Draws the plots of the page: lines over a trace and histograms of latencies as SVG, and named
//! bars as HTML elements.
//!
//! A plot has no background, and its colours are replaced if the page is dark ([`dark_style`]).
//! Lines are drawn twice, for wide and for narrow screens: in a picture that is scaled down, text
//! would be too small to read. No texts overlap: titles and legends are text of the page, and an
//! axis has only as many labels as fit.

use std::fmt;

use maud::{Markup, PreEscaped, html};
use plotters::{
    backend::SVGBackend,
    chart::ChartBuilder,
    coord::Shift,
    drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea},
    element::{Rectangle, Text},
    series::LineSeries,
    style::{
        Color, IntoFont, RGBColor, TRANSPARENT, TextStyle,
        text_anchor::{HPos, Pos, VPos},
    },
};
use radixkv_replay::replay::LatencyBar;

use crate::figures::grouped;

/// Class, size and maximum number of labels of a line plot, for wide and for narrow screens.
const LINES: [(&str, (u32, u32), usize); 2] = [("wide", (936, 220), 8), ("narrow", (350, 200), 4)];
/// Width and height of a histogram.
const HISTOGRAM: (u32, u32) = (306, 220);
/// Height of a histogram's title.
const HEAD: i32 = 26;
/// The font size in the backend's unit: 12 pixels.
const FONT: i32 = 15;
const INK: RGBColor = RGBColor(32, 36, 44);
const FAINT: RGBColor = RGBColor(213, 217, 226);
/// The colours of lines; bars have the first one.
const COLOURS: [RGBColor; 2] = [RGBColor(40, 96, 176), RGBColor(214, 106, 30)];
/// The replacement of each colour on a dark page.
const DARK: [(RGBColor, RGBColor); 4] = [
    (INK, RGBColor(226, 230, 238)),
    (FAINT, RGBColor(58, 64, 76)),
    (COLOURS[0], RGBColor(110, 168, 254)),
    (COLOURS[1], RGBColor(255, 166, 87)),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A line of a plot; the points are in the order of drawing.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// The CSS rules that replace colours on a dark page.
pub(super) fn dark_style() -> String {
    let rules = DARK.map(|(light, dark)| {
        let (light, dark) = (hex(light), hex(dark));
        format!("svg [fill=\"{light}\"]{{fill:{dark}}}svg [stroke=\"{light}\"]{{stroke:{dark}}}")
    });
    let keys =
        [COLOURS[0], COLOURS[1]].map(|light| DARK.iter().find(|pair| pair.0 == light).map_or(light, |pair| pair.1));
    rules.concat() + &key_style(keys)
}

/// The CSS rules for legends and bars.
pub(super) fn light_style() -> String {
    key_style(COLOURS)
}

fn key_style(colours: [RGBColor; 2]) -> String {
    let [first, second] = colours.map(hex);
    format!(".bar i,.key0{{background:{first}}}.key1{{background:{second}}}")
}

fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// A plot of lines over the requests, with a vertical axis from zero to `top`.
pub(super) fn lines(title: &str, lines: &[Line], top: f64) -> Result<Markup, fmt::Error> {
    let mut pictures = Vec::new();
    for (class, size, labels) in LINES {
        pictures.push((class, drawn(size, |area| draw_lines(area, lines, top, labels))?));
    }
    Ok(html! {
        figure {
            figcaption {
                b { (title) }
                @for (at, line) in lines.iter().enumerate() {
                    " " span class="key" { i class=(format!("key{at}")) {} (line.name) }
                }
            }
            @for (class, svg) in pictures { div class=(class) { (PreEscaped(svg)) } }
        }
    })
}

fn draw_lines(area: &Area<'_>, lines: &[Line], top: f64, labels: usize) -> Drawn {
    let ends = lines.iter().filter_map(|line| line.points.last()).map(|&(x, _)| x);
    let mut chart = ChartBuilder::on(area)
        .margin_top(10)
        .margin_right(28)
        .x_label_area_size(40)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..ends.fold(1.0, f64::max), 0.0..top.max(1.0))?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(TRANSPARENT).bold_line_style(FAINT).axis_style(FAINT);
    mesh.label_style(style(INK)).x_labels(labels).y_labels(5).x_desc("requests");
    mesh.x_label_formatter(&|value| short(*value)).y_label_formatter(&|value| short(*value)).draw()?;
    for (line, colour) in lines.iter().zip(COLOURS) {
        chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
    }
    Ok(())
}

/// A horizontal bar for each value, with its name and its value.
pub(super) fn bars(title: &str, bars: &[(String, u64)]) -> Markup {
    let longest = bars.iter().map(|bar| bar.1).max().unwrap_or(0).max(1);
    html! {
        figure {
            figcaption { b { (title) } }
            @for (name, value) in bars {
                div class="bar" {
                    span { (name) }
                    span { (super::count(*value)) }
                    i style=(format!("width:{:.1}%", 100.0 * *value as f64 / longest as f64)) {}
                }
            }
        }
    }
}

/// A histogram of calls by latency.
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
        mesh.disable_x_mesh().light_line_style(TRANSPARENT).bold_line_style(FAINT).axis_style(FAINT);
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
    let drawn = draw(&area).and_then(|()| area.present());
    drop(area);
    drawn.map(|()| svg).map_err(|_| fmt::Error)
}

fn text(area: &Area<'_>, text: &str, at: (i32, i32), anchor: HPos, colour: RGBColor) -> Drawn {
    area.draw(&Text::new(text.to_owned(), at, style(colour).pos(Pos::new(anchor, VPos::Center))))
}

fn style(colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", FONT).into_font().color(&colour)
}

/// A number on an axis, in at most about five characters.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e4.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    if scaled.fract().abs() < 0.05 { format!("{scaled:.0}{unit}") } else { format!("{scaled:.1}{unit}") }
}

/// The latency at the end of a bar.
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
}
