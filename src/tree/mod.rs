//! The prefix tree: its runs and points, and the protocols of threads that lease, insert and trim.
//!
//! ```text
//! space --> trunk --> root --token--> run --depth--> point --token--> run ...
//! ```
//!
//! A [`Run`] is an edge, a [`Point`] a depth on a run. Nothing is ever split: where a sequence
//! diverges from a run, a point is made, and the rest of the sequence becomes a run that is
//! attached to it. Two atomic words synchronize threads, the point word (word.rs) and the run word
//! (run.rs). Queues (queue.rs) tell the evictor which points have changed.
//!
//! `cache` calls this module: its sessions walk, lease and insert; its evictor drains the queue and
//! trims. Only the evictor accesses its accounts in the nodes (`OwnerCell`). `reclaim` frees the
//! nodes.
//!
//! | file | has |
//! |---|---|
//! | `word` | the point word, as a value and with its transitions |
//! | `point`, `run`, `arrays`, `space` | the nodes |
//! | `namespace_account` | a namespace over all its spaces: name, blocks, limits |
//! | `known` | the points of a run that the evictor knows |
//! | `points` | all points of a run, and a count of them |
//! | `map` | child runs by first token, points by depth |
//! | `marks` | priorities, demotions and requests to retain, by prefix |
//! | `anchor` | the link from a weak lease to its point |
//! | `walk` | comparing tokens along runs |
//! | `lease` | creating, proving, leasing and releasing points |
//! | `nearest` | the block beyond a boundary with the longest common prefix |
//! | `fingerprint` | hashes of blocks, for statistics only |
//! | `path`, `path_snapshot` | reading the blocks and tokens of a path at once, or later |
//! | `insert` | publishing a run |
//! | `growth`, `pieces` | appending to a run in place; how the evictor ranks the pieces |
//! | `hot` | points that many threads lease at once |
//! | `queue` | points that have changed, for the evictor |
//! | `shard` | the number of the evictor's shard that a run belongs to |
//!
//! Trimming is in `cache::evictor`: the evictor must also account for every point that it kills.
//!
//! # Invariants
//!
//! - **T1** The depth of a point, and the parent, start and tokens of a run never change.
//! - **T2** Only the thread that holds the lock of a run's shard shortens the run and kills its
//!   proven points.
//! - **T3** At rest a run of length `L > 0` has exactly one live point at depth `L`. A run of
//!   length 0 stays dead.
//! - **T4** A point with a lease or a child is never killed; a run with a proven, held point at `j`
//!   is never shorter than `j`.
//! - **T5** Leases and statistics are at block boundaries; a point inside a block exists only for
//!   its children.
//! - **T6** A run whose arrays show less than its length is in the evictor's list of hidden runs, and
//!   its space counts it; the map of a hidden point links no child run.
//! - **T7** A run that was shortened never grows again. Where a run continues with a token, no
//!   child run starts with it.

mod anchor;
mod arrays;
pub(crate) mod fingerprint;
mod growth;
mod hot;
pub(crate) mod insert;
mod known;
pub(crate) mod lease;
mod map;
mod marks;
mod namespace_account;
pub(crate) mod nearest;
pub(crate) mod path;
mod path_snapshot;
mod pieces;
mod point;
mod points;
mod queue;
mod run;
mod shard;
mod space;
mod walk;
mod word;

pub(crate) use anchor::Anchor;
pub(crate) use arrays::{Arrays, Piece};
pub(crate) use hot::{HotPoints, StripeRef};
pub(crate) use known::PointTable;
pub(crate) use lease::{HeldLease, LeaseContext};
pub(crate) use marks::{Demotions, Marked};
pub(crate) use namespace_account::NamespaceAccount;
pub(crate) use path_snapshot::{PathSnapshot, PieceId};
pub(crate) use pieces::RankedPiece;
pub(crate) use point::{Point, PointAccount, Tally};
pub(crate) use points::sort_by_depth;
pub(crate) use queue::{Backlog, Queues};
#[cfg(test)]
pub(crate) use run::Beginning;
pub(crate) use run::{Run, RunAccount, RunWord};
pub(crate) use shard::{MOST_SHARDS, ShardCount, ShardId};
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
