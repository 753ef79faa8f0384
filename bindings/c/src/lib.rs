//! The C interface of radixkv.
//!
//! `include/radixkv.h` is generated from this crate (`tests/header.rs` compares them) and is its
//! documentation; the crate is no interface for Rust. The body of each exported function runs in
//! `boundary::run`, which lets no panic out, and checks its arguments before it changes anything.
//!
//! A reference in the signature of an exported function stands for a pointer that the caller must
//! keep to: it is NULL, or points to what the header says. So most functions need no `unsafe`.

// The lines "Pointers:" say what an unsafe function wants; they also go into the header.
#![allow(clippy::missing_safety_doc)]
// C passes a buffer and its length apart.
#![allow(clippy::too_many_arguments)]

mod boundary;
mod builder;
mod cache;
mod events;
mod evicted;
mod external;
mod failure;
mod lease;
mod namespace;
mod reservation;
mod session;
mod settings;
mod stats;
mod status;
mod weak_lease;

/// What the header says of threads: handles may be used from any thread, and freed on any thread.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<builder::Builder>();
    shared::<cache::Cache>();
    shared::<events::Batch>();
    shared::<events::Subscription>();
    shared::<evicted::Evicted>();
    shared::<lease::Lease>();
    shared::<lease::PartialHit>();
    shared::<namespace::Namespace>();
    shared::<reservation::Copy>();
    shared::<reservation::Reservation>();
    shared::<session::Session>();
    shared::<weak_lease::WeakLease>();
};
