//! Weak leases: a prefix that is matched now and leased later, without protecting it in between.
#![allow(unsafe_code)]

use crate::boundary::{Owner, free, given, new_handle, run};
use crate::lease::Lease;
use crate::session::Session;
use crate::status::Status;
use std::mem::MaybeUninit;

/// Refers to a prefix without protecting it: `radixkv_session_upgrade` leases the prefix if it is
/// still cached. It keeps neither blocks nor the cache alive.
pub struct WeakLease {
    core: radixkv::WeakLease,
    owner: Owner,
}

/// Creates a weak lease on the prefix of a lease.
///
/// Threads: any; never waits.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_lease_downgrade(
    lease: Option<&Lease>,
    weak: Option<&mut MaybeUninit<Option<Box<WeakLease>>>>,
) -> Status {
    run(|| {
        let weak = new_handle(weak, "weak")?;
        let lease = given(lease, "lease")?;
        *weak = Some(Box::new(WeakLease { core: lease.core.downgrade(), owner: lease.owner }));
        Ok(())
    })
}

/// Leases the prefix of a weak lease; `lease` is NULL if any of its blocks is gone, or it is empty.
/// Does not count as a use.
///
/// Errors: OTHER_CACHE.
///
/// Threads: one at a time for each session; never waits.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_session_upgrade(
    session: Option<&Session>,
    weak: Option<&WeakLease>,
    lease: Option<&mut MaybeUninit<Option<Box<Lease>>>>,
) -> Status {
    run(|| {
        let lease = new_handle(lease, "lease")?;
        let (session, weak) = (given(session, "session")?, given(weak, "weak")?);
        weak.owner.check(session.owner, "weak")?;
        let found = session.core.enter("session")?.upgrade(&weak.core);
        *lease = found.map(|core| Box::new(Lease { core, owner: weak.owner }));
        Ok(())
    })
}

/// Frees a weak lease. NULL is allowed.
///
/// Threads: no other thread may use it from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_weak_lease_free(weak: Option<Box<WeakLease>>) {
    free(weak);
}
