//! Leases, and what a session may ask for the prefix of one.
//!
//! | file | holds |
//! |---|---|
//! | `lease` | a lease, and a match with one |
//! | `weak_lease` | a prefix to be leased later |
//! | `sharing` | how many leases of a set hold a block |
//! | `owner` | checks of the handles that a session is given |
//! | `strong_ref` | the counted reference in each handle, which keeps the cache alive |
//! | `retention`, `priority`, `uses` | what may be asked for the prefix of a lease: to stay until a deadline, priorities, recency or frequency alone |

pub(in crate::cache) mod lease;
pub(in crate::cache) mod owner;
pub(in crate::cache) mod priority;
pub(in crate::cache) mod retention;
pub(in crate::cache) mod sharing;
pub(in crate::cache) mod strong_ref;
pub(in crate::cache) mod uses;
pub(in crate::cache) mod weak_lease;
