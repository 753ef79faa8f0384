//! How long after its deadline a request that waits is told: in real time, measured and printed.
//! The goal is 5 ms at p99.9 on a machine that is not overloaded.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use radixkv::{Acquired, Namespace, PrefixCache, ReserveError, Session};

use crate::plan::{BLOCK_SIZE, BLOCKS, CLIENTS};

const THREADS: u64 = 2;

/// A deadline of each kind of client passes within this.
const PATIENCE: Duration = Duration::from_secs(60);

type Late = Arc<Mutex<Vec<Duration>>>;

/// Serves requests with deadlines for so long, of 64 tasks and of threads that block.
#[derive(Clone)]
struct Crowd {
    cache: PrefixCache,
    space: Namespace,
    end: Instant,
    late: Late,
    /// That of the other kind of clients.
    others: Late,
}

impl Crowd {
    fn new(length: Duration) -> Self {
        let cache = PrefixCache::builder(BLOCK_SIZE, BLOCKS).build().expect("valid");
        let space = cache.default_namespace();
        Self { cache, space, end: Instant::now() + length, late: Late::default(), others: Late::default() }
    }

    /// Whether the clients go on: until the time is over and a deadline of each kind of client has
    /// passed. A client may be stopped all the time, and each kind needs the load of the other one.
    fn goes_on(&self) -> bool {
        let (now, none) = (Instant::now(), |late: &Late| late.lock().expect("no panic").is_empty());
        now < self.end || (now < self.end + PATIENCE && (none(&self.late) || none(&self.others)))
    }

    fn prompt(dice: &mut Rng) -> Vec<u32> {
        let key = dice.u32(..256) << 16;
        (0..dice.u32(20..100)).map(|i| key | i).collect()
    }

    fn deadline(dice: &mut Rng) -> Instant {
        Instant::now() + Duration::from_micros(dice.u64(1_000..20_000))
    }

    fn busy(dice: &mut Rng) -> Duration {
        Duration::from_micros(dice.u64(500..5_000))
    }

    fn missed(&self, deadline: Instant) {
        let late = Instant::now().checked_duration_since(deadline).expect("not before its deadline");
        self.late.lock().expect("no panic").push(late);
    }

    fn publish(session: &Session, prompt: &[u32], start: Acquired) {
        let mut own = start.blocks;
        let whole = own.split(prompt.len() / BLOCK_SIZE - start.hit.blocks().len());
        drop(session.insert(start.hit.lease(), prompt, whole).expect("sound"));
    }

    async fn task(self, seed: u64) {
        let mut dice = Rng::with_seed(seed);
        while self.goes_on() {
            let (prompt, deadline) = (Self::prompt(&mut dice), Self::deadline(&mut dice));
            let acquiring = self.cache.acquire_async(&self.space, &prompt[..], 1);
            match tokio::time::timeout_at(deadline.into(), acquiring).await {
                Ok(start) => {
                    tokio::time::sleep(Self::busy(&mut dice)).await;
                    Self::publish(&self.cache.session(), &prompt, start.expect("it fits"));
                }
                Err(_) => self.missed(deadline),
            }
        }
    }

    fn thread(self, seed: u64) {
        let (mut dice, session) = (Rng::with_seed(seed), self.cache.session());
        while self.goes_on() {
            let (prompt, deadline) = (Self::prompt(&mut dice), Self::deadline(&mut dice));
            match session.acquire_until(&self.space, &prompt, 1, deadline) {
                Ok(start) => {
                    std::thread::sleep(Self::busy(&mut dice));
                    Self::publish(&session, &prompt, start);
                }
                Err(refused) => {
                    assert!(matches!(refused, ReserveError::TimedOut { .. }), "{refused}");
                    self.missed(deadline);
                }
            }
        }
    }
}

/// Prints percentiles of how late it was.
pub fn measure(length: Duration) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().expect("threads");
    let (tasks, threads) = (Crowd::new(length), Crowd::new(length));
    // Both in the line of one cache, each with its own figures.
    let tasks = Crowd { others: threads.late.clone(), ..tasks };
    let threads = Crowd { late: threads.late, others: tasks.late.clone(), ..tasks.clone() };
    let clients: Vec<_> = (0..CLIENTS as u64).map(|seed| runtime.spawn(tasks.clone().task(seed))).collect();
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let thread = threads.clone();
            scope.spawn(move || thread.thread(1 << 32 | seed));
        }
    });
    runtime.block_on(async {
        for client in clients {
            client.await.expect("no panic");
        }
    });
    print("tasks, the runtime's timer", &tasks);
    print("threads, `acquire_until`", &threads);
    tasks.cache.settle();
    tasks.cache.validate().expect("sound");
    let stats = tasks.cache.stats();
    assert_eq!((stats.reserved_blocks, stats.protected_blocks, stats.waiting_requests), (0, 0, 0));
}

fn print(which: &str, crowd: &Crowd) {
    let mut late = crowd.late.lock().expect("no panic");
    late.sort_unstable();
    assert!(!late.is_empty(), "no deadline passed");
    let at = |part: f64| late[((late.len() - 1) as f64 * part) as usize];
    let [middle, p99, p999] = [0.5, 0.99, 0.999].map(at);
    println!("{which}: {} deadlines passed; late p50 {middle:?}, p99 {p99:?}, p99.9 {p999:?}", late.len());
}
