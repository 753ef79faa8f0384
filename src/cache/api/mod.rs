//! The public methods of each handle: one file a type, in the order of its page.
//!
//! A page of documentation shows methods in the order of the source, so they stand together here. The bodies are in the
//! files of their concepts.

mod lease;
mod namespace;
mod prefix_cache;
mod reservation;
mod session;
