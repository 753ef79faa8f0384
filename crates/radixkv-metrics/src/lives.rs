//! Histograms of how long blocks are cached and idle, measured for a sample of blocks.
//!
//! The sample is all blocks whose id is a multiple of a fixed number. Ids are independent of
//! content, so this is as good as a random sample, and testing a block costs one division.

use std::fmt;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use radixkv::{BlockId, CacheEvent, EventBatch, PrefixCache, Subscription};

/// Histograms, under vLLM's names, of blocks' lifetime, idle time before eviction, and time between
/// uses. Clones share the histograms.
///
/// A store or eviction gets the time at which its event is [pumped](Self::pump), so frequent
/// pumping makes the times more precise. Threads that find blocks report uses by
/// [`used`](Self::used). Cleared or dropped blocks are not counted.
///
/// # Examples
///
/// ```
/// use radixkv_metrics::prometheus_client::registry::Registry;
/// use radixkv_metrics::{BlockLives, text};
///
/// let cache = radixkv::PrefixCache::builder(2, 64).build()?;
/// let (session, space) = (cache.session(), cache.default_namespace());
/// let (mut registry, mut events) = (Registry::default(), cache.subscribe(64));
/// let lives = BlockLives::register(&cache, 1, &mut registry); // of every block
/// let miss = session.match_prefix(&space, &[1, 2, 3, 4]);
/// drop(session.insert(miss.lease(), &[1, 2, 3, 4], session.reserve(2)?)?);
/// lives.pump(&mut events);
/// // A scheduler thread finds one of the blocks:
/// lives.used(session.match_prefix(&space, &[1, 2]).blocks());
/// cache.evict(1);
/// lives.pump(&mut events);
/// let text = text(&registry);
/// assert!(text.contains("vllm:kv_block_reuse_gap_seconds_count 1\n"));
/// assert!(text.contains("vllm:kv_block_lifetime_seconds_count 1\n"));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct BlockLives(Arc<Sample>);

struct Sample {
    /// The zero of all block times.
    began: Instant,
    every: u32,
    /// The sampled blocks of the initial capacity, by id.
    lives: Box<[Life]>,
    /// Sampled blocks beyond the initial capacity. Each segment is twice as long as the previous
    /// one, and is allocated when one of its blocks is first stored.
    grown: [OnceLock<Box<[Life]>>; SEGMENTS],
    lifetime: Histogram,
    idle: Histogram,
    reuse_gap: Histogram,
}

/// Enough segments for all block ids.
const SEGMENTS: usize = 33;

/// When a block was stored and last used, in nanoseconds since [`Sample::began`]; 0 if it is not
/// known to be cached.
#[derive(Default)]
struct Life {
    stored: AtomicU64,
    used: AtomicU64,
}

impl fmt::Debug for BlockLives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockLives").field("every", &self.0.every).finish_non_exhaustive()
    }
}

impl BlockLives {
    /// Adds the histograms to a registry and samples one of `every` blocks, or each block if
    /// `every` is zero. Needs two words of memory for each sampled block of the cache's capacity,
    /// and up to four for each that is added by growing.
    pub fn register(cache: &PrefixCache, every: u32, registry: &mut Registry) -> Self {
        let every = every.max(1);
        let watched = cache.capacity_blocks().div_ceil(every as usize);
        // From a millisecond to three days.
        let histogram = || Histogram::new(exponential_buckets(1e-3, 4.0, 15));
        let sample = Sample {
            began: Instant::now(),
            every,
            lives: lives(watched),
            grown: [const { OnceLock::new() }; SEGMENTS],
            lifetime: histogram(),
            idle: histogram(),
            reuse_gap: histogram(),
        };
        for (name, help, histogram) in [
            ("vllm:kv_block_lifetime_seconds", "Time from storing a block to its eviction; sampled", &sample.lifetime),
            (
                "vllm:kv_block_idle_before_evict_seconds",
                "Time from a block's last use to its eviction; sampled",
                &sample.idle,
            ),
            ("vllm:kv_block_reuse_gap_seconds", "Time between two uses of a block; sampled", &sample.reuse_gap),
        ] {
            registry.register(name, help, histogram.clone());
        }
        Self(Arc::new(sample))
    }

    /// Records a use of these blocks. Lock-free, except that each sampled block locks the
    /// histogram.
    pub fn used(&self, blocks: &[BlockId]) {
        let now = self.now();
        for life in self.watched(blocks).filter_map(|at| self.0.get(at)) {
            // Relaxed, here and below: the times are only statistics.
            let before = life.used.load(Relaxed);
            // If several threads find a block at once, one of them counts the use. A block that was
            // evicted meanwhile stays at 0.
            if before > 0 && life.used.compare_exchange(before, now, Relaxed, Relaxed).is_ok() {
                self.0.reuse_gap.observe(seconds(before, now));
            }
        }
    }

    /// Processes the pending events of a subscription to the cache. Blocks of lost events are not
    /// counted.
    pub fn pump(&self, events: &mut Subscription) {
        while let Some(batch) = events.try_next() {
            self.take_in(&batch);
        }
    }

