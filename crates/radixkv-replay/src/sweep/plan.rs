//! Plans the points of a sweep, and computes them on all cores.

use std::collections::TryReserveError;

use radixkv::PolicyKind;
use rayon::prelude::*;

use super::{
    belady, flat,
    hits::Hits,
    point::{BlockSizeFigures, Line, Sweep, SweepPoint},
    runs::{Runs, Sorted},
    stack,
};
use crate::{
    replay::{Capacity, ReplayConfig, ReplayError, replay},
    request::Trace,
};

/// The configuration of a sweep.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{replay::Capacity, sweep::SweepConfig};
///
/// let config = SweepConfig { capacities: vec![Capacity::Percent(5.0), Capacity::Blocks(4096)], ..SweepConfig::default() };
/// assert_eq!(config.block_sizes, [16]);
/// ```
#[derive(Debug, Clone)]
pub struct SweepConfig {
    /// The capacities of the caches. Default: 1, 5, 10 and 25 percent of the working set.
    pub capacities: Vec<Capacity>,
    /// The eviction policies. Default: lru, lfu and slru.
    pub policies: Vec<PolicyKind>,
    /// Tokens per block. Default: 16.
    pub block_sizes: Vec<usize>,
    /// Whether generated tokens are also cached. Default: no.
    pub outputs: bool,
    /// Maximum number of tokens that a cache could hold, as in [`ReplayConfig::max_cached_tokens`],
    /// and of distinct blocks that it may serve. Default: 2^28.
    pub max_cached_tokens: usize,
}

impl Default for SweepConfig {
    fn default() -> Self {
        Self {
            capacities: [1.0, 5.0, 10.0, 25.0].map(Capacity::Percent).to_vec(),
            policies: vec![PolicyKind::Lru, PolicyKind::Lfu, PolicyKind::Slru],
            block_sizes: vec![16],
            outputs: false,
            max_cached_tokens: ReplayConfig::default().max_cached_tokens,
        }
    }
}

/// Why a sweep failed.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{sweep::{SweepConfig, SweepError, SweepPlan}, workload::CLASSES};
///
/// let config = SweepConfig { block_sizes: vec![0], ..SweepConfig::default() };
/// assert!(matches!(SweepPlan::new(&CLASSES[0].trace(0), &config), Err(SweepError::ZeroBlockSize)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// A block holds at least one token.
    #[error("block size must be more than zero")]
    ZeroBlockSize,
    /// A replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Memory is short: sweep over larger blocks, smaller capacities, or a part of the trace.
    #[error("not enough memory: {0}")]
    NoMemory(#[from] TryReserveError),
    /// A cache serves too many distinct blocks: sweep over larger blocks or smaller capacities, or
    /// raise [`SweepConfig::max_cached_tokens`].
    #[error("the requests that fit the cache have {blocks} distinct blocks, more than the limit of {limit}")]
    TooManyBlocks {
        /// Distinct blocks of the requests that are not bypassed.
        blocks: usize,
        /// The limit.
        limit: usize,
    },
}

/// The points of a sweep that are yet to be computed.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{sweep::{Line, SweepConfig, SweepPlan}, workload::CLASSES};
///
/// let trace = CLASSES[2].trace(0);
/// let sweep = SweepPlan::new(&trace, &SweepConfig::default())?.run(&|| {})?;
/// let infinite = sweep.points.iter().find(|point| point.line == Line::Infinite).expect("a line");
/// assert_eq!(infinite.hit_rate, 0.495);
/// # Ok::<_, radixkv_replay::sweep::SweepError>(())
/// ```
#[derive(Debug)]
pub struct SweepPlan<'a> {
    trace: &'a Trace,
    config: SweepConfig,
    sizes: Vec<Size>,
    jobs: Vec<Job>,
    /// Prompt tokens that a cache that never evicts would hit with blocks of one token.
    shared_tokens: u64,
}

/// A block size: the tree of the trace's blocks, and the capacities in blocks.
#[derive(Debug)]
struct Size {
    runs: Runs,
    /// The requests with one token for each block; only if some policy is replayed and blocks have
    /// more than one token.
    numbered: Option<Trace>,
    working_set: usize,
    capacities: Vec<usize>,
}

/// A unit of work for one thread. `size` indexes [`SweepPlan::sizes`], capacities index
/// [`Size::capacities`].
#[derive(Debug)]
enum Job {
    /// The policy lru at capacities that bypass the same requests.
    Lru {
        size: usize,
        capacities: Vec<usize>,
    },
    /// Any other line at one capacity.
    Point {
        size: usize,
        capacity: usize,
        line: Line,
    },
    Infinite {
        size: usize,
    },
    /// A replay that measures the memory of the index.
    Index {
        size: usize,
    },
}

