//! Publishes the state of a running replay in a file that is replaced a few times a second, for
//! `radixkv top`.
//!
//! The file always contains one complete [`State`] as JSON. `top` can also show a [`State`] from
//! any other source.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use radixkv_replay::{
    Replay, ReplayConfig, ReplayError, Trace,
    details::{HotPrefix, PrefixHits},
    prefixes::PrefixTree,
    replay::Served,
};
use serde::{Deserialize, Serialize};

use crate::{
    input::Input,
    output::{Output, OutputError},
};

/// How often the file is replaced.
const PERIOD: Duration = Duration::from_millis(250);
/// Number of periods that are kept.
const KEPT: usize = 240;
/// Number of prefixes that are listed.
const LISTED: usize = 20;

/// The state of a cache at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) trace: String,
    /// Empty if the source does not give it.
    pub(crate) policy: String,
    pub(crate) capacity_blocks: usize,
    pub(crate) block_size: usize,
    /// Number of requests of the whole trace.
    pub(crate) all_requests: usize,
    /// Number of requests that were served so far.
    pub(crate) requests: usize,
    pub(crate) bypassed_requests: usize,
    pub(crate) prompt_tokens: u64,
    pub(crate) hit_tokens: u64,
    pub(crate) cached_blocks: usize,
    pub(crate) protected_blocks: usize,
    pub(crate) inserted_blocks: u64,
    pub(crate) evicted_blocks: u64,
    pub(crate) index_bytes: usize,
    pub(crate) runs: usize,
    pub(crate) seconds: f64,
    /// The counts of each of the last periods, the latest at the end.
    pub(crate) periods: VecDeque<Period>,
    pub(crate) top_prefixes: Vec<HotPrefix>,
    /// The counts of each namespace; empty if the source has none.
    #[serde(default)]
    pub(crate) namespaces: Vec<Namespace>,
    /// Lookups a second; `None` if it is `requests` over `seconds`.
    #[serde(default)]
    pub(crate) per_second: Option<f64>,
    /// Whether the replay has ended.
    pub(crate) ended: bool,
}

/// The lookups of a namespace, and their hits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    pub(crate) lookups: u64,
    pub(crate) query_tokens: u64,
    pub(crate) hit_tokens: u64,
}

/// The counts of one period, or the totals at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Period {
    pub(crate) requests: usize,
    pub(crate) prompt_tokens: u64,
    pub(crate) hit_tokens: u64,
    pub(crate) evicted_blocks: u64,
}

/// The file that is replaced.
pub(crate) struct LiveFile {
    path: PathBuf,
    input: Input,
}

impl LiveFile {
    /// Checks that the file can be written. Changes nothing.
    pub(crate) fn new(path: &Path, input: &Input) -> Result<Self, OutputError> {
        Output::new(path, input)?;
        Ok(Self { path: path.into(), input: input.clone() })
    }

    fn write(&self, state: &State) -> Result<(), OutputError> {
        let text = serde_json::to_vec(state);
        let written =
            Output::new(&self.path, &self.input)?.write(|file| file.write_all(&text.map_err(io::Error::other)?));
        written?.publish()
    }
}

/// Why the file was not written, or why the replay failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveError {
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// Replays while another thread keeps the file up to date. At the end, the file says that the
/// replay has ended.
pub(crate) fn told(
    file: &LiveFile,
    name: &str,
    trace: &Trace,
    config: &ReplayConfig,
    replay: impl FnOnce(&(dyn Fn(Served<'_>) + Sync)) -> Result<Replay, ReplayError>,
) -> Result<Replay, LiveError> {
    let tree = PrefixTree::new(trace, trace.requests().len(), config.block_size, config.outputs);
    let tree = tree.map_err(ReplayError::from)?;
    let course = Mutex::new(Course::new(name, trace, config, &tree));
    file.write(&locked(&course).state(false))?;
    let (ended, end) = mpsc::channel();
    thread::scope(|scope| {
        let teller = scope.spawn(|| tell(file, &course, end));
        let replayed = replay(&|served| locked(&course).add(&served));
        drop(ended);
        if let Ok(told) = teller.join() {
            told?;
        }
        file.write(&locked(&course).state(true))?;
        Ok(replayed?)
    })
}

/// Replaces the file periodically, until the sender of the channel is dropped.
fn tell(file: &LiveFile, course: &Mutex<Course<'_>>, end: Receiver<()>) -> Result<(), OutputError> {
    while end.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
        let state = locked(course).state(false);
        file.write(&state)?;
    }
    Ok(())
}

fn locked<'a, 'b>(course: &'b Mutex<Course<'a>>) -> std::sync::MutexGuard<'b, Course<'a>> {
    // A panic may leave the counts inconsistent, but they are only shown.
    course.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state that is collected while a replay runs.
struct Course<'a> {
    began: Instant,
    trace: &'a Trace,
    block_size: usize,
    hits: PrefixHits<'a>,
    state: State,
    /// The totals at the end of the last period.
    last: Period,
}

impl<'a> Course<'a> {
    fn new(name: &str, trace: &'a Trace, config: &ReplayConfig, tree: &'a PrefixTree) -> Self {
        let state = State {
            trace: name.to_owned(),
            policy: config.policy.to_string(),
            block_size: config.block_size,
            all_requests: trace.requests().len(),
            ..State::default()
        };
        let hits = PrefixHits::new(tree, config.block_size);
        Self { began: Instant::now(), trace, block_size: config.block_size, hits, state, last: Period::default() }
    }

    fn add(&mut self, served: &Served<'_>) {
        let (state, outcome, stats) = (&mut self.state, served.outcome, served.cache.stats());
        self.hits.add(served.number, outcome);
        state.requests += 1;
        state.bypassed_requests += usize::from(outcome.hit_blocks.is_none());
        state.prompt_tokens += outcome.prompt_tokens as u64;
        state.hit_tokens += outcome.hit_tokens(self.block_size) as u64;
        state.capacity_blocks = stats.capacity_blocks;
        state.cached_blocks = stats.evictable_blocks + stats.protected_blocks;
        state.protected_blocks = stats.protected_blocks;
        (state.inserted_blocks, state.evicted_blocks) = (stats.inserted_blocks, stats.evicted_blocks);
        (state.index_bytes, state.runs) = (stats.index_bytes, stats.runs);
    }

    /// Ends a period and returns the state.
    fn state(&mut self, ended: bool) -> State {
        let state = &mut self.state;
        let (requests, prompt_tokens) = (state.requests, state.prompt_tokens);
        let now =
            Period { requests, prompt_tokens, hit_tokens: state.hit_tokens, evicted_blocks: state.evicted_blocks };
        if now != self.last {
            state.periods.push_back(now.since(self.last));
            self.last = now;
        }
        if state.periods.len() > KEPT {
            state.periods.pop_front();
        }
        state.seconds = self.began.elapsed().as_secs_f64();
        state.ended = ended;
        state.top_prefixes = self.hits.hottest(self.trace, LISTED);
        state.clone()
    }
}

impl Period {
    fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests - earlier.requests,
            prompt_tokens: self.prompt_tokens - earlier.prompt_tokens,
            hit_tokens: self.hit_tokens - earlier.hit_tokens,
            evicted_blocks: self.evicted_blocks.saturating_sub(earlier.evicted_blocks),
        }
    }

    /// Hit tokens over prompt tokens.
    pub(crate) fn hit_rate(&self) -> f64 {
        self.hit_tokens as f64 / self.prompt_tokens.max(1) as f64
    }
}