    /// Processes one batch of the cache's events, for callers that have their own subscription.
    pub fn take_in(&self, batch: &EventBatch) {
        let now = self.now();
        for event in batch.events() {
            match event {
                CacheEvent::Stored { blocks, .. } => self.watched(blocks).for_each(|at| {
                    let life = self.0.place(at);
                    life.stored.store(now, Relaxed);
                    life.used.store(now, Relaxed);
                }),
                CacheEvent::Removed { blocks, .. } => {
                    self.watched(blocks).filter_map(|at| self.0.get(at)).for_each(|life| self.end(life, now));
                }
                _ => {}
            }
        }
    }

    fn end(&self, life: &Life, now: u64) {
        let (stored, used) = (life.stored.swap(0, Relaxed), life.used.swap(0, Relaxed));
        if stored > 0 && used > 0 {
            self.0.lifetime.observe(seconds(stored, now));
            self.0.idle.observe(seconds(used, now));
        }
    }

    /// The sample indices of those blocks that are sampled.
    fn watched<'a>(&self, blocks: &'a [BlockId]) -> impl Iterator<Item = usize> + use<'a> {
        let every = self.0.every;
        blocks.iter().filter(move |&block| block % every == 0).map(move |&block| (block / every) as usize)
    }

    /// Nanoseconds since [`Sample::began`], at least one.
    fn now(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}

impl Sample {
    /// The record of the sampled block at an index, if its segment is allocated.
    fn get(&self, at: usize) -> Option<&Life> {
        match at.checked_sub(self.lives.len()) {
            None => self.lives.get(at),
            Some(beyond) => {
                let (segment, at) = segment(beyond);
                self.grown[segment].get()?.get(at)
            }
        }
    }

    /// The record of the sampled block at an index; allocates its segment if necessary.
    fn place(&self, at: usize) -> &Life {
        match at.checked_sub(self.lives.len()) {
            None => &self.lives[at],
            Some(beyond) => {
                let (segment, at) = segment(beyond);
                &self.grown[segment].get_or_init(|| lives(1 << segment))[at]
            }
        }
    }
}

/// Makes records of uncached blocks.
fn lives(count: usize) -> Box<[Life]> {
    iter::repeat_with(Life::default).take(count).collect()
}

/// The segment of an index beyond the initial capacity, and the index in the segment.
fn segment(beyond: usize) -> (usize, usize) {
    let segment = (beyond + 1).ilog2();
    (segment as usize, beyond + 1 - (1 << segment))
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    #[test]
    fn only_blocks_of_the_sample_are_watched() {
        let cache = PrefixCache::builder(1, 40).build().expect("valid");
        let (session, space) = (cache.session(), cache.default_namespace());
        let (mut registry, mut events) = (Registry::default(), cache.subscribe(64));
        let lives = BlockLives::register(&cache, 10, &mut registry);
        let tokens: Vec<u32> = (0..40).collect();
        let miss = session.match_prefix(&space, &tokens);
        drop(session.insert(miss.lease(), &tokens, session.reserve(40).expect("free")).expect("it fits"));
        lives.pump(&mut events);
        lives.used(session.match_prefix(&space, &tokens).blocks());
        assert_eq!(cache.evict(40), 40);
        lives.pump(&mut events);
        // Uses of evicted blocks do not count.
        lives.used(&[0, 10]);
        let text = text(&registry);
        for name in ["lifetime", "idle_before_evict", "reuse_gap"] {
            assert!(text.contains(&format!("vllm:kv_block_{name}_seconds_count 4\n")), "{name}:\n{text}");
        }
    }

    #[test]
    fn blocks_by_which_a_cache_grew_are_watched_too() {
        let cache = PrefixCache::builder(1, 3).growable_to(100).build().expect("valid");
        let (session, space) = (cache.session(), cache.default_namespace());
        let (mut registry, mut events) = (Registry::default(), cache.subscribe(64));
        let lives = BlockLives::register(&cache, 1, &mut registry);
        lives.used(&[7, u32::MAX]);
        for capacity in [4, 20, 100] {
            cache.grow(capacity - cache.capacity_blocks()).expect("it was built for it");
            let tokens: Vec<u32> = (0..capacity as u32).collect();
            let miss = session.match_prefix(&space, &tokens);
            drop(session.insert(miss.lease(), &tokens, session.reserve(capacity).expect("free")).expect("it fits"));
            lives.pump(&mut events);
            lives.used(session.match_prefix(&space, &tokens).blocks());
            assert_eq!(cache.evict(capacity), capacity);
            lives.pump(&mut events);
        }
        let text = text(&registry);
        for name in ["lifetime", "idle_before_evict", "reuse_gap"] {
            assert!(text.contains(&format!("vllm:kv_block_{name}_seconds_count 124\n")), "{name}:\n{text}");
        }
    }

    #[test]
    fn segments_have_a_place_for_each_block_and_one_block_a_place() {
        let places: Vec<_> = (0..7).map(segment).collect();
        assert_eq!(places, [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)]);
        assert!(segment(u32::MAX as usize).0 < SEGMENTS);
    }
}
