//! What the threads of one round share.

use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use radixkv::{BlockId, Eviction, Keys, Namespace, NamespaceName, PolicyKind, PrefixCache, Quota, Token, Watermarks};

use crate::forks::Fork;
use crate::held::Held;
use crate::slots::{Slots, mix, prefixes};
use crate::waiting::{TASKS, Task};

/// Namespaces of a round. The first is the default one; those from [`DROPPED`] on come and go.
pub const NAMES: [&str; 4] = ["", "adapter", "tenant", "model"];
pub const DROPPED: usize = 2;
/// One that compares pairs of tokens.
const BIGRAMS: usize = 2;

/// A prefix that was not used for this time is dropped.
const IDLE: Duration = Duration::from_millis(2);

/// Between these the cache's own thread evicts, where it has one.
pub const WATERMARKS: Watermarks = Watermarks::new(4, 8);

/// The shape of a round.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub block_size: usize,
    pub capacity: usize,
    pub policy: PolicyKind,
    /// Longest sequence, in tokens.
    pub longest: usize,
    /// Different tokens at one place: few make sequences part and meet everywhere.
    pub alphabet: u64,
    /// Whether a thread of the cache's own evicts, and wakes waiters.
    pub background: bool,
}

/// Clears and drops of one namespace: what was found may be gone only if one has begun since.
#[derive(Default)]
struct Turnover {
    begun: AtomicU64,
    done: AtomicU64,
}

/// How often a namespace had been cleared or dropped, unless that was under way.
#[derive(Debug, Clone, Copy)]
pub struct Watch(Option<u64>);

/// What the threads of one round share.
pub struct World {
    pub setting: Setting,
    pub cache: PrefixCache,
    pub slots: Slots,
    /// Leases on their way to another thread.
    pub exchange: Mutex<Vec<Held>>,
    /// Forks on theirs.
    pub forks: Mutex<Vec<Fork>>,
    /// Requests that wait for blocks.
    pub tasks: [Task; TASKS],
    /// Wakers that are there, clones counted once: the cache's own thread may be at one still.
    pub wakers: AtomicUsize,
    pub over: AtomicBool,
    turnovers: [Turnover; NAMES.len()],
}

impl World {
    pub fn new(setting: Setting) -> Self {
        let builder = PrefixCache::builder(setting.block_size, setting.capacity).policy(setting.policy);
        let eviction = if setting.background { Eviction::Background(WATERMARKS) } else { Eviction::Inline };
        let builder = builder.time_to_idle(IDLE).eviction(eviction);
        Self {
            setting,
            cache: builder.build().expect("a sound setting"),
            slots: Slots::new(setting.capacity),
            exchange: Mutex::new(Vec::new()),
            forks: Mutex::new(Vec::new()),
            tasks: Default::default(),
            wakers: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            turnovers: Default::default(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    pub fn namespace(&self, name: usize) -> Namespace {
        match name {
            0 => self.cache.default_namespace(),
            BIGRAMS => self.cache.namespace(NamespaceName::new(&[NAMES[name]]).with_keys(Keys::Bigrams)),
            _ => self.cache.namespace(&[NAMES[name]]),
        }
    }

    /// Whole blocks of a sequence of so many tokens.
    pub fn blocks(&self, name: usize, tokens: usize) -> usize {
        tokens.saturating_sub(usize::from(name == BIGRAMS)) / self.setting.block_size
    }

    /// Tokens that a sequence of so many blocks needs.
    pub fn tokens(&self, name: usize, blocks: usize) -> usize {
        blocks * self.setting.block_size + usize::from(name == BIGRAMS && blocks > 0)
    }

    /// Lets go of what was on its way when the threads went home.
    pub fn let_go(&self) {
        drop(std::mem::take(&mut *self.exchange.lock()));
        drop(std::mem::take(&mut *self.forks.lock()));
        self.tasks.iter().for_each(Task::cancel);
        // Acquire: with the last of them.
        while self.wakers.load(Acquire) > 0 {
            std::thread::yield_now();
        }
        // A waker on the cache's own thread may have polled one, which is not cancelled meanwhile.
        self.tasks.iter().for_each(Task::cancel);
    }

    /// Checks that every quota is kept to once nothing is leased.
    pub fn check_quotas(&self) {
        self.cache.settle();
        for (name, of) in NAMES.iter().enumerate() {
            let stats = self.namespace(name).stats();
            let is_within = stats.quota.cached_blocks.is_none_or(|limit| stats.cached_blocks <= limit);
            assert!(is_within || stats.protected_blocks == stats.cached_blocks, "{of:?} beyond its quota: {stats:?}");
        }
    }

    /// Takes every quota away once all reservations are gone: a namespace with one is not
    /// forgotten.
    pub fn lift_quotas(&self) {
        for (name, of) in NAMES.iter().enumerate() {
            let namespace = self.namespace(name);
            let stats = namespace.stats();
            // What is retained is protected for a moment more.
            assert_eq!(stats.reserved_blocks, 0, "nothing is reserved in {of:?}");
            namespace.set_quota(Quota::default());
        }
    }

    /// A sequence that shares a beginning with many others.
    pub fn sequence(&self, dice: &mut Rng) -> Vec<Token> {
        let len = dice.usize(1..=self.setting.longest);
        let family = dice.u64(..3);
        let part = dice.usize(..=len);
        let variant = dice.u64(1..=4);
        let token = |i: usize| {
            let line = if i < part { 0 } else { variant };
            (mix(family << 48 ^ line << 40 ^ i as u64) % self.setting.alphabet) as Token
        };
        (0..len).map(token).collect()
    }

    /// Fills the blocks that hold `tokens` from the `first`-th block on.
    pub fn fill(&self, name: usize, tokens: &[Token], first: usize, blocks: &[BlockId]) {
        let prefixes = prefixes(name, tokens, self.setting.block_size);
        for (&block, &prefix) in blocks.iter().zip(&prefixes[first..]) {
            self.slots.fill(block, prefix);
        }
    }

    // Relaxed below: a thread that sees the effect of a clear is ordered after it by the cache
    // itself, and sees the count.

    pub fn watch(&self, name: usize) -> Watch {
        let turnover = &self.turnovers[name];
        let done = turnover.done.load(Relaxed);
        Watch((turnover.begun.load(Relaxed) == done).then_some(done))
    }

    /// Whether no thread has begun to clear or drop the namespace since.
    pub fn is_undisturbed(&self, name: usize, watch: Watch) -> bool {
        watch.0.is_some_and(|done| self.turnovers[name].begun.load(Relaxed) == done)
    }

    /// Runs `work`, which clears or drops these namespaces.
    pub fn turn_over(&self, names: std::ops::Range<usize>, work: impl FnOnce()) {
        self.turnovers[names.clone()].iter().for_each(|turnover| _ = turnover.begun.fetch_add(1, Relaxed));
        work();
        self.turnovers[names].iter().for_each(|turnover| _ = turnover.done.fetch_add(1, Relaxed));
    }
}
