//! Records a `radixkv::PrefixCache`: turns its event batches into numbered batches for publishers.

mod scope;
#[cfg(all(test, feature = "zmq"))]
mod tests;

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use radixkv::{CacheEvent, EventBatch, Keys, NamespaceName, PrefixCache, Subscription};

use crate::{
    batch::{Batch, Numbered, new_epoch, now},
    change::{Change, ChangeError},
    divide::{Bounds, divide},
    event::{BlockId, Medium, Scope},
    hash::HashScheme,
    recorder::{Recorder, RecorderBuilder},
    wire::{MAX_HASHES, MAX_PAYLOAD},
};
#[cfg(feature = "zmq")]
use crate::{publish::Publisher, publish::Snapshot};

/// Limits of a batch that lists everything: what followers read.
const LISTED: Bounds = Bounds { events: usize::MAX, bytes: MAX_PAYLOAD, hashes: MAX_HASHES };

/// Turns the event batches of a [`radixkv::PrefixCache`] into batches for a `Publisher`.
///
/// The first batch, number 0, lists everything that is cached at
/// [`build`](CacheRecorderBuilder::build): a [`Cleared`](crate::Event::Cleared), then stores. After
/// it, each batch of the cache becomes one batch. If batches are lost, because [`next`](Self::next)
/// was not called for long or because a publisher's queue was full, their numbers are skipped, and
/// the batch after them again lists everything. So that batch makes a follower complete again even
/// without snapshots; with a snapshot it is complete earlier. A [`Follower`](crate::Follower)
/// returns [`Gap`](crate::Verdict::Gap) for that batch and does not apply it: call
/// [`accept_gap`](crate::Follower::accept_gap) with its number, then
/// [`take`](crate::Follower::take) it again.
///
/// A list of everything that exceeds a payload ([`MAX_PAYLOAD`]) is several batches; a follower holds
/// everything after the last of them.
///
/// A namespace is mapped to a scope by [`Scope::of_namespace`], or by the caller's function
/// ([`scopes`](CacheRecorderBuilder::scopes)). A namespace that compares pairs ([`Keys::Bigrams`])
/// has blocks of pairs.
///
/// The recorder keeps the cache alive, and takes 44 bytes for each cached block.
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
/// use radixkv_events::{CacheRecorder, Follower, HashScheme, Scope, Verdict};
///
/// let cache = PrefixCache::builder(2, 8).build()?;
/// let mut recorder = CacheRecorder::builder(&cache, HashScheme::xxh3()).build();
/// let (session, tenant, prompt) = (cache.session(), cache.namespace(&["tenant-7"]), [1, 2, 3, 4]);
/// let miss = session.match_prefix(&tenant, &prompt);
/// drop(session.insert(miss.lease(), &prompt, session.reserve(2)?)?);
///
/// let mut follower = Follower::new();
/// while let Some(numbered) = recorder.next()? {
///     assert_eq!(follower.take(&numbered)?, Verdict::Applied);
/// }
/// let hashes = HashScheme::xxh3().chain(&Scope::salted("tenant-7"), &prompt, 2);
/// assert!(hashes.iter().all(|hash| follower.holdings().contains(*hash)));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CacheRecorder {
    cache: PrefixCache,
    settings: CacheRecorderBuilder,
    subscription: Subscription,
    recorder: Recorder,
    scope: LastScope,
    /// The snapshot from `build`, until the first batch is made from it.
    first: Option<EventBatch>,
    /// The remaining batches of the last list of everything.
    listed: VecDeque<Numbered>,
    numbering: Arc<Mutex<Numbering>>,
    /// The number of the cache's next batch to record; `None` if the next batch must list
    /// everything.
    next: Option<u64>,
    resets: u64,
}

/// Settings of a [`CacheRecorder`].
#[derive(Clone)]
pub struct CacheRecorderBuilder {
    cache: PrefixCache,
    recorder: RecorderBuilder,
    scopes: Arc<ScopeOf>,
    channel: usize,
    /// Limits of a batch that lists everything.
    bounds: Bounds,
}

/// How the numbers of batches follow from those of the cache's batches, since everything was listed
/// last.
#[derive(Debug, Clone, Copy)]
struct Numbering {
    /// The number of the cache's first batch after the list.
    from: u64,
    /// The number of the batch that is made from it.
    seq: u64,
}

impl Numbering {
    /// The number of the batch that is made from one of the cache's; `None` for one before the list.
    fn of(self, batch: u64) -> Option<u64> {
        Some(self.seq + batch.checked_sub(self.from)?)
    }
}

type ScopeOf = dyn Fn(&NamespaceName) -> Scope + Send + Sync;

/// The scope of the last namespace. Consecutive events mostly have the same namespace.
#[derive(Debug, Default)]
struct LastScope(Option<(NamespaceName, Scope)>);

