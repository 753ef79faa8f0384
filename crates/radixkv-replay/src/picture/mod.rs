//! Draws what a cache holds: its runs as an icicle plot, as a graph, and as text.
//!
//! A [`CacheTree`] holds the data of a picture. It is made from a trace ([`CacheTree::after`]),
//! from a live cache ([`CacheTree::of`], or [`CacheTree::of_prompts`] for only some prompts), or
//! run by run ([`CacheTree::push`]). An [`Icicle`] lays it out: a run is as wide as the blocks of
//! itself and its descendants, and is drawn below its parent. Runs that would be too narrow to see
//! are drawn together, and the picture says how many.

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
