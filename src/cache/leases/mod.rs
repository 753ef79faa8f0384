//! Leases, and the marks that a session puts on a leased prefix.
//!
//! | file | holds |
//! |---|---|
//! | `lease` | a lease, and a match with its lease |
//! | `weak_lease` | a prefix to be leased later |
//! | `sharing` | how many leases of a set hold each block |
//! | `owner` | checks that handles belong to the session's cache |
//! | `strong_ref` | the counted reference in each handle, which keeps the cache alive |
//! | `retention`, `priority` | marks on a leased prefix: keep it until a deadline, its priority |

pub(in crate::cache) mod lease;
pub(in crate::cache) mod owner;
pub(in crate::cache) mod priority;
pub(in crate::cache) mod retention;
pub(in crate::cache) mod sharing;
pub(in crate::cache) mod strong_ref;
pub(in crate::cache) mod weak_lease;
