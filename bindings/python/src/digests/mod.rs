//! Digest-keyed blocks: a shared-memory region for the processes of a host, and stores that use it
//! together with tiers below.
//!
//! | file | holds |
//! |---|---|
//! | `region` | the class `DigestRegion` |
//! | `store`, `verbs` | the class `DigestStore`: opening and closing; its other methods |
//! | `in_place` | the classes `DigestRooms` and `DigestSources`: blocks that a device copies |
//! | `arguments` | conversion of keys, buffers and addresses that a caller passes |
//! | `batch`, `batches` | one batch of blocks; the batches that were not returned yet |
//! | `engine`, `below` | the threads that execute batches; a tier and its pending requests |
//! | `sealing`, `seals` | the key of an encrypted namespace; how often it was used |
//! | `errors` | errors as exceptions |
//!
//! `batch`, `batches`, `below` and `engine` do not use Python, so no thread of a store ever waits
//! for the GIL. `batches` keeps the owner of a caller's memory together with the batch; the thread
//! that receives the batch drops the owner.

mod arguments;
mod batch;
mod batches;
mod below;
mod engine;
pub(crate) mod errors;
mod in_place;
mod region;
mod sealing;
#[cfg(feature = "encryption")]
mod seals;
mod store;
mod verbs;

pub(crate) use in_place::{DigestRooms, DigestSources};
pub(crate) use region::DigestRegion;
pub(crate) use store::DigestStore;