impl CacheRecorderBuilder {
    /// Sets the medium of the cache's blocks on the wire. Default: the GPU.
    pub fn medium(self, medium: Medium) -> Self {
        Self { recorder: self.recorder.media(vec![medium]), ..self }
    }

    /// Sets the data-parallel rank of this worker. Default: none.
    pub fn rank(self, rank: u32) -> Self {
        Self { recorder: self.recorder.rank(rank), ..self }
    }

    /// Sets the publisher's epoch. Default: a random number.
    pub fn epoch(self, epoch: u64) -> Self {
        Self { recorder: self.recorder.epoch(epoch), ..self }
    }

    /// Sets how a namespace is mapped to a scope. Two namespaces must not have the same scope,
    /// unless one compares tokens and the other pairs. Default: [`Scope::of_namespace`].
    pub fn scopes(self, scopes: impl Fn(&NamespaceName) -> Scope + Send + Sync + 'static) -> Self {
        Self { scopes: Arc::new(scopes), ..self }
    }

    /// Sets how many of the cache's event batches may wait to be recorded; more are dropped. A
    /// batch has mostly 64 events. Default: 4,096.
    pub fn channel(self, batches: usize) -> Self {
        Self { channel: batches, ..self }
    }

    /// Subscribes to the cache and takes a [snapshot](PrefixCache::snapshot). Waits its turn if
    /// another thread is evicting.
    pub fn build(self) -> CacheRecorder {
        let subscription = self.cache.subscribe(self.channel);
        let first = self.cache.snapshot();
        CacheRecorder {
            cache: self.cache.clone(),
            subscription,
            recorder: self.recorder.clone().build(),
            scope: LastScope::default(),
            listed: VecDeque::new(),
            numbering: Arc::new(Mutex::new(Numbering { from: first.number(), seq: 1 })),
            first: Some(first),
            next: None,
            resets: 0,
            settings: self,
        }
    }
}

impl CacheRecorder {
    /// Configures a recorder of a cache whose blocks are named by `scheme`.
    pub fn builder(cache: &PrefixCache, scheme: HashScheme) -> CacheRecorderBuilder {
        // No limit: recorded events are taken immediately.
        let recorder = Recorder::builder(cache.block_size(), scheme).epoch(new_epoch()).max_pending_blocks(usize::MAX);
        let scopes: Arc<ScopeOf> = Arc::new(Scope::of_namespace);
        CacheRecorderBuilder { cache: cache.clone(), recorder, scopes, channel: 4096, bounds: LISTED }
    }

    /// Returns the changes since the last call as the next batch; `None` if nothing has changed, or
    /// if another thread is evicting at the moment: a later call returns those changes. Hashes the
    /// stored blocks. It waits only for the evictor's lock, and only if it has to list everything.
    ///
    /// # Errors
    ///
    /// [`ChangeError`], if the cache's events contradict each other, which is a bug of the cache or
    /// of this crate. The next call lists everything again.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end, and this goes on")]
    pub fn next(&mut self) -> Result<Option<Numbered>, ChangeError> {
        if let Some(part) = self.listed.pop_front() {
            return Ok(Some(part));
        }
        let Some(next) = self.next else { return self.say_everything().map(Some) };
        loop {
            let Some(batch) = self.subscription.try_next() else {
                // The last batches were lost.
                let is_behind = self.subscription.next_number() > next;
                return if is_behind { self.say_everything().map(Some) } else { Ok(None) };
            };
            if batch.number() < next {
                // The last full listing already covers it.
                continue;
            }
            if batch.number() > next {
                return self.say_everything().map(Some);
            }
            return self.record(&batch).inspect_err(|_| self.next = None).map(Some);
        }
    }

    /// The publisher's epoch, which all its batches carry.
    pub fn epoch(&self) -> u64 {
        self.recorder.epoch()
    }

    /// The cache's event batches that were dropped because too many waited.
    pub fn lost_batches(&self) -> u64 {
        self.subscription.lost_batches()
    }

    /// How often a batch listed the whole content, including the first batch.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Moves the waiting batches, at most as many as the channel holds, into a publisher's queue,
    /// and returns how many there were.
    ///
    /// If the queue is full, the batch is lost and its number is skipped; the publisher counts it.
    /// Nothing more is queued until the queue has room, and the next batch then lists everything
    /// again.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    #[cfg(feature = "zmq")]
    pub fn pump(&mut self, publisher: &Publisher) -> Result<usize, ChangeError> {
        for pumped in 0..=self.settings.channel {
            // Listing everything takes long, and the batches would be dropped.
            if (self.next.is_none() || !self.listed.is_empty()) && !publisher.has_room() {
                return Ok(pumped);
            }
            let Some(numbered) = self.next()? else { return Ok(pumped) };
            if publisher.publish(numbered).is_err() {
                self.listed.clear();
                self.next = None;
            }
        }
        Ok(self.settings.channel)
    }

