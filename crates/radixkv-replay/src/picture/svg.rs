//! Draws an icicle as SVG.

use std::fmt;

use plotters::{
    backend::SVGBackend,
    coord::Shift,
    drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea},
    element::{Rectangle, Text},
    style::{
        Color, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE,
        text_anchor::{HPos, Pos, VPos},
    },
};

use super::{
    cache_tree::CacheTree,
    icicle::{Icicle, IcicleBox, Shown},
    label::grouped,
    recency,
};

/// Width of a picture, in pixels.
const WIDTH: u32 = 960;
/// Pixels to the left and to the right of the boxes.
const MARGIN: i32 = 10;
/// Height of the title.
const HEAD: i32 = 30;
/// Height of a level.
const LEVEL: i32 = 20;
/// Height of the legend and the remark below the boxes.
const FOOT: i32 = 48;
/// Runs narrower than this many pixels are drawn together.
const NARROWEST: usize = 3;
/// Pixels per colour of the legend's scale.
const STEP: usize = 4;
/// Maximum number of levels.
const LEVELS: usize = 30;
/// The font size in the backend's unit: 12 pixels.
const FONT: i32 = 15;
/// An upper bound for the mean width of a label's letters, in pixels.
const LETTER: f64 = 7.4;
const INK: RGBColor = RGBColor(32, 36, 44);
const LEASED: RGBColor = RGBColor(20, 60, 160);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl<'a> Icicle<'a> {
    /// The layout for an SVG picture: runs with at least three of its 960 pixels, on at most 30
    /// levels.
    #[must_use]
    pub fn for_svg(tree: &'a CacheTree) -> Self {
        let columns = (WIDTH as usize - 2 * MARGIN as usize) / NARROWEST;
        Self::new(tree, tree.blocks().div_ceil(columns), LEVELS)
    }

    /// The boxes as an SVG picture, 960 pixels wide: the more recent a use, the warmer the colour;
    /// leased runs have a blue bar, groups a pale frame.
    ///
    /// # Errors
    ///
    /// Fails if memory is short, or if a text cannot be drawn.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::picture::{CacheTree, Icicle};
    ///
    /// let mut tree = CacheTree::new(16);
    /// tree.push(0, 32, 7, 1);
    /// assert!(Icicle::for_svg(&tree).svg()?.starts_with("<svg"));
    /// # Ok::<_, std::fmt::Error>(())
    /// ```
    pub fn svg(&self) -> Result<String, fmt::Error> {
        let mut svg = String::new();
        let height = HEAD + LEVEL * self.levels() as i32 + FOOT;
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        let drawn = self.draw(&area).and_then(|()| area.present());
        drop(area);
        drawn.map(|()| svg).map_err(|_| fmt::Error)
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        area.fill(&WHITE)?;
        text(area, &self.title(), (MARGIN, HEAD / 2), HPos::Left)?;
        self.boxes().iter().try_for_each(|shown| self.draw_box(area, shown))?;
        self.draw_legend(area, HEAD + LEVEL * self.levels() as i32)
    }

    fn draw_box(&self, area: &Area<'_>, shown: &IcicleBox) -> Drawn {
        let scale = f64::from(WIDTH as i32 - 2 * MARGIN) / self.boxes()[0].blocks.max(1) as f64;
        let x = |blocks: usize| MARGIN + (blocks as f64 * scale).round() as i32;
        let (left, right) = (x(shown.left), x(shown.left + shown.blocks).max(x(shown.left) + 1));
        let top = HEAD + LEVEL * shown.level as i32;
        let [red, green, blue] = recency::colour(self.tree().recency(shown.last_use));
        let corners = [(left, top), (right, top + LEVEL)];
        area.draw(&Rectangle::new(corners, RGBColor(red, green, blue).filled()))?;
        area.draw(&Rectangle::new(corners, WHITE))?;
        if matches!(shown.shown, Shown::Group { .. }) && right - left > 6 {
            let inner = [(left + 2, top + 2), (right - 2, top + LEVEL - 2)];
            area.draw(&Rectangle::new(inner, ShapeStyle { color: WHITE.mix(0.8), filled: false, stroke_width: 2 }))?;
        }
        if shown.leases > 0 {
            area.draw(&Rectangle::new([(left + 1, top + LEVEL - 4), (right - 1, top + LEVEL - 1)], LEASED.filled()))?;
        }
        let room = f64::from(right - left - 8) / LETTER;
        let labels = self.labels(shown);
        match labels.iter().find(|label| label.chars().count() as f64 <= room) {
            Some(label) => text(area, label, (left + 5, top + LEVEL / 2 - 1), HPos::Left),
            None => Ok(()),
        }
    }

    /// Draws the scale of colours, the mark of leases, and the remark on grouped runs.
    fn draw_legend(&self, area: &Area<'_>, top: i32) -> Drawn {
        let (first, width, row) = (MARGIN + 210, 120, top + 14);
        let by = |moment: u64| format!("request {}", grouped(moment as usize));
        text(area, &format!("last use: {}", by(self.tree().oldest())), (first - 6, row), HPos::Right)?;
        for x in (0..width).step_by(STEP) {
            let [red, green, blue] = recency::colour(f64::from(x) / f64::from(width));
            let cell = [(first + x, row - 6), (first + x + STEP as i32, row + 6)];
            area.draw(&Rectangle::new(cell, RGBColor(red, green, blue).filled()))?;
        }
        text(area, &by(self.tree().now()), (first + width + 6, row), HPos::Left)?;
        let leased = first + width + 180;
        area.draw(&Rectangle::new([(leased, row + 1), (leased + 30, row + 4)], LEASED.filled()))?;
        text(area, "leased", (leased + 36, row), HPos::Left)?;
        self.remark().map_or(Ok(()), |remark| text(area, &remark, (MARGIN, row + 20), HPos::Left))
    }
}

fn text(area: &Area<'_>, text: &str, at: (i32, i32), anchor: HPos) -> Drawn {
    let style: TextStyle<'_> = ("sans-serif", FONT).into_font().color(&INK).pos(Pos::new(anchor, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))
}
