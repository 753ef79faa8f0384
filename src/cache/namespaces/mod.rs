//! Trees that never share, and their limits.
//!
//! | file | holds |
//! |---|---|
//! | `namespace` | the registry, the public handle, emptying |
//! | `quota` | limits of namespaces |

pub(in crate::cache) mod namespace;
pub(in crate::cache) mod quota;
