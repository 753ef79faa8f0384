//! Waiting for blocks in line, and having another thread take them.
//!
//! | file | holds |
//! |---|---|
//! | `wait_list` | who waits, in which order, and who wakes them |
//! | `waiter` | one place in the list |
//! | `in_line` | the state machine of a request that may wait |
//! | `waiting`, `acquiring` | futures that it drives |
//! | `publications` | requests that another thread serves in its turn (flat combining) |
//!
//! A `reserve` without a deadline does not join the list: running requests must be able to grow
//! while others wait to be admitted. Wakers are the caller's code and run under no lock, not even
//! the evictor's. A panic of a waker ends with its own wake-up, after the panic hook has reported
//! it.

#[cfg(feature = "async")]
pub(in crate::cache) mod acquiring;
pub(in crate::cache) mod in_line;
pub(in crate::cache) mod publications;
pub(in crate::cache) mod wait_list;
pub(in crate::cache) mod waiter;
#[cfg(feature = "async")]
pub(in crate::cache) mod waiting;
