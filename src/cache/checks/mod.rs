//! The check of every invariant, and its report.
//!
//! | file | holds |
//! |---|---|
//! | `validate` | the check |
//! | `violation`, `diagnostics` | the report |

pub mod diagnostics;
pub(in crate::cache) mod validate;
pub(in crate::cache) mod violation;
