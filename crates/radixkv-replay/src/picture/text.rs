//! Draws an icicle as text: one line for each box, indented by its level.

use super::{
    cache_tree::CacheTree,
    icicle::{Icicle, Shown},
    label::grouped,
};

/// Maximum number of runs with their own line.
const LINES: usize = 40;
/// Maximum number of levels.
const LEVELS: usize = 20;
/// Width in characters of the bar that shows how recent a use is.
const BAR: usize = 5;

impl<'a> Icicle<'a> {
    /// The layout for text: the 40 largest runs, on at most 20 levels.
    #[must_use]
    pub fn for_text(tree: &'a CacheTree) -> Self {
        Self::of_largest(tree, LINES, LEVELS)
    }

    /// The boxes as lines of at most `width` characters; a width below 40 counts as 40.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::picture::{CacheTree, Icicle};
    ///
    /// let mut tree = CacheTree::new(16);
    /// let shared = tree.push(0, 32, 7, 0);
    /// tree.push(shared, 4, 7, 1);
    /// let text = Icicle::for_text(&tree).text(80);
    /// assert!(text.contains("tokens 512-576, 1 lease"), "{text}");
    /// ```
    #[must_use]
    pub fn text(&self, width: usize) -> String {
        let width = width.max(40);
        let mut lines = vec![self.title()];
        lines.push(format!("{:>6} {:>10}  {:<BAR$}  what", "share", "blocks", "used"));
        for shown in self.boxes() {
            let share = 100.0 * shown.blocks as f64 / self.boxes()[0].blocks.max(1) as f64;
            let used = self.bar(shown.last_use);
            let indent = " ".repeat(shown.level);
            let mark = if matches!(shown.shown, Shown::Group { .. }) { "+ " } else { "" };
            let begin = format!("{share:>5.1}% {:>10}  {used}  {indent}{mark}", grouped(shown.blocks));
            let room = width.saturating_sub(begin.chars().count());
            let labels = self.labels(shown);
            let label = labels.iter().find(|label| label.chars().count() <= room);
            lines.push(format!("{begin}{}", label.map_or("", |label| label)).trim_end().to_owned());
        }
        let (oldest, now) = (grouped(self.tree().oldest() as usize), grouped(self.tree().now() as usize));
        lines.push(format!("used: {} by request {now}, {} by request {oldest}", "#".repeat(BAR), ".".repeat(BAR)));
        lines.extend(self.remark());
        lines.iter().flat_map(|line| wrapped(line, width)).map(|line| line + "\n").collect()
    }

    /// The more recent a use, the more cells are filled.
    fn bar(&self, last_use: u64) -> String {
        let share = self.tree().recency(last_use);
        let filled = ((share * BAR as f64).round() as usize).min(BAR);
        "#".repeat(filled) + &".".repeat(BAR - filled)
    }
}

/// Wraps a line at spaces.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            let blank = if lines[last].is_empty() { "" } else { " " };
            lines[last] += blank;
            lines[last] += word;
        }
    }
    lines
}
