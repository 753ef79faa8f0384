//! Events for subscribers, and lists of the blocks that are cached at one moment.
//!
//! | file | holds |
//! |---|---|
//! | `events`, `draft` | batches of events, after and before their tokens are copied |
//! | `subscribing` | the subscribers' channels |
//! | `listing` | the blocks cached at one moment |

pub(in crate::cache) mod draft;
pub(in crate::cache) mod events;
pub(in crate::cache) mod listing;
pub(in crate::cache) mod subscribing;
