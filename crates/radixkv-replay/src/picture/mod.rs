//! Pictures of what a cache holds: its runs as an icicle, as a graph, and as text.
//!
//! A [`CacheTree`] is what is drawn. It is made from a trace ([`CacheTree::after`]), from a live cache ([`CacheTree::of`]; of some
//! prompts alone, [`CacheTree::of_prompts`]), or run by run ([`CacheTree::push`]). An [`Icicle`] lays it out: a
//! run is as wide as the blocks that it and everything after it hold, and stands below the run that it follows. Runs that
//! would be too narrow to see are drawn together, and the picture says how many.

mod cache_tree;
mod dot;
mod icicle;
mod label;
mod recency;
#[cfg(feature = "svg")]
mod svg;
mod text;

pub use cache_tree::{CacheTree, CachedRun};
pub use icicle::{Icicle, IcicleBox, Shown};
