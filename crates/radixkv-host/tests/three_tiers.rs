//! Content over three tiers: every block carries a pattern made of its tokens, remote tiers fail,
//! lie and fall silent, and no lookup ever leads to another block's bytes.
//!
//! `STRESS_SECONDS` says for how long the threads run; `ci/nightly.sh` runs a minute.

mod common;

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use common::{Engine, Fault, Faulty, PATIENCE, SIZE, files_that_accept, folder, host, layout};
use radixkv::{Keys, Namespace, NamespaceName, PrefixCache, Token};
use radixkv_host::{
    Admission, HostTier, RemoteWait, TierMode, WritePolicy,
    radixkv_tiers::{RegionTier, Tier},
};

#[derive(Debug, Clone, Copy)]
struct Plan {
    mode: TierMode,
    write: WritePolicy,
    wait: RemoteWait,
    admission: Admission,
    time_to_live: Option<Duration>,
    timeout: Duration,
    in_flight: usize,
    /// How many items the files accept at once.
    at_once: usize,
    engines: usize,
    /// Whether a region that processes share lies above the files.
    region: bool,
}

fn plans() -> impl Iterator<Item = Plan> {
    let back = Plan {
        mode: TierMode::Exclusive,
        write: WritePolicy::Back,
        wait: RemoteWait::UpTo(Duration::from_millis(20)),
        admission: Admission::All,
        time_to_live: None,
        timeout: Duration::from_millis(60),
        in_flight: 64,
        at_once: 1024,
        engines: 1,
        region: false,
    };
    let shared = Plan { mode: TierMode::Shared, engines: 2, ..back };
    let second = Admission::SecondTouch { remembered: 100 };
    [
        back,
        Plan { region: true, wait: RemoteWait::All, ..back },
        shared,
        Plan { write: WritePolicy::Through, region: true, ..shared },
        Plan { write: WritePolicy::Through, wait: RemoteWait::BestEffort, in_flight: 3, ..shared },
        Plan { at_once: 3, ..shared },
        Plan { at_once: 1, region: true, write: WritePolicy::Through, ..shared },
        Plan { time_to_live: Some(Duration::from_millis(15)), admission: second, region: true, ..shared },
    ]
    .into_iter()
}

/// Caches over one host tier, over remote tiers that fail.
struct World {
    engines: Vec<Engine>,
    host: HostTier,
    region: Option<Arc<Faulty<RegionTier<Vec<u8>>>>>,
    files: Arc<Faulty<Tier<Vec<u8>>>>,
    folder: tempfile::TempDir,
    /// Tokens that came from remote tiers.
    remote_tokens: AtomicU64,
}

fn world(plan: Plan) -> World {
    let folder = folder();
    let files = Faulty::new(files_that_accept(plan.at_once, &folder.path().join("files"), 60));
    let mut builder = host(24).staging(16).admission(plan.admission).remote_write(plan.write);
    builder = builder.remote_in_flight(plan.in_flight).remote_timeout(plan.timeout);
    if let Some(time) = plan.time_to_live {
        builder = builder.time_to_live(time);
    }
    let path = folder.path().join("region");
    let region = plan.region.then(|| Faulty::new(RegionTier::open_or_create(path, layout(), 40).expect("a region")));
    if let Some(region) = &region {
        builder = builder.remote(Arc::clone(region));
    }
    let host = builder.remote(Arc::clone(&files)).build().expect("a tier");
    let engines = (0..plan.engines).map(|_| Engine::waiting(16, &host, plan.mode, plan.wait)).collect();
    World { engines, host, region, files, folder, remote_tokens: AtomicU64::new(0) }
}

fn spaces(cache: &PrefixCache) -> [Namespace; 3] {
    [
        cache.default_namespace(),
        cache.namespace(&["tenant"]),
        cache.namespace(NamespaceName::new(&["draft"]).with_keys(Keys::Bigrams)),
    ]
}

/// A prompt that shares prefixes with others, and ends anywhere.
fn prompt(rng: &mut fastrand::Rng) -> Vec<Token> {
    let (root, length) = (rng.u32(0..8), rng.usize(1..40));
    (0..length as u32).map(|at| if at % 9 == 8 { rng.u32(0..2) } else { root * 1000 + at }).collect()
}

impl World {
    fn set(&self, region: Fault, files: Fault) {
        self.files.set(files);
        if let Some(tier) = &self.region {
            tier.set(region);
        }
    }

    fn serve(&self, engine: &Engine, namespace: &Namespace, tokens: &[Token]) {
        if let Some((_, _, remote)) = engine.serve_in(&engine.tiers.session(), namespace, tokens) {
            // Relaxed: it only counts.
            self.remote_tokens.fetch_add(remote as u64, Relaxed);
        }
    }

