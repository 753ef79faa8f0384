//! Events, and listings of one moment.
//!
//! | file | holds |
//! |---|---|
//! | `events`, `draft` | what is told to those who listen, after and before it is copied |
//! | `subscribing` | their channels |
//! | `listing` | what was cached at one moment |

pub(in crate::cache) mod draft;
pub(in crate::cache) mod events;
pub(in crate::cache) mod listing;
pub(in crate::cache) mod subscribing;
