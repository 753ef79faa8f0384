#![doc = include_str!("../README.md")]
//!
//! # The protocol
//!
//! A region is one array of 64-bit words. Every access to it in every process is atomic, and each
//! part has one rule for which process may write it:
//!
//! | part | written by | read as |
//! |---|---|---|
//! | header | the process that made it, before any other can open it | authoritative |
//! | process slot | compare-and-swap: free to owner, dead owner to the process that recovers it, its owner to free | authoritative |
//! | tree of taken entries | any process (`taken`) | hints: where a put finds a free entry |
//! | clock | each process adds to it | where a search for room begins, and the age of blocks |
//! | cell | compare-and-swap by any process | a hint: the record decides |
//! | state of an entry | compare-and-swap by any process; while it is `WRITING`, by its owner | authoritative |
//! | record, tokens or label, bytes of an entry | the owner, while it is `WRITING` (the last use: any process) | to be confirmed by the state |
//! | namespace | compare-and-swap of its name decides which namespace it is; then each process that opens it writes the same words | authoritative |
//! | block counts of a namespace, of a process; charge of an entry | compare-and-swap by any process (`digest::charge`) | numbers to compare with quotas |
//!
//! **An entry** has room for one block: a state, a record (key, last use, expiry, checksum), tokens
//! or label, and bytes. *Cells* of the index lead from keys to entries. An entry is `FREE`,
//! `WRITING` by the process of a slot, or `READY` (`state`). Every claim increments its generation,
//! so if a state is seen twice, the entry was not claimed in between.
//!
//! - *Put*: check whether the block is present or being written; claim a free entry, or if there is
//!   none the least recently used of a sample; remove its old cell; write record and tokens; write a cell, unless
//!   another one already leads to the same key; write the bytes; write the record's checksum;
//!   publish.
//! - *Get*: for each cell of the key's buckets with its tag: load the state; compare the hash;
//!   compare the checksum, parent, namespace and tokens; copy; check that the state is unchanged.
//! - *Remove, evict*: claim the entry; remove its cell; give the entry back, or continue as in a
//!   put. The cell is removed while the caller owns the entry: later the same cell could belong to
//!   another put.
//! - *Recover*: for each slot whose owner is dead: take the slot over with one compare-and-swap, so
//!   that only one process recovers it and it has no new owner; give back each entry that is
//!   `WRITING` by that slot; free the slot. A process that dies during recovery is recovered in the
//!   same way.
//!
//! # Invariants
//!
//! - **I1** Record, tokens and bytes of an entry are written only by the process that claimed it,
//!   and only until that process publishes it or gives it back.
//! - **I2** An entry that is `READY` has the record, tokens and bytes of one put, and a checksum
//!   that fits its generation and the current boot of the machine.
//! - **I3** A slot has one owner, or one process that recovers it, and only that process owns the
//!   slot's entries in `WRITING`.
//! - **I4** A process is considered dead only if none of its threads can write again (`slots`).
//! - **I5** Every number read from the memory is checked against the layout before it is used as an
//!   offset or a length: no content makes a reader leave the memory or loop forever.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E1 | publishing | loading a state | the record, tokens and bytes that are read are those of the state, or later ones |
//! | E2 | the fence after a claim | the fence before the second load of the state | a reader that read a word of a later put sees that put's claim, and counts the copy as a miss |
//! | E3 | publishing, giving back | claiming | the previous owner's words are ordered before the next owner's, for every reader |
//! | E4 | writing a cell | reading cells | a thread that finds the cell finds the entry claimed, with its hash: it does not put the block a second time |
//! | E5 | freeing a slot | taking it, taking it over | the entries of the previous owner are given back before the next owner claims any |
//! | E6 | the header's magic | opening | a region that can be opened is complete |
//! | E7 | the hash of a written namespace | opening it | its texts and numbers are complete |
//! | E8 | the fence between a charge and the look at the epoch | the fence between a new epoch and the look at the charges | the put moves its charge, or the recovering process does |
//! | E9 | clearing a bit of the tree | setting it | a thread that sets a bit after another one cleared it sees why that was done, and clears it again |
//!
//! E1 and E2 are a seqlock. The bytes in between are copied by relaxed loads and stores of words,
//! never by plain ones, so a race is not a data race: a torn copy is a valid value, and is
//! discarded. On x86-64 the words are moved by vector instructions in inline assembly, which the
//! compiler does not analyse and which the processor executes in units of at least a word
//! (`lines`). Rust's memory model covers one process. That it also holds between processes relies
//! on 64-bit atomics being address-free, which lock-free atomics are on all processors that have
//! them (C++ requires it, \[atomics.lockfree\]). All stores of an ended process are done when the
//! kernel releases its locks or reports its pid as free; this is E3 for recovered entries.
//!
//! # Recovery
//!
//! | killed while | left behind | recovered by |
//! |---|---|---|
//! | making a file | an unlocked file beside the path | the next `create` |
//! | owning a slot | the slot of a dead owner | recover |
//! | removing the old cell after a claim | an entry in `WRITING`, perhaps with a cell | recover; the cell is dead or removed with the entry |
//! | writing record, cell, bytes | an entry in `WRITING`, with a cell once that is written | recover: cell, then entry |
//! | publishing | an entry in `WRITING`, or a complete block | recover, or nothing to do |
//! | removing, evicting | an entry in `WRITING` | recover |
//! | setting a bit of the tree | a bit that hides free entries | recover, or the next process that opens the region |
//! | recovering | a slot that a dead process was recovering | recover |
//! | reading | nothing | |
//! | opening a namespace | a name, a name and a hash, or some of its texts | the next process that opens it |
//! | charging or uncharging a block | a count that is one too large or too small | recover, which counts again |
//!
//! A cell whose entry holds another key is reused by the next put that needs a cell in its bucket;
//! until then each lookup may check it in vain. An entry without a cell is not found, grows old,
//! and is evicted.

mod copy;
mod counts;
mod digest;
mod entry;
mod geometry;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {
    #[doc = include_str!("../docs/digests.md")]
    pub mod digests {}
}
mod header;
mod index;
mod key;
mod layout;
#[cfg(all(target_arch = "x86_64", not(any(radixkv_loom, miri))))]
mod lines;
mod locks;
#[cfg(not(radixkv_loom))]
mod memory;
#[cfg(radixkv_loom)]
#[path = "memory_model.rs"]
mod memory;
mod process;
mod region;
#[cfg(feature = "encryption")]
mod seal;
#[cfg(not(feature = "encryption"))]
#[path = "unsealed.rs"]
mod seal;
mod slots;
mod state;
mod sync;
mod taken;

pub use counts::{Miss, Stats};
pub use digest::{
    BatchError, Census, DigestBlocks, DigestKey, DigestLayout, DigestObserver, DigestPut, DigestRegion, DigestRoom,
    DigestSource, KeyError, Namespace, NamespaceCensus, NamespaceError, Presence, ProcessCensus, Verified,
};
pub use header::OpenError;
pub use key::{Chain, Key, Token};
pub use layout::{Layout, LayoutError};
pub use memory::Memory;
#[cfg(radixkv_loom)]
pub use sync::model::explore_exact;

#[cfg(feature = "encryption")]
pub use seal::{NotOpened, SEAL_BYTES, Seal, SealError, SealKey};

pub use region::{Get, Put, PutError, PutRun, ReadError, Region, Reservation, Reserve, Source};
