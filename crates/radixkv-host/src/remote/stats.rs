//! What a host tier counts of the remote ones.

use crate::counter::Counter;

macro_rules! counts {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Statistics of the traffic between a host tier and its remote tiers since the tier was
        /// built.
        ///
        /// Each tier counts its own side too ([`RemoteTier::stats`](radixkv_tiers::RemoteTier::stats)).
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
    /// Blocks that lookups asked for.
    asked_blocks,
    /// Of those, blocks that a remote tier said it has, with all before them.
    found_blocks,
    /// Of those, blocks that came to the host.
    fetched_blocks,
    /// Blocks that were found and not there, or not as they were put: expired, torn, a wrong checksum.
    missed_blocks,
    /// Blocks that were asked for, and a remote tier failed: not reachable, no answer in time, left out.
    failed_blocks,
    /// Blocks that were found and not fetched, because as many were on their way as may be.
    full_blocks,
    /// Times that a remote tier was left out for a while, because it had left three requests unanswered, or the one that it got
    /// after such a while.
    left_out_tiers,
    /// Lookups that did not ask, because as many fetches were under way as may be.
    full_fetches,
    /// Fetches that were given up when their time was over.
    late_fetches,
    /// Blocks that came, and for which the host had no room, or whose namespace was cleared meanwhile.
    lacking_blocks,
    /// Blocks that a remote tier took.
    put_blocks,
    /// Blocks that it had already.
    present_blocks,
    /// Blocks that left the host and were not put, because as many were on their way as may be; those of a sequence's end before
    /// those of its beginning.
    full_puts,
    /// Blocks that a remote tier did not take, or about which it gave no answer in time or was left out.
    failed_puts,
    /// Blocks that were not put, or removed again, because their namespace was cleared or kept out meanwhile.
    stale_puts,
}
