//! When a block is copied to the tier below.

/// When a block is copied to the tier below: write-back or write-through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WritePolicy {
    /// Copies a block when the upper tier evicts it: the fewest copies.
    #[default]
    Back,
    /// Copies a block when it is stored in the upper tier: evicting copies nothing, and other
    /// caches find it below at once. To the host tier only with
    /// [`TierMode::Shared`](crate::TierMode::Shared).
    Through,
}
