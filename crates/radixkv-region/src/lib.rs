#![doc = include_str!("../README.md")]
//!
//! # The protocol
//!
//! A region is one array of 64-bit words. Every access to it in every process is atomic, and each part has one rule for
//! which process may write it:
//!
//! | part | written by | read as |
//! |---|---|---|
//! | header | the process that made it, before any other can open it | the truth |
//! | process slot | compare-and-swap: free to owner, dead owner to the one that recovers, its owner to free | the truth |
//! | clock | each process adds to it | a place to look for room, and an age |
//! | cell | compare-and-swap by any process | a hint: the record decides |
//! | state of an entry | compare-and-swap by any process; while it is `WRITING`, by its owner | the truth |
//! | record, tokens or label, bytes of an entry | the owner, while it is `WRITING` (the last use: any process) | to be confirmed |
//! | namespace | compare-and-swap decides which it is; then each process that opens it writes the same | the truth |
//! | blocks of a namespace, of a process | each process adds to it | a number to compare with a quota |
//!
//! **An entry** is `FREE`, `WRITING` by the process of a slot, or `READY` (`state`). Every claim counts its generation
//! up by one, so a state that is seen twice was not left in between.
//!
//! - *Put*: look whether the block is there or on its way; claim an entry that is free, or the oldest of a few; take
//!   its old cell away; write record and tokens; write a cell, unless one leads to the same key by now; write the
//!   bytes; write the record's checksum; publish.
//! - *Get*: for each cell of the key's buckets with its tag: look at the state; compare the hash; compare the checksum,
//!   parent, namespace and tokens; copy; look whether the state is still the same.
//! - *Remove, evict*: claim; take the cell away; give back, or go on as in a put. The cell goes while the entry is the
//!   caller's: later the same cell could be another put's.
//! - *Recover*: for each slot whose owner is dead: take the slot over, in one compare-and-swap, so that there is one
//!   that recovers and no new owner; give back each entry that is `WRITING` by that slot; free the slot. A dead one
//!   that was recovering is recovered from in the same way.
//!
//! # Invariants
//!
//! - **I1** Record, tokens and bytes of an entry are written by the one process that claimed it, and only until it
//!   publishes it or gives it back.
//! - **I2** An entry that is `READY` has a record, tokens and bytes of one put, and a checksum that fits its generation
//!   and the life of the machine.
//! - **I3** A slot has one owner, or one process that recovers it, and its entries in `WRITING` are that one's.
//! - **I4** A process is taken for dead only if none of its threads can write again (`slots`).
//! - **I5** What is read follows no number of the memory beyond a comparison with the layout's: no content leads out of
//!   it or into a loop.
//!
//! # Orderings
//!
//! | edge | release | acquire | so that |
//! |---|---|---|---|
//! | E1 | publishing | looking at a state | the record, the tokens and the bytes that are read are those of the state, or later ones |
//! | E2 | the fence after a claim | the fence before the second look | a reader that read a word of a later put sees that put's claim, and takes the copy for a miss |
//! | E3 | publishing, giving back | claiming | the last owner's words come before the next owner's, for every reader |
//! | E4 | writing a cell | looking at cells | a thread that finds the cell finds the entry claimed, with its hash: it does not put the block too |
//! | E5 | freeing a slot | taking it, taking it over | the entries of the last owner are given back before the next owner claims any |
//! | E6 | the header's magic | opening | a region that can be opened is whole |
//! | E7 | the hash of a namespace that is written | opening it | its texts and numbers are whole |
//!
//! E1 and E2 are a seqlock. The bytes between are copied by relaxed loads and stores of words, never by plain ones, so
//! that a race is no data race: a torn copy is a value like any other, and is thrown away. On x86-64 the words are
//! moved by vector instructions that the compiler does not look into, which the processor does word by word at least
//! (`lines`). Rust's memory model is that of one process; that it holds between processes rests on its 64-bit atomics
//! being address-free, which lock-free atomics are on all processors that have them (C++ says so,
//! \[atomics.lockfree\]). A process that ended has done all of its stores when the kernel lets its locks go or says
//! that its pid is free; this is E3 for the entries that are taken back.
//!
//! # Killed anywhere
//!
//! | where | what is left | what gets it back |
//! |---|---|---|
//! | making a file | a file beside the path, without the lock of a maker | the next `create` |
//! | after taking a slot | a slot of a dead owner | recover |
//! | after a claim, with the old cell in place or not | an entry in `WRITING`, perhaps a cell that leads to it | recover; the cell is dead or goes with it |
//! | writing record, cell, bytes | the same, with a cell | recover: cell, then entry |
//! | after publishing | a whole block | nothing is missing |
//! | removing, evicting | an entry in `WRITING` | recover |
//! | recovering | a slot that a dead process was recovering | recover |
//! | reading | nothing | |
//! | opening a namespace | a name, a name and a hash, or some of its texts | the next one that opens the same namespace writes them |
//! | between charging a block and claiming its entry, or the other way round | a count that is one too large or too small | recover, which counts again |
//!
//! A cell whose entry holds another key is used again by the next put that needs a cell in its bucket; until then it
//! costs a look. An entry whose cell is gone is not found, ages, and is evicted.

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
