//! Redis below the host tier: a server that is killed and started again in the middle of the work
//! costs hits, and nothing else.

mod common;
#[path = "../../radixkv-tiers/tests/redis/server.rs"]
#[allow(dead_code, reason = "these tests use a part")]
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
use radixkv_host::{
    HostTier, RemoteStats, RemoteWait, TierMode,
    radixkv_tiers::{RedisTier, RemoteTier, Tier},
};
use server::Real;

type Redis = Arc<Tier<Vec<u8>>>;

fn redis(server: &Real) -> Redis {
    let tier = RedisTier::new(server.url(), "kv", layout()).timeout(Duration::from_millis(200));
    Arc::new(tier.open().expect("the server answers"))
}

/// A host tier of eight blocks over Redis.
fn over(redis: &Redis) -> HostTier {
    host(8).staging(16).remote(Arc::clone(redis)).remote_timeout(Duration::from_secs(1)).build().expect("a tier")
}

fn remote(host: &HostTier) -> RemoteStats {
    host.remote_stats().expect("it has a remote tier")
}

/// Goes on until something is so; checks meanwhile that nothing has failed.
fn until(what: &str, stats: &dyn Fn() -> String, is_so: &dyn Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: {}", stats());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_left_the_host_is_found_in_redis_by_another_process() {
    let Some(server) = Real::start(&[]) else { return };
    let prompts = [1, 2, 3, 4, 5, 6].map(|number| prompt(number, 4));
    let serve = || {
        let host = over(&redis(&server));
        let engine = Engine::new(4, &host, TierMode::Exclusive);
        let found = prompts.each_ref().map(|prompt| engine.serve(prompt).2);
        assert!(host.settle_remote(PATIENCE), "{:?}", remote(&host));
        found
    };
    assert_eq!(serve(), [0; 6]);
    // Those that had left the first host when it ended.
    let found = serve();
    assert_eq!(found[..3], [16; 3], "{found:?}");
}

/// Two threads serve while the server is killed and started again: no wrong byte, no call that
/// waits longer than it says, hits again after it, and every block and buffer back.
// Holds: HT19.
#[test]
fn a_server_that_is_killed_and_restarted() {
    let Some(mut server) = Real::start(&[]) else { return };
    let redis = redis(&server);
    let host = over(&redis);
    let engine = Engine::waiting(12, &host, TierMode::Exclusive, RemoteWait::UpTo(Duration::from_millis(100)));
    let (stop, fetched, served) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let work = |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        while !stop.load(Relaxed) {
            let prompt = prompt(rng.u32(0..12), 4);
            // Refused where the other thread holds the blocks.
            let found = engine.serve_in(&engine.tiers.session(), &engine.space(), &prompt);
            fetched.fetch_add(found.map_or(0, |found| found.2 as u64), Relaxed);
            served.fetch_add(1, Relaxed);
        }
    };
    // The bytes of all that is found are compared in `serve_in`.
    let stats = || format!("{:?}, {:?}", redis.stats(), remote(&host));
    thread::scope(|scope| {
        let workers = [1, 2].map(|seed| scope.spawn(move || work(seed)));
        let ended = || stop.store(true, Relaxed);
        let reached = |what: &str, is_so: &dyn Fn() -> bool| {
            let is_over = || is_so() || workers.iter().any(|worker| worker.is_finished());
            until(what, &stats, &is_over);
        };
        for _ in 0..3 {
            let before = fetched.load(Relaxed);
            reached("hits", &|| fetched.load(Relaxed) > before + 100);
            let (failed, before) = (redis.stats().errors.total(), served.load(Relaxed));
            server.kill();
            reached("failures", &|| redis.stats().errors.total() > failed + 20);
            reached("requests without a server", &|| served.load(Relaxed) > before + 20);
            server.restart();
        }
        let before = fetched.load(Relaxed);
        reached("hits at the end", &|| fetched.load(Relaxed) > before + 100);
        ended();
    });
    assert!(host.settle_remote(PATIENCE), "{}", stats());
    let (tier, counts) = (redis.stats(), remote(&host));
    assert_eq!(tier.misses.total(), tier.misses.absent, "{tier:?}");
    assert!(tier.errors.unreachable > 0 && tier.errors.panicked == 0 && tier.errors.protocol == 0, "{tier:?}");
    assert!(counts.failed_blocks + counts.failed_puts > 0, "{counts:?}");
    assert_eq!((counts.puts_in_flight, counts.gets_in_flight), (0, 0), "{counts:?}");
    let held = host.stats();
    assert_eq!((held.pinned_blocks, held.reserved_blocks), (0, 0), "{held:?}");
    host.validate().expect("a valid tier");
}