/// The result of a job. Each point has its position among the points of its block size, which are
/// sorted by capacity, then line.
enum Found {
    Points(usize, Vec<(usize, SweepPoint)>),
    Index(usize, f64),
}

impl<'a> SweepPlan<'a> {
    /// Plans the points, sorts the requests, and converts capacities to blocks.
    ///
    /// # Errors
    ///
    /// Fails if a block size is zero.
    pub fn new(trace: &'a Trace, config: &SweepConfig) -> Result<Self, SweepError> {
        if config.block_sizes.contains(&0) {
            return Err(SweepError::ZeroBlockSize);
        }
        let sorted = Sorted::new(trace, config.outputs);
        let sizes = config.block_sizes.iter().map(|&block_size| {
            let runs = Runs::new(trace, &sorted, block_size);
            let working_set = trace.working_set_blocks(block_size);
            let blocks = |capacity: &Capacity| capacity.of_working_set(working_set, block_size);
            let is_numbered = block_size > 1 && config.policies.iter().any(|&policy| is_of_blocks_alone(policy));
            let numbered = is_numbered.then(|| runs.numbered(trace));
            Size { runs, numbered, working_set, capacities: config.capacities.iter().map(blocks).collect() }
        });
        let sizes: Vec<Size> = sizes.collect();
        let shared_tokens = trace.prompt_tokens() - trace.working_set_blocks(1) as u64;
        let jobs = jobs(config, &sizes);
        Ok(Self { trace, config: config.clone(), sizes, jobs, shared_tokens })
    }

