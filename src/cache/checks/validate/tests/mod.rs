//! `validate` against healthy caches in many states, and against planted corruption.

mod bed;
mod healthy;
// It reads sources, which Miri does not allow.
#[cfg(not(miri))]
mod kinds;
// A corrupt cache is leaked, which Miri would report.
#[cfg(not(miri))]
mod planted;