    fn work(&self, seed: u64, until: Instant) {
        let mut rng = fastrand::Rng::with_seed(seed);
        while Instant::now() < until {
            let engine = rng.choice(&self.engines).expect("one at least");
            let spaces = spaces(engine.tiers.cache());
            let (space, prompt) = (rng.choice(&spaces).expect("three"), prompt(&mut rng));
            match rng.usize(0..200) {
                0 => engine.tiers.clear_namespace(space),
                1 => engine.tiers.drop_namespace(&spaces[1]),
                2 => self.host.clear(),
                3 => drop(self.host.keep_out(&space.name())),
                4..14 => _ = engine.tiers.evict(rng.usize(1..8)),
                14..24 => drop(engine.tiers.session().match_prefix(space, &prompt)),
                24..30 => _ = engine.tiers.session().prefetch(space, &prompt),
                30..34 => _ = self.host.remove_expired(),
                34..40 => drop(self.host.fetch(&space.name(), &prompt, 0)),
                _ => self.serve(engine, space, &prompt),
            }
        }
    }

    /// Lets the remote tiers fail now and then, and damages files.
    fn fail(&self, seed: u64, stop: &AtomicBool) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let faults = [Fault::Refuses, Fault::Fails, Fault::FailsGets, Fault::IsSilent, Fault::Panics];
        // Relaxed: it only ends the loop.
        while !stop.load(Relaxed) {
            let mut some = || if rng.bool() { Fault::None } else { *rng.choice(&faults).expect("some") };
            let (one, other) = (some(), some());
            self.set(one, other);
            damage(&self.folder.path().join("files"), &mut rng);
            thread::sleep(Duration::from_millis(rng.u64(1..10)));
            self.set(Fault::None, Fault::None);
            thread::sleep(Duration::from_millis(rng.u64(1..15)));
        }
    }

    fn check_at_rest(&self) {
        assert!(self.host.settle_remote(PATIENCE), "{:?}", self.host.remote_stats());
        for engine in &self.engines {
            let cache = engine.tiers.cache();
            cache.settle();
            let stats = cache.stats();
            assert_eq!(stats.free_blocks + stats.evictable_blocks, stats.capacity_blocks, "{stats:?}");
            cache.validate().expect("a valid cache");
        }
        self.host.validate().expect("a valid tier");
        let stats = self.host.stats();
        assert_eq!((stats.pinned_blocks, stats.reserved_blocks), (0, 0), "{stats:?}");
        // What a tier was silent about comes back when it speaks.
        let (began, remote) = (Instant::now(), || self.host.remote_stats().expect("it has remote tiers"));
        while remote().puts_in_flight + remote().gets_in_flight > 0 {
            assert!(began.elapsed() < PATIENCE, "{:?}", remote());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Flips a byte of some files.
fn damage(folder: &Path, rng: &mut fastrand::Rng) {
    for path in fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            damage(&path, rng);
        } else if path.file_name().is_some_and(|name| name.len() >= 60) && rng.u8(..) < 16 {
            // It may be gone by now.
            if let Ok(mut bytes) = fs::read(&path) {
                let at = rng.usize(0..bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.u8(0..8);
                }
                let _ = fs::write(&path, bytes);
            }
        }
    }
}

// Holds: HT18.
#[test]
fn one_thread_finds_what_left_the_host() {
    for (number, plan) in plans().enumerate() {
        let plan = Plan { wait: RemoteWait::All, timeout: PATIENCE, time_to_live: None, ..plan };
        let world = world(plan);
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..100 {
            let engine = rng.choice(&world.engines).expect("one at least");
            let spaces = spaces(engine.tiers.cache());
            world.serve(engine, rng.choice(&spaces).expect("three"), &prompt(&mut rng));
        }
        let remote = world.remote_tokens.load(Relaxed) as usize;
        assert!(remote > 4 * SIZE, "plan {number}: {remote} tokens came from remote tiers");
        world.check_at_rest();
    }
}

// Holds: HT18.
#[test]
fn four_threads_never_find_a_wrong_byte() {
    let seconds = std::env::var("STRESS_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1.5);
    let share = Duration::from_secs_f64(seconds / plans().count() as f64);
    for (number, plan) in plans().enumerate() {
        let (world, stop) = (world(plan), AtomicBool::new(false));
        let until = Instant::now() + share;
        let (seed, of, stops) = (100 * number as u64, &world, &stop);
        thread::scope(|scope| {
            let work = |thread| scope.spawn(move || of.work(seed + thread, until));
            let workers: Vec<_> = (0..4).map(work).collect();
            scope.spawn(move || of.fail(seed + 50, stops));
            let ends: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            stop.store(true, Relaxed);
            assert!(ends.iter().all(Result::is_ok), "plan {number}: {plan:?}");
        });
        world.set(Fault::None, Fault::None);
        world.check_at_rest();
    }
}
