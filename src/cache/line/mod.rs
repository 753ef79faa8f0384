//! Waiting for blocks in line, and reservations that another thread makes (flat combining).
//!
//! | file | holds |
//! |---|---|
//! | `wait_list` | the waiters, their order and their wake-ups |
//! | `waiter` | one waiter in the list |
//! | `in_line` | the state machine of a request that may wait |
//! | `waiting`, `acquiring` | futures that drive that state machine |
//! | `publications` | requests that the holder of the evictor's lock serves (flat combining) |
//!
//! A `reserve` without a deadline does not join the list: running sequences must be able to grow
//! while other requests wait to be admitted. Wakers are the caller's code, so they run under no
//! lock, not even the evictor's. A panic of a waker ends only its own wake-up, after the panic hook
//! has reported it.

#[cfg(feature = "async")]
pub(in crate::cache) mod acquiring;
pub(in crate::cache) mod in_line;
pub(in crate::cache) mod publications;
pub(in crate::cache) mod wait_list;
pub(in crate::cache) mod waiter;
#[cfg(feature = "async")]
pub(in crate::cache) mod waiting;
