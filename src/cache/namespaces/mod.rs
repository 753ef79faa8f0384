//! Namespaces: trees that never share blocks, and their limits.
//!
//! | file | holds |
//! |---|---|
//! | `namespace` | the registry, the public handle, clearing and removing |
//! | `quota` | limits of namespaces, and charging them for blocks |

pub(in crate::cache) mod namespace;
pub(in crate::cache) mod quota;
