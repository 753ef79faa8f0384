//! The native module of the Python package `radixkv`: its classes, and the rules for Python's
//! memory, threads and forked processes.
//!
//! | file | holds |
//! |---|---|
//! | `cache` | the class `PrefixCache`, its constructor, and the state that its methods share |
//! | `lookup`, `reserve`, `control`, `observe` | the other methods of `PrefixCache` |
//! | `lease`, `reservation`, `namespace` | the handles that methods return and take |
//! | `waiting` | requests that wait for blocks without a thread, polled by an event loop |
//! | `host` | host tiers, caches over them, and movers, which copy between the two |
//! | `tiers` | settings of remote tiers, and how they are opened |
//! | `digests` | digest-keyed blocks: regions that processes share, and stores over them |
//! | `events`, `records`, `stats` | events, listings and statistics as Python tuples and dicts |
//! | `tokens`, `blocks`, `memory`, `integers` | arrays and buffers: tokens in, ids and slots out |
//! | `handle`, `fork` | handles that several threads use; handles in a forked child |
//! | `numbers`, `sequences` | integers and sequences as arguments |
//! | `errors`, `given` | exceptions; texts of the caller's objects in them |
//! | `replay`, `interrupt` | replays of traces; long calls that Ctrl-C ends |
//!
//! Invariants: no Python code runs inside a call into the core, except the mover of a host tier,
//! which copies the blocks that the call evicts. Every such call runs inside `errors::catch`, or on a
//! thread of `interrupt`.
//!
//! Each class with a reference to a Python object has `__traverse__`, so the garbage collector finds
//! dead cycles. Only `TieredCache` has `__clear__`: a handle gets its references when it is made, so
//! each cycle contains an object of the caller, which Python clears. Verbs work until the drop.
//! Memory in use by threads stays: see `memory::Export` and `DigestStore`.

mod blocks;
mod cache;
mod control;
mod digests;
mod errors;
mod events;
mod fork;
mod given;
mod handle;
mod host;
mod integers;
mod interrupt;
mod lease;
mod lookup;
mod memory;
mod namespace;
mod numbers;
mod observe;
mod records;
mod replay;
mod reservation;
mod reserve;
mod sequences;
mod stats;
mod tiers;
mod tokens;
mod waiting;

use pyo3::prelude::*;

/// The native module of radixkv: import `radixkv` instead.
#[pymodule(gil_used = false)]
fn _radixkv(module: &Bound<'_, PyModule>) -> PyResult<()> {
    fork::watch();
    module.add_class::<cache::PrefixCache>()?;
    module.add_class::<namespace::Namespace>()?;
    module.add_class::<lease::Lease>()?;
    module.add_class::<lease::PrefixMatch>()?;
    module.add_class::<lease::Inserted>()?;
    module.add_class::<lease::WeakLease>()?;
    module.add_class::<lease::PartialHit>()?;
    module.add_class::<reservation::Reservation>()?;
    module.add_class::<reservation::PendingCopy>()?;
    module.add_class::<events::Subscription>()?;
    module.add_class::<waiting::WakeQueue>()?;
    module.add_class::<waiting::Waiting>()?;
    module.add_class::<digests::DigestRegion>()?;
    module.add_class::<digests::DigestStore>()?;
    module.add_class::<digests::DigestRooms>()?;
    module.add_class::<digests::DigestSources>()?;
    host::add_to(module)?;
    module.add_function(wrap_pyfunction!(replay::replay, module)?)
}
