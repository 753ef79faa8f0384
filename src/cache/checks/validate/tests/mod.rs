//! `validate` against healthy caches in many states, and against planted corruption.

mod bed;
mod healthy;
// A corrupt cache is leaked, which Miri would report.
#[cfg(not(miri))]
mod planted;
