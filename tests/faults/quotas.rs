//! A limit that is set while a request of its namespace is charged.

use std::thread;
use std::time::{Duration, Instant};

use radixkv::{BlockRequest, PrefixCache, Quota};

use crate::gate::{Gate, arm, as_victim};
use crate::stalls::Opening;

/// The refused request was charged before its namespace had a limit.
// Holds: QU7.
#[test]
fn a_refused_request_wakes_one_that_waits_for_a_limit_set_meanwhile() {
    let cache = PrefixCache::builder(4, 8).build().expect("sound");
    let tenant = cache.namespace(&["tenant"]);
    let held = cache.session().reserve(4).expect("free");
    let gate = Gate::default();
    let armed = arm("quota::charged", {
        let gate = gate.clone();
        move || gate.stop()
    });
    thread::scope(|scope| {
        let _opening = Opening(&gate);
        let reserve = |request: BlockRequest<'_>| cache.session().reserve(request).map(|blocks| blocks.len());
        let tenants = |blocks| BlockRequest::new(blocks).paid_by(&tenant);
        let refused = scope.spawn(move || as_victim(|| reserve(tenants(6))));
        gate.wait_for_arrival();
        tenant.set_quota(Quota::default().pinned_blocks(6));
        let waiting = scope.spawn(move || reserve(tenants(2).until(Instant::now() + Duration::from_secs(20))));
        while cache.stats().waiting_requests == 0 {
            thread::yield_now();
        }
        // It sleeps: 6 of 6 are charged.
        thread::sleep(Duration::from_millis(100));
        gate.open();
        assert!(refused.join().expect("no panic").is_err(), "4 are free");
        assert_eq!(waiting.join().expect("no panic"), Ok(2), "its namespace is charged for nothing");
    });
    drop((armed, held));
}
