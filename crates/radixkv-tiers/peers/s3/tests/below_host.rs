//! S3 below a host tier, with a server that fails in every way, is killed and starts empty: hits
//! are lost, and nothing else.

#[path = "../../../../radixkv-host/tests/common/mod.rs"]
mod common;
mod proxy;
mod server;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use common::{Engine, PATIENCE, host, layout, prompt};
use proxy::{FAULTS, Fault, Proxy};
use radixkv_host::{RemoteWait, TierMode, radixkv_tiers::RemoteTier};
use server::Server;

#[test]
fn a_store_that_fails_in_every_way_costs_hits_and_nothing_else() {
    let mut server = Server::start();
    let proxy = Proxy::before(server.port());
    let store = Arc::new(server::open(proxy.port(), &layout(), Duration::from_millis(500)).unwrap());
    let host = host(8).staging(16).remote(Arc::clone(&store)).remote_timeout(Duration::from_secs(2)).build().unwrap();
    let engine = Engine::waiting(12, &host, TierMode::Exclusive, RemoteWait::UpTo(Duration::from_millis(300)));
    let (stop, fetched, served) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let work = |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        while !stop.load(Relaxed) {
            // The bytes of all that is found are compared.
            let found = engine.serve_in(&engine.tiers.session(), &engine.space(), &prompt(rng.u32(0..12), 4));
            fetched.fetch_add(found.map_or(0, |found| found.2 as u64), Relaxed);
            served.fetch_add(1, Relaxed);
        }
    };
    thread::scope(|scope| {
        let workers = [1, 2].map(|seed| scope.spawn(move || work(seed)));
        let reached = |what: &str, is_so: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !is_so() && !workers.iter().any(|worker| worker.is_finished()) {
                let said = || format!("{what}: {:?}, {:?}", store.stats(), host.remote_stats());
                assert!(began.elapsed() < PATIENCE, "{}", said());
                thread::sleep(Duration::from_millis(5));
            }
        };
        let hits = |what: &str| {
            let before = fetched.load(Relaxed);
            reached(what, &|| fetched.load(Relaxed) > before + 60);
        };
        hits("hits before all faults");
        for fault in FAULTS.into_iter().filter(|&fault| fault != Fault::None) {
            let (before, stats) = (served.load(Relaxed), store.stats());
            let (failed, missed) = (stats.errors.total(), stats.misses.total() - stats.misses.absent);
            proxy.set(fault);
            reached(&format!("{fault:?}: counted"), &|| {
                let stats = store.stats();
                stats.errors.total() + stats.misses.total() - stats.misses.absent > failed + missed
            });
            reached(&format!("{fault:?}: requests go on"), &|| served.load(Relaxed) > before + 20);
            proxy.set(Fault::None);
            hits(&format!("hits after {fault:?}"));
        }
        server.restart();
        hits("hits after a restart without anything");
        stop.store(true, Relaxed);
    });
    assert!(host.settle_remote(PATIENCE), "{:?}", host.remote_stats());
    let (stats, counts) = (store.stats(), host.remote_stats().unwrap());
    println!("{stats:?}\n{counts:?}");
    assert!(stats.misses.wrong_checksum > 0 && stats.errors.panicked == 0, "{stats:?}");
    let began = Instant::now();
    while host.remote_stats().is_some_and(|counts| counts.puts_in_flight + counts.gets_in_flight > 0) {
        assert!(began.elapsed() < PATIENCE, "{:?}", host.remote_stats());
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(host.stats().pinned_blocks + host.stats().reserved_blocks, 0);
    host.validate().unwrap();
}