    /// Number of requests that all caches serve; [`run`](Self::run) calls `served` as often.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.jobs.len() * self.trace.requests().len()
    }

    /// Computes all points; `served` is called after every request of every cache, on the thread
    /// that served it.
    ///
    /// # Errors
    ///
    /// Fails if memory is short or a replay fails.
    pub fn run(&self, served: &(dyn Fn() + Sync)) -> Result<Sweep, SweepError> {
        self.check()?;
        let found: Result<Vec<Found>, SweepError> =
            self.jobs.par_iter().with_max_len(1).map(|job| self.compute(job, served)).collect();
        let mut points: Vec<Vec<(usize, SweepPoint)>> = self.sizes.iter().map(|_| Vec::new()).collect();
        let mut index_bytes = vec![0.0; self.sizes.len()];
        for found in found? {
            match found {
                Found::Points(size, found) => points[size].extend(found),
                Found::Index(size, bytes) => index_bytes[size] = bytes,
            }
        }
        points.iter_mut().for_each(|points| points.sort_by_key(|&(place, _)| place));
        let block_sizes = self.sizes.iter().zip(index_bytes).map(|(size, bytes)| self.block_size(size, bytes));
        Ok(Sweep {
            requests: self.trace.requests().len(),
            prompt_tokens: self.trace.prompt_tokens(),
            unit: self.trace.unit(),
            outputs: self.config.outputs,
            block_sizes: block_sizes.collect(),
            points: points.into_iter().flatten().map(|(_, point)| point).collect(),
        })
    }

    /// The lru line at these capacities, in blocks of `block_size` tokens: a curve with any number
    /// of points.
    ///
    /// # Panics
    ///
    /// Panics if the plan does not have the block size.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{sweep::{SweepConfig, SweepPlan}, workload::CLASSES};
    ///
    /// let trace = CLASSES[2].trace(0);
    /// let curve = SweepPlan::new(&trace, &SweepConfig::default())?.lru_curve(16, &[100, 1000, 10_000]);
    /// assert!(curve.is_sorted_by_key(|point| point.hit_tokens));
    /// # Ok::<_, radixkv_replay::sweep::SweepError>(())
    /// ```
    #[must_use]
    pub fn lru_curve(&self, block_size: usize, capacities: &[usize]) -> Vec<SweepPoint> {
        let size = self.size(block_size);
        let mut points: Vec<_> = stack::groups(&size.runs, capacities)
            .into_par_iter()
            .flat_map_iter(|numbers| self.lru(size, capacities, &numbers, &|| {}))
            .collect();
        points.sort_by_key(|&(number, _)| number);
        points.into_iter().map(|(_, point)| point).collect()
    }

    /// The optimum at these capacities, in blocks of `block_size` tokens.
    ///
    /// # Panics
    ///
    /// As [`lru_curve`](Self::lru_curve).
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{sweep::{SweepConfig, SweepPlan}, workload::CLASSES};
    ///
    /// let trace = CLASSES[2].trace(0);
    /// let plan = SweepPlan::new(&trace, &SweepConfig::default())?;
    /// let (best, lru) = (plan.belady_curve(16, &[1000]), plan.lru_curve(16, &[1000]));
    /// assert!(best[0].hit_tokens >= lru[0].hit_tokens);
    /// # Ok::<_, radixkv_replay::sweep::SweepError>(())
    /// ```
    #[must_use]
    pub fn belady_curve(&self, block_size: usize, capacities: &[usize]) -> Vec<SweepPoint> {
        let size = self.size(block_size);
        let point = |&capacity: &usize| {
            let hits = belady::hits(self.trace, &size.runs, capacity, &|| {});
            size.point(Line::Belady, capacity, &hits)
        };
        capacities.par_iter().map(point).collect()
    }

    /// Fails if a cache would exceed a limit, before memory is allocated for any cache.
    fn check(&self) -> Result<(), SweepError> {
        for size in &self.sizes {
            for &capacity in &size.capacities {
                self.replay_config(size, capacity, PolicyKind::Lru).check_sizes(self.trace, capacity)?;
                size.check(capacity, self.config.max_cached_tokens.min(flat::MAX_BLOCKS))?;
            }
        }
        Ok(())
    }

    fn size(&self, block_size: usize) -> &Size {
        let size = self.sizes.iter().find(|size| size.runs.block_size() == block_size);
        size.unwrap_or_else(|| panic!("no blocks of {block_size} tokens in the plan"))
    }

    fn compute(&self, job: &Job, served: &(dyn Fn() + Sync)) -> Result<Found, SweepError> {
        Ok(match job {
            Job::Lru { size: at, capacities } => {
                let (size, place) = (&self.sizes[*at], self.place(Line::Policy(PolicyKind::Lru)));
                let points = self.lru(size, &size.capacities, capacities, &|| served());
                let placed = |(number, point)| (number * self.lines() + place, point);
                Found::Points(*at, points.into_iter().map(placed).collect())
            }
            &Job::Point { size, capacity, line } => {
                let point = self.point(&self.sizes[size], self.sizes[size].capacities[capacity], line, served)?;
                Found::Points(size, vec![(capacity * self.lines() + self.place(line), point)])
            }
            &Job::Infinite { size: at } => {
                let size = &self.sizes[at];
                let hits = stack::hits(self.trace, &size.runs, &[usize::MAX], &|| served()).remove(0);
                let point = size.point(Line::Infinite, size.runs.distinct_blocks(), &hits);
                Found::Points(at, vec![(usize::MAX, point)])
            }
            &Job::Index { size: at } => {
                let size = &self.sizes[at];
                let largest = size.capacities.iter().copied().max().unwrap_or(1);
                let report = replay(self.trace, &self.replay_config(size, largest, PolicyKind::Lru), served)?.report;
                let tokens = report.peak_blocks * report.block_size;
                Found::Index(at, report.index_bytes_peak as f64 / tokens.max(1) as f64)
            }
        })
    }

    /// The lru points of the capacities with these indices, each with its index.
    fn lru(&self, size: &Size, capacities: &[usize], numbers: &[usize], served: &dyn Fn()) -> Vec<(usize, SweepPoint)> {
        let blocks: Vec<usize> = numbers.iter().map(|&number| capacities[number]).collect();
        let hits = stack::hits(self.trace, &size.runs, &blocks, served);
        let point = |(capacity, hits)| size.point(Line::Policy(PolicyKind::Lru), capacity, hits);
        numbers.iter().copied().zip(blocks.iter().copied().zip(&hits).map(point)).collect()
    }

    fn point(
        &self,
        size: &Size,
        capacity: usize,
        line: Line,
        served: &(dyn Fn() + Sync),
    ) -> Result<SweepPoint, SweepError> {
        let flat = |accounting| flat::hits(self.trace, &size.runs, capacity, accounting, &|| served());
        let hits = match line {
            Line::Policy(policy) => self.replayed(size, capacity, policy, served)?,
            Line::Apc => flat(flat::Accounting::Blocks)?,
            Line::ApcVllm => flat(flat::Accounting::Vllm)?,
            Line::Belady | Line::Infinite => belady::hits(self.trace, &size.runs, capacity, &|| served()),
        };
        Ok(size.point(line, capacity, &hits))
    }

    /// The hits of a replay with this policy.
    fn replayed(
        &self,
        size: &Size,
        capacity: usize,
        policy: PolicyKind,
        served: &(dyn Fn() + Sync),
    ) -> Result<Hits, SweepError> {
        let config = self.replay_config(size, capacity, policy);
        let replayed = match &size.numbered {
            Some(numbered) if is_of_blocks_alone(policy) => {
                replay(numbered, &config.block_size(1).outputs(false), served)?
            }
            _ => replay(self.trace, &config, served)?,
        };
        let mut hits = Hits::default();
        for (request, outcome) in self.trace.requests().iter().zip(&replayed.outcomes) {
            match outcome.hit_blocks {
                Some(blocks) => hits.served(request, blocks as usize, size.runs.block_size()),
                None => hits.bypassed(request),
            }
        }
        hits.inserted_blocks = replayed.report.inserted_blocks;
        hits.evicted_blocks = replayed.report.evicted_blocks;
        Ok(hits)
    }

    fn replay_config(&self, size: &Size, capacity: usize, policy: PolicyKind) -> ReplayConfig {
        let config = ReplayConfig::default().block_size(size.runs.block_size()).capacity(Capacity::Blocks(capacity));
        config.policy(policy).outputs(self.config.outputs).max_cached_tokens(self.config.max_cached_tokens)
    }

    fn block_size(&self, size: &Size, index_bytes_per_token: f64) -> BlockSizeFigures {
        let block_size = size.runs.block_size();
        let requests = self.trace.requests().iter();
        let whole: u64 = requests.map(|request| (request.prompt_tokens() / block_size * block_size) as u64).sum();
        let shared = whole - (size.working_set * block_size) as u64;
        BlockSizeFigures {
            block_size,
            working_set_blocks: size.working_set,
            rounded_tokens: self.trace.prompt_tokens() - whole,
            lost_hit_tokens: self.shared_tokens - shared,
            index_bytes_per_token,
        }
    }

    /// Number of lines, which is the number of points of each capacity.
    fn lines(&self) -> usize {
        self.config.policies.len() + Line::REFERENCES.len()
    }

    /// The index of a line among the points of a capacity.
    fn place(&self, line: Line) -> usize {
        lines(&self.config).position(|other| other == line).unwrap_or(0)
    }
}

