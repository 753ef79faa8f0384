//! The public methods of each handle: one file for each type, in the order of its documentation
//! page.
//!
//! Rustdoc shows methods in the order of the source, so the methods of a type are together here.
//! Their longer bodies are in the module of their concept.

mod lease;
mod namespace;
mod prefix_cache;
mod reservation;
mod session;
