//! The tree: runs, points, and the protocols between threads that lease, insert and trim.
//!
//! ```text
//! space --> trunk --> root --token--> run --depth--> point --token--> run ...
//! ```
//!
//! A [`Run`] is an edge, a [`Point`] a depth on it. Nothing is ever split: where a sequence parts from a run, a point is
//! made and the rest of the sequence hangs under it. Two words guard everything, the point's (word.rs) and the run's
//! (run.rs); the queue (queue.rs) tells the evictor which points have changed.
//!
//! | file | holds |
//! |---|---|
//! | `word` | the point word, as a value and with its transitions |
//! | `point`, `run`, `arrays`, `space` | the nodes |
//! | `holdings` | a namespace over all its spaces: name, blocks, limits |
//! | `known` | the points of a run that the evictor knows |
//! | `points` | the points of a run, counted |
//! | `map` | children by token, points by depth |
//! | `marks` | priorities and overrides of a prefix |
//! | `anchor` | what a weak lease has of a point |
//! | `walk` | comparing tokens along runs |
//! | `lease` | creating, proving, leasing and releasing points |
//! | `nearest` | the block beyond a boundary with the longest common prefix |
//! | `fingerprint` | numbers for blocks, for statistics |
//! | `path`, `excerpt` | the blocks and tokens of a path, now; pieces of the tree to be read later |
//! | `insert` | publishing a run |
//! | `growth`, `pieces` | appending to a run in place; what was appended, for the evictor |
//! | `hot` | points that many threads lease at once |
//! | `queue` | points that have changed, for the evictor |
//!
//! Trimming is in `cache::evictor`: the evictor must also account for every point that it kills.
//!
//! # Invariants
//!
//! - **T1** The depth of a point, and parent, start and tokens of a run are fixed for life.
//! - **T2** Only the thread with the evictor's state shortens runs and kills proven points.
//! - **T3** At rest a run of length `L > 0` has exactly one live point at depth `L`. A run of length 0 stays dead.
//! - **T4** A point with a lease or a child is never killed; a run with a held point at `j` is never shorter than `j`.
//! - **T5** Leases and statistics lie at block boundaries; a mid-block point exists for its children alone.
//! - **T6** A run whose arrays show less than its length is in the evictor's list of hidden runs; nothing hangs, in a map, on a
//!   hidden point.
//! - **T7** A run that was shortened never grows again. Where a run goes on, no child hangs with the same token.

mod anchor;
mod arrays;
mod excerpt;
pub(crate) mod fingerprint;
mod growth;
mod holdings;
mod hot;
pub(crate) mod insert;
mod known;
pub(crate) mod lease;
mod map;
mod marks;
pub(crate) mod nearest;
pub(crate) mod path;
mod pieces;
mod point;
mod points;
mod queue;
mod run;
mod space;
mod walk;
mod word;

pub(crate) use anchor::Anchor;
pub(crate) use arrays::{Arrays, Piece};
pub(crate) use excerpt::{Excerpt, PieceId};
pub(crate) use holdings::Holdings;
pub(crate) use hot::{HotPoints, StripeRef};
pub(crate) use lease::{HeldLease, Ledger};
pub(crate) use marks::{Demotions, Marked};
pub(crate) use pieces::RankedPiece;
pub(crate) use point::{Point, PointAccount, Tally};
pub(crate) use queue::{Backlog, Queue};
#[cfg(test)]
pub(crate) use run::Beginning;
pub(crate) use run::{Run, RunAccount, RunWord};
pub(crate) use space::Space;
pub(crate) use walk::{Position, walk};
#[cfg(test)]
pub(crate) use word::Abandoned;
pub(crate) use word::{Snapshot, Word};

#[cfg(any(radixkv_loom, radixkv_shuttle))]
pub(crate) use {
    map::{Keyed, Map},
    word::{HotSlotId, Leased},
};
