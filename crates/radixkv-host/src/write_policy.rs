//! Write policies of a tier.

/// When a block is copied to the tier below: write-back or write-through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WritePolicy {
    /// Copies a block when the upper tier evicts it: the fewest copies.
    #[default]
    Back,
    /// Copies a block when it is stored in the upper tier: evicting then copies nothing, and other
    /// caches find it in the lower tier at once. For the host tier this needs
    /// [`TierMode::Shared`](crate::TierMode::Shared).
    Through,
}