impl Size {
    fn point(&self, line: Line, capacity: usize, hits: &Hits) -> SweepPoint {
        SweepPoint::of_hits(line, self.runs.block_size(), capacity, self.working_set, hits)
    }

    /// Fails if the requests that a cache serves have more than `limit` distinct blocks: a flat
    /// cache numbers all of them.
    fn check(&self, capacity: usize, limit: usize) -> Result<(), SweepError> {
        let served = self.runs.keys().iter().filter(|&&key| key <= capacity);
        let blocks = served.fold(0, |sum: usize, &key| sum.saturating_add(key)).min(self.runs.distinct_blocks());
        if blocks > limit { Err(SweepError::TooManyBlocks { blocks, limit }) } else { Ok(()) }
    }
}

/// Whether a policy depends only on whole blocks, not on where sequences diverge inside a block.
/// False for lru, which is not replayed.
fn is_of_blocks_alone(policy: PolicyKind) -> bool {
    !matches!(policy, PolicyKind::Lru | PolicyKind::Level)
}

/// The lines of every capacity, in the order of its points.
fn lines(config: &SweepConfig) -> impl Iterator<Item = Line> + '_ {
    config.policies.iter().map(|&policy| Line::Policy(policy)).chain(Line::REFERENCES)
}

/// The jobs of a plan, the longest first.
fn jobs(config: &SweepConfig, sizes: &[Size]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (at, size) in sizes.iter().enumerate() {
        jobs.push(Job::Index { size: at });
        for line in lines(config) {
            if line == Line::Policy(PolicyKind::Lru) {
                let groups = stack::groups(&size.runs, &size.capacities).into_iter();
                jobs.extend(groups.map(|capacities| Job::Lru { size: at, capacities }));
            } else {
                jobs.extend((0..size.capacities.len()).map(|capacity| Job::Point { size: at, capacity, line }));
            }
        }
        jobs.push(Job::Infinite { size: at });
    }
    let simulated = |job: &Job| !matches!(job, Job::Index { .. } | Job::Point { line: Line::Policy(_), .. });
    jobs.sort_by_key(simulated);
    jobs
}
