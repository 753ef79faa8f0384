//! The check of every invariant, and what it reports.
//!
//! | file | holds |
//! |---|---|
//! | `validate` | the check |
//! | `violation`, `diagnostics` | what it reports |

pub mod diagnostics;
pub(in crate::cache) mod validate;
pub(in crate::cache) mod violation;
