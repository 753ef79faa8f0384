//! How long a verb keeps the evictor's lock.
//!
//! A hold cannot be seen from outside, but what waits for it can: another thread asks for the lock again and again, and
//! reads the clock of the processor time of the verb's thread before and after each time that it gets it. What that
//! clock went forward by is the hold, and what the verb did beside it until the lock changed hands: an upper bound. Each
//! of the two threads has a processor of its own, and the one that waits goes before all others there, if `chrt` may do
//! that: so it runs when it is woken. Where it may not, other load makes the bound looser. [`FLOOR`] is what the method
//! shows where nothing is held for long.

use std::{
    hint,
    process::{Command, Stdio},
    sync::{
        Barrier, Once,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
    unistd::{Pid, gettid},
};
use radixkv::{Clock, PolicyKind, PrefixCache, Quota};

use super::{
    Plan,
    common::{insert, sequence},
    dimensions::Bench,
    figure::{
        Asked::{AtMost, Nothing},
        Figure,
    },
};
use crate::arena::measure::Spread;

/// The clock of a thread's processor time.
#[derive(Clone, Copy)]
struct ThreadClock(ClockId);

impl ThreadClock {
    fn of_this_thread() -> Self {
        // Linux: the complement of the thread's id, and three bits for "scheduled time" of "one thread".
        Self(ClockId::from_raw((!gettid().as_raw() << 3) | 0b110))
    }

    fn now(self) -> Duration {
        clock_gettime(self.0).expect("the thread lives").into()
    }
}

/// The first two processors that this thread may use, and all of them.
fn processors() -> Option<[CpuSet; 3]> {
    let allowed = sched_getaffinity(this_thread()).ok()?;
    let mut each = (0..CpuSet::count()).filter(|&at| allowed.is_set(at).unwrap_or(false)).map(|at| {
        let mut one = CpuSet::new();
        one.set(at).map(|()| one).ok()
    });
    Some([each.next()??, each.next()??, allowed])
}

/// Lets this thread run as soon as it can, if that is allowed.
fn hurry() {
    let mut chrt = Command::new("chrt");
    let tried = chrt.args(["--fifo", "--pid", "1", &gettid().to_string()]).stderr(Stdio::null()).status();
    static SAID: Once = Once::new();
    if !tried.is_ok_and(|status| status.success()) {
        SAID.call_once(|| println!("longest hold of the lock: the thread that waits has no priority: a looser bound"));
    }
}

/// In calls about threads.
fn this_thread() -> Pid {
    Pid::from_raw(0)
}

/// The most processor time that this thread takes between two times that another one gets the lock of `cache`, while
/// `verb` runs; in microseconds.
fn longest_hold(cache: &PrefixCache, verb: impl FnOnce()) -> f64 {
    let (over, ready, clock) = (AtomicBool::new(false), Barrier::new(2), ThreadClock::of_this_thread());
    let [this, other, all] = processors().expect("two processors");
    sched_setaffinity(this_thread(), &this).expect("an allowed processor");
    let longest = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            sched_setaffinity(this_thread(), &other).expect("an allowed processor");
            hurry();
            let mut longest = Duration::ZERO;
            let (session, apart) = (cache.session(), cache.namespace(&["asks for the lock"]));
            let nothing = session.match_prefix(&apart, &[]);
            ready.wait();
            while !over.load(Relaxed) {
                let before = clock.now();
                // Takes the lock and nothing more.
                session.release_retained(nothing.lease());
                longest = longest.max(clock.now() - before);
            }
            longest
        });
        // A processor that sleeps takes longer to wake than a hold may last.
        scope.spawn(|| {
            sched_setaffinity(this_thread(), &other).expect("an allowed processor");
            while !over.load(Relaxed) {
                hint::spin_loop();
            }
        });
        // A verb that yields between two holds, until a thread that waits has the lock, yields to this one.
        scope.spawn(|| {
            sched_setaffinity(this_thread(), &this).expect("an allowed processor");
            while !over.load(Relaxed) {
                thread::yield_now();
            }
        });
        ready.wait();
        verb();
        over.store(true, Relaxed);
        asking.join().expect("no panic").as_secs_f64() * 1e6
    });
    sched_setaffinity(this_thread(), &all).expect("as before");
    longest
}

