//! The record of memory that callers gave to host tiers. It ensures that no two tiers of a process
//! use the same bytes.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::fork::Process;

static CLAIMED: Mutex<Vec<(Process, Range<usize>)>> = Mutex::new(Vec::new());

fn claimed() -> MutexGuard<'static, Vec<(Process, Range<usize>)>> {
    // Nothing panics while it is locked.
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Addresses that a tier uses. Dropped together with the tier's memory.
pub(super) struct Claim {
    process: Process,
    addresses: Range<usize>,
}

impl Claim {
    /// Claims the addresses; `None` if a tier of this process already uses some of them.
    pub(super) fn of(addresses: Range<usize>) -> Option<Self> {
        let (process, mut claimed) = (Process::current(), claimed());
        if claimed.iter().any(|(owner, used)| *owner == process && overlap(used, &addresses)) {
            return None;
        }
        claimed.push((process, addresses.clone()));
        Some(Self { process, addresses })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = claimed();
        let own = |(process, used): &(Process, Range<usize>)| *process == self.process && *used == self.addresses;
        if let Some(at) = claimed.iter().position(own) {
            claimed.swap_remove(at);
        }
    }
}
