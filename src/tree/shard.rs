//! Ids of shards. A run always belongs to the shard of the session that inserted it.

use crate::sync::model_size;

/// The most shards of a cache.
pub(crate) const MOST_SHARDS: usize = model_size(256, 2);

/// The number of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ShardId(u16);

/// How many shards a cache has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardCount(u16);

impl ShardId {
    /// The shard of roots, and of all runs if it is the only one.
    pub(crate) const FIRST: Self = Self(0);

    pub(crate) fn at(index: usize) -> Self {
        Self(index as u16)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

impl ShardCount {
    /// `shards` is at least one, and at most [`MOST_SHARDS`].
    pub(crate) fn new(shards: usize) -> Self {
        Self(shards as u16)
    }

    pub(crate) fn get(self) -> usize {
        self.0.into()
    }

    pub(crate) fn all(self) -> impl Iterator<Item = ShardId> {
        (0..self.0).map(ShardId)
    }

    /// The shard of the session with this number.
    pub(crate) fn of(self, session: usize) -> ShardId {
        ShardId((session % self.get()) as u16)
    }
}
