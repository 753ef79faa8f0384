//! The C interface of radixkv.
//!
//! `include/radixkv.h` is generated from this crate (tests/header.rs compares them) and is its documentation; the crate is
//! no interface for Rust. Each exported function runs inside [`boundary::run`], which checks nothing and lets no panic out;
//! the function checks its arguments before it changes anything.
//!
//! The contract of every pointer: NULL, or what the header says. A reference in a signature stands for such a pointer.

mod boundary;
mod builder;
mod cache;
mod events;
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
