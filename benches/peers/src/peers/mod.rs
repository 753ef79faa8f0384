//! The contenders that are not in `radixkv bench`.

pub(crate) mod background;
pub(crate) mod chain_index;
pub(crate) mod compressed;
pub(crate) mod kvbm;
pub(crate) mod radix_tree;
pub(crate) mod router;
pub(crate) mod sharded;
pub(crate) mod shared;
pub(crate) mod token_tree;
