//! Validation: checks every invariant of a cache, and reports the first broken one.
//!
//! | file | holds |
//! |---|---|
//! | `validate` | the checks |
//! | `violation` | the report |

pub(in crate::cache) mod validate;
pub(in crate::cache) mod violation;
