//! Statistics of the traffic with remote tiers.

use crate::counter::Counter;

macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Statistics of the traffic between a host tier and its remote tiers since the tier was
        /// built.
        ///
        /// Each remote tier also has its own statistics
        /// ([`RemoteTier::stats`](radixkv_tiers::RemoteTier::stats)).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct RemoteStats {
            $($(#[$doc])* pub $field: u64,)*
            /// Blocks in flight to remote tiers.
            pub puts_in_flight: u64,
            /// Blocks in flight from remote tiers.
            pub gets_in_flight: u64,
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(super) $field: Counter,)* }

        impl Counters {
            pub(super) fn read(&self, puts_in_flight: u64, gets_in_flight: u64) -> RemoteStats {
                RemoteStats { $($field: self.$field.get(),)* puts_in_flight, gets_in_flight }
            }
        }
    };
}

counts! {
    /// Blocks that lookups requested.
    asked_blocks,
    /// Of those, blocks that a remote tier reported to have, up to the first missing one.
    found_blocks,
    /// Of those, blocks that were stored in the host.
    fetched_blocks,
    /// Blocks that were found but could not be read as they were put: expired, torn, wrong
    /// checksum.
    missed_blocks,
    /// Requested blocks for which a remote tier failed: not reachable, no answer in time, or left
    /// out.
    failed_blocks,
    /// Blocks that were found but not fetched, because the maximum number of blocks was in flight.
    full_blocks,
    /// How often a remote tier was left out for a while, after three unanswered requests in a row
    /// or an unanswered request after a pause.
    left_out_tiers,
    /// Lookups that requested nothing, because the maximum number of fetches was in progress.
    full_fetches,
    /// Fetches that were cancelled after their timeout.
    late_fetches,
    /// Blocks that were read but not stored in the host, because it had no room or their namespace
    /// was cleared meanwhile.
    lacking_blocks,
    /// Blocks that a remote tier stored.
    put_blocks,
    /// Blocks that a remote tier already had.
    present_blocks,
    /// Blocks that were not put, because the maximum number of blocks was in flight. The deepest
    /// blocks of a sequence are left out first.
    full_puts,
    /// Blocks that a remote tier did not store, or for which it did not answer in time or was left
    /// out.
    failed_puts,
    /// Blocks that were not put, or were removed again, because their namespace was cleared or kept
    /// out meanwhile, or that were not put because their time to live ended before.
    stale_puts,
}
