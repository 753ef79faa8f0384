//! The C interface of radixkv.
//!
//! `include/radixkv.h` is generated from this crate (`tests/header.rs` compares them) and is its
//! documentation; Rust programs use the crate `radixkv` instead. Each exported function runs in
//! `boundary::run`, which catches panics, and checks its arguments before it changes anything.
//!
//! A reference in the signature of an exported function is a pointer in C. The caller guarantees
//! that it is NULL or points to a value of the type in the header, so that most functions need no
//! `unsafe`.

// The line "Pointers:" states the safety contract of an unsafe function; it is also in the header.
#![allow(clippy::missing_safety_doc)]
// C passes a buffer and its length as two arguments.
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

/// Checks a promise of the header: handles may be used and freed on any thread.
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
