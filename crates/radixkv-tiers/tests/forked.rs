//! A process that was forked has none of a tier's threads: every call says so, and dropping the
//! tier waits for nothing.
#![allow(unsafe_code)]

mod common;

use std::time::Duration;

use common::{Bytes, blocks, get_all, layout, put, put_all};
#[cfg(feature = "region")]
use radixkv_tiers::RegionTier;
use radixkv_tiers::{FileTier, Refusal, RemoteTier, Tier};

/// What the child sees; the bits that are set did not hold.
fn in_the_child(tier: impl RemoteTier<Bytes>) -> i32 {
    let layout = tier.layout().clone();
    let all = blocks(&layout, 1);
    let is_forked = |refusal| matches!(refusal, Refusal::Forked { opened_by, here } if opened_by != here);
    let held = [
        tier.put_from(vec![put(&all[0], &layout, None)]).is_err_and(|refused| is_forked(refused.reason)),
        tier.contains(vec![all[0].key()]).is_err_and(|refused| is_forked(refused.reason)),
        tier.poll(&mut Vec::new(), Duration::from_secs(600)) == 0,
        (tier.stats().stored_blocks, tier.stats().in_flight) == (1, 0),
    ];
    drop(tier);
    held.iter().enumerate().map(|(bit, held)| i32::from(!held) << bit).sum()
}

/// Calls the tier in a forked process, and returns it in this one.
fn forked<T: RemoteTier<Bytes>>(tier: T) -> T {
    // SAFETY: the child calls the tier and ends without returning to the test's harness.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: ends the child if it hangs.
        unsafe { libc::alarm(30) };
        let code = in_the_child(tier);
        // SAFETY: ends the process.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `status` is there to be written.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    tier
}

// Holds: RT9.
#[test]
fn a_forked_process_is_refused() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 64));
    let tier: Tier<Bytes> = FileTier::new(folder.path(), layout.clone(), 1 << 20)
        // Longer than the child may take: dropping the tier there waits for nothing.
        .timeout(Duration::from_secs(3600))
        .open()
        .unwrap();
    let all = blocks(&layout, 1);
    put_all(&tier, &all, None);
    let tier = forked(tier);
    assert_eq!(get_all(&tier, &all), [Ok(())]);
}

// Holds: RT9.
#[cfg(feature = "region")]
#[test]
fn a_forked_process_gets_no_completion_of_a_region() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 64));
    let tier = RegionTier::open_or_create(folder.path().join("region"), layout.clone(), 8).unwrap();
    tier.put_from(vec![put(&blocks(&layout, 1)[0], &layout, None)]).unwrap();
    let tier = forked(tier);
    assert_eq!(tier.poll(&mut Vec::new(), Duration::ZERO), 1);
}