    /// The source of a publisher's snapshots, for
    /// [`PublisherBuilder::snapshot`](crate::PublisherBuilder::snapshot). Each call hashes
    /// everything that is cached.
    #[cfg(feature = "zmq")]
    pub fn snapshots(&self) -> impl FnMut() -> Snapshot + Send + 'static {
        let settings = self.settings.clone();
        let (epoch, numbering) = (Some(self.epoch()), Arc::clone(&self.numbering));
        move || {
            let (next, snapshot) = loop {
                let snapshot = settings.cache.snapshot();
                // If everything was listed since, the snapshot has no number: it is taken again.
                if let Some(next) = current(&numbering).of(snapshot.number()) {
                    break (next, snapshot);
                }
            };
            let mut recorder = settings.recorder.clone().build();
            let recorded = record(&snapshot, &mut recorder, &settings, &mut LastScope::default());
            debug_assert_eq!(recorded, Ok(()), "a snapshot is what is cached at one moment");
            let events = recorder.take(now()).map_or_else(Vec::new, |numbered| numbered.batch.events);
            Snapshot { next, epoch, events }
        }
    }

    fn record(&mut self, batch: &EventBatch) -> Result<Numbered, ChangeError> {
        record(batch, &mut self.recorder, &self.settings, &mut self.scope)?;
        self.next = Some(batch.number() + 1);
        let seq = current(&self.numbering).of(batch.number()).expect("a batch after the last list");
        Ok(self.recorder.take_as(seq, now()))
    }

    /// Resets the recorder, and makes batches that list everything that is cached now. Returns the
    /// first of them.
    fn say_everything(&mut self) -> Result<Numbered, ChangeError> {
        self.next = None;
        self.resets += 1;
        let snapshot = self.first.take().unwrap_or_else(|| self.cache.snapshot());
        self.recorder.forget();
        self.recorder.record(&Change::Cleared)?;
        record(&snapshot, &mut self.recorder, &self.settings, &mut self.scope)?;
        let numbering = current(&self.numbering);
        // One less than the number of the next batch: 0 the first time, later the number of a lost
        // batch. Each further batch of the list moves the numbers after it by one.
        let first = numbering.of(snapshot.number()).expect("a snapshot after the last list") - 1;
        let Numbered { seq, batch } = self.recorder.take_as(first, now());
        let lists = divide(batch.events, self.settings.bounds);
        let Batch { time, rank, epoch, .. } = batch;
        self.listed = (seq..)
            .zip(lists)
            .map(|(seq, events)| Numbered { seq, batch: Batch { time, events, rank, epoch } })
            .collect();
        let numbering = Numbering { from: snapshot.number(), seq: seq + self.listed.len() as u64 };
        *self.numbering.lock().unwrap_or_else(PoisonError::into_inner) = numbering;
        self.next = Some(snapshot.number());
        Ok(self.listed.pop_front().expect("there is at least one list"))
    }
}

fn current(numbering: &Mutex<Numbering>) -> Numbering {
    *numbering.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the events of one of the cache's batches.
fn record(
    batch: &EventBatch,
    recorder: &mut Recorder,
    settings: &CacheRecorderBuilder,
    scope: &mut LastScope,
) -> Result<(), ChangeError> {
    let mut removed: Vec<BlockId> = Vec::new();
    for event in batch.events() {
        match event {
            CacheEvent::Stored { namespace, parent, tokens, blocks, .. } => {
                let (scope, bigrams) = (scope.of(namespace, &*settings.scopes), is_of_pairs(namespace));
                let parent = parent.map(|block| (0, block));
                recorder.record(&Change::Stored { tier: 0, scope, parent, blocks, tokens, bigrams })?;
            }
            CacheEvent::Removed { blocks, .. } => {
                removed.clear();
                removed.extend(blocks.iter().rev());
                recorder.record(&Change::Removed { tier: 0, blocks: &removed })?;
            }
            CacheEvent::Cleared { namespace, .. } => {
                let (scope, bigrams) = (scope.of(namespace, &*settings.scopes), is_of_pairs(namespace));
                recorder.record(&Change::ScopeCleared { scope, bigrams })?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_of_pairs(namespace: &NamespaceName) -> bool {
    namespace.keys() == Keys::Bigrams
}

impl LastScope {
    fn of(&mut self, namespace: &NamespaceName, scopes: &ScopeOf) -> &Scope {
        if self.0.as_ref().is_none_or(|(last, _)| last != namespace) {
            self.0 = Some((namespace.clone(), scopes(namespace)));
        }
        &self.0.as_ref().expect("set above").1
    }
}

impl fmt::Debug for CacheRecorderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cache, recorder, channel, .. } = self;
        let mut out = f.debug_struct("CacheRecorderBuilder");
        out.field("cache", cache).field("recorder", recorder).field("channel", channel).finish_non_exhaustive()
    }
}
