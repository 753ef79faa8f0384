//! When a block is copied to the tier below.

/// When a block is copied to the tier below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WritePolicy {
    /// When the upper tier evicts it: the fewest copies.
    #[default]
    Back,
    /// When it comes to the upper tier: evicting copies nothing, and others find it below at once. To the host tier only with
    /// [`TierMode::Shared`](crate::TierMode::Shared).
    Through,
}