/// What is prepared for so many leaves, and the longest hold of a verb in it.
type Verb = (&'static str, fn(usize) -> f64);

const FLOOR: Verb = ("  the method's floor: run_once with nothing to do, us", |_| {
    let bench = Bench::new(64);
    longest_hold(&bench.cache, || (0..20_000).for_each(|_| assert!(!bench.cache.run_once())))
});

const VERBS: [Verb; 10] = [
    ("evict(all)", |leaves| {
        let bench = Bench::of_leaves(leaves);
        longest_hold(&bench.cache, || assert_eq!(bench.cache.evict(usize::MAX), leaves))
    }),
    ("clear", |leaves| {
        let bench = Bench::of_leaves(leaves);
        let hold = longest_hold(&bench.cache, || bench.cache.clear());
        assert_eq!(bench.cache.stats().free_blocks, leaves);
        hold
    }),
    ("drop_namespace", |leaves| {
        let bench = Bench::new(leaves);
        let space = bench.cache.namespace(&["tenant"]);
        (0..leaves as u32).for_each(|seed| drop(insert(&bench.session, &space, &bench.cache, &sequence(seed, 1))));
        bench.cache.settle();
        let hold = longest_hold(&bench.cache, || bench.cache.drop_namespace(&space));
        assert_eq!(bench.cache.stats().free_blocks, leaves);
        hold
    }),
    ("reserve(1) after as many leases were dropped", |leaves| {
        let bench = with_backlog(leaves);
        longest_hold(&bench.cache, || assert_eq!(bench.session.reserve(1).expect("idle").blocks().len(), 1))
    }),
    ("settle after as many leases were dropped", |leaves| {
        let bench = with_backlog(leaves);
        longest_hold(&bench.cache, || bench.cache.settle())
    }),
    ("stats after as many leases were dropped", |leaves| {
        let bench = with_backlog(leaves);
        longest_hold(&bench.cache, || assert_eq!(bench.cache.stats().free_blocks, 0))
    }),
    ("reserve(2,048), a prompt of 32 k tokens", |leaves| {
        let bench = Bench::of_leaves(leaves);
        longest_hold(&bench.cache, || assert_eq!(bench.session.reserve(2_048).expect("idle").blocks().len(), 2_048))
    }),
    ("set_policy and settle", |leaves| {
        let bench = Bench::of_leaves(leaves);
        let hold = longest_hold(&bench.cache, || {
            bench.cache.set_policy(PolicyKind::Lfu);
            bench.cache.settle();
        });
        assert_eq!(bench.cache.policy(), PolicyKind::Lfu);
        hold
    }),
    ("settle when all are too old", |leaves| {
        let builder = PrefixCache::builder(1, leaves).clock(Clock::Logical);
        let cache = builder.time_to_idle(Duration::from_nanos(1)).build().expect("a sound setting");
        fill_at_once(&cache, leaves);
        cache.set_time(1 << 33);
        let hold = longest_hold(&cache, || cache.settle());
        assert_eq!(cache.stats().free_blocks, leaves);
        hold
    }),
    ("set_quota of nothing and settle", |leaves| {
        let bench = Bench::of_leaves(leaves);
        let hold = longest_hold(&bench.cache, || {
            bench.cache.set_quota(&bench.space, Quota::default().cached_blocks(0));
            bench.cache.settle();
        });
        assert_eq!(bench.cache.stats().free_blocks, leaves);
        hold
    }),
];

/// Sequences of one time: none of them is too old before the others.
fn fill_at_once(cache: &PrefixCache, leaves: usize) {
    cache.set_time(1);
    let (session, space) = (cache.session(), cache.default_namespace());
    (0..leaves as u32).for_each(|seed| drop(insert(&session, &space, cache, &sequence(seed, 1))));
    cache.settle();
}

/// A full cache all of whose sequences were leased and released, and no change taken in since.
fn with_backlog(leaves: usize) -> Bench {
    let bench = Bench::of_leaves(leaves);
    let matched = |seed| bench.session.match_prefix(&bench.space, &sequence(seed, 1)).into_lease();
    drop((0..leaves as u32).map(matched).collect::<Vec<_>>());
    bench
}

pub(crate) fn holds(plan: &Plan) -> Vec<Figure> {
    if processors().is_none() {
        println!("longest hold of the lock: skipped: it takes two processors to see it");
        return Vec::new();
    }
    let leaves = plan.size(1_000_000);
    // Each has a cache of its own.
    let rounds = plan.settings.rounds.min(3);
    // Of several upper bounds the least is the closest; the widest is shown beside it.
    let measure = |verb: fn(usize) -> f64| {
        let bounds: Vec<f64> = (0..rounds).map(|_| verb(leaves)).collect();
        let least = bounds.iter().copied().fold(f64::INFINITY, f64::min);
        Spread { low: least, median: least, high: bounds.into_iter().fold(0.0, f64::max) }
    };
    let figure = |&(what, verb): &Verb| {
        Figure::new(
            format!("longest hold of the lock, {leaves} leaves, us: {what}"),
            AtMost(1_000.0, 100.0),
            measure(verb),
        )
    };
    let floor = Figure::new(FLOOR.0, Nothing, measure(FLOOR.1));
    VERBS.iter().map(figure).chain([floor]).collect()
}
