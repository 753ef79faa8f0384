//! Draws an icicle as a graph for Graphviz.

use super::{
    cache_tree::CacheTree,
    icicle::{Icicle, Shown},
    recency,
};

/// Maximum number of runs with their own node.
const NODES: usize = 150;
/// Maximum number of levels.
const LEVELS: usize = 40;

impl<'a> Icicle<'a> {
    /// The layout for a graph: the 150 largest runs, on at most 40 levels.
    #[must_use]
    pub fn for_dot(tree: &'a CacheTree) -> Self {
        Self::of_largest(tree, NODES, LEVELS)
    }

    /// The boxes as a graph in the language of Graphviz (`dot -Tsvg`): leased runs have a double
    /// border, groups a dashed one.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::picture::{CacheTree, Icicle};
    ///
    /// let mut tree = CacheTree::new(16);
    /// tree.push(0, 32, 7, 1);
    /// let dot = Icicle::for_dot(&tree).dot();
    /// assert!(dot.starts_with("digraph") && dot.contains("b0 -> b1"), "{dot}");
    /// ```
    #[must_use]
    pub fn dot(&self) -> String {
        let mut lines = vec!["digraph cache {".to_owned()];
        lines.push("  rankdir = LR; node [shape = box, fontname = \"sans-serif\"];".to_owned());
        let title = self.remark().map_or(self.title(), |remark| format!("{}\\n{remark}", self.title()));
        lines.push(format!("  label = \"{title}\";"));
        for (at, shown) in self.boxes().iter().enumerate() {
            let [red, green, blue] = recency::colour(self.tree().recency(shown.last_use));
            let style = if matches!(shown.shown, Shown::Group { .. }) { "filled,dashed" } else { "filled" };
            let borders = if shown.leases > 0 { 2 } else { 1 };
            let [full, middle, _] = self.labels(shown);
            let label = if matches!(shown.shown, Shown::Run(1..)) { format!("{full}\\n{middle}") } else { full };
            let colour = format!("#{red:02x}{green:02x}{blue:02x}");
            lines.push(format!(
                "  b{at} [label = \"{label}\", style = \"{style}\", fillcolor = \"{colour}\", peripheries = {borders}];"
            ));
            if at > 0 {
                lines.push(format!("  b{} -> b{at};", shown.parent));
            }
        }
        lines.push("}\n".to_owned());
        lines.join("\n")
    }
}
