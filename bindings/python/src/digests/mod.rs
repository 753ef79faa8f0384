//! Digest-keyed blocks: a region that the processes of a host share, and stores over it with tiers
//! below.
//!
//! | file | holds |
//! |---|---|
//! | `region` | the class `DigestRegion` |
//! | `store`, `verbs` | the class `DigestStore`: how one is opened and closed; its verbs |
//! | `in_place` | the classes `DigestRooms` and `DigestSources`: blocks that a device copies |
//! | `arguments` | keys, buffers and addresses that a caller passes |
//! | `batch`, `batches` | one batch of blocks; those that were not handed out |
//! | `engine`, `below` | the threads that carry batches out; what a tier was asked for |
//! | `sealing` | the key of an encrypted namespace |
//! | `errors` | what is refused, as exceptions |
//!
//! `batch`, `batches`, `below` and `engine` know nothing of Python: no thread of a store ever waits for the
//! interpreter. What keeps a caller's memory alive is with the batch in `batches`, and dropped by
//! the thread that the batch is handed out to.

mod arguments;
mod batch;
mod batches;
mod below;
mod engine;
pub(crate) mod errors;
mod in_place;
mod region;
mod sealing;
mod store;
mod verbs;

pub(crate) use in_place::{DigestRooms, DigestSources};
pub(crate) use region::DigestRegion;
pub(crate) use store::DigestStore;
