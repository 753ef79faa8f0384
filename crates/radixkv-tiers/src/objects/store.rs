//! Objects in an object store: one thread makes many requests at once.

use std::{
    borrow::Cow,
    future::{Future, poll_fn},
    io,
    sync::Arc,
    time::Duration,
};

use futures_util::TryStreamExt as _;
use object_store::{
    Error, GetOptions, GetResult, GetResultPayload, ObjectStore, ObjectStoreExt as _, PutMode, PutPayload, path::Path,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    key::BlockKey,
    layout::{Layout, MAX_MANIFEST_BYTES},
    object::{self, HEADER_BYTES},
    open::{self, OpenError},
    queue::{Job, Queue},
    tier::{Buffer, Failure},
    worker::{self, Reply, Step},
};

/// The objects under a prefix.
#[derive(Debug)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    layout: Layout,
    timeout: Duration,
}

/// The answer of the store, which owns its memory.
enum Answer {
    Is(bool),
    Object(Vec<u8>),
    OtherLength(usize),
    Done,
}

/// Why the store did not answer.
enum NoAnswer {
    TimedOut,
    Refused(Error),
}

impl Objects {
    pub(super) fn new(store: Arc<dyn ObjectStore>, prefix: &str, layout: Layout, timeout: Duration) -> Self {
        Self { store, prefix: prefix.trim_matches('/').to_owned(), layout, timeout }
    }

    /// Compares the manifest under the prefix, and writes it if there is none.
    pub(super) async fn open(&self, place: &str) -> Result<(), OpenError> {
        let path = Path::from(format!("{}/manifest", self.prefix));
        let io = |no_answer| match no_answer {
            NoAnswer::TimedOut => OpenError::io(place, io::ErrorKind::TimedOut.into()),
            NoAnswer::Refused(error) => OpenError::io(place, io::Error::other(error)),
        };
        if let Some(manifest) = self.manifest(&path).await.map_err(io)? {
            return open::compare(&place, &self.layout, &manifest);
        }
        let write = |mode: PutMode| self.within(self.store.put_opts(&path, self.layout.manifest().into(), mode.into()));
        match write(PutMode::Create).await {
            Ok(_) => return Ok(()),
            // Another process wrote its manifest first, which is compared below.
            Err(NoAnswer::Refused(Error::AlreadyExists { .. } | Error::Precondition { .. })) => {}
            // The store cannot create conditionally: if two processes create a prefix at the same
            // time, the manifest of the last one remains.
            Err(NoAnswer::Refused(Error::NotImplemented { .. } | Error::NotSupported { .. })) => {
                return write(PutMode::Overwrite).await.map(drop).map_err(io);
            }
            Err(no_answer) => return Err(io(no_answer)),
        }
        let manifest = self.manifest(&path).await.map_err(io)?.unwrap_or_default();
        open::compare(&place, &self.layout, &manifest)
    }

    async fn manifest(&self, path: &Path) -> Result<Option<Vec<u8>>, NoAnswer> {
        let manifest = async {
            let (manifest, length) = read(self.store.get(path).await?, MAX_MANIFEST_BYTES).await?;
            // A longer manifest is invalid, whatever it contains.
            Ok(if length > MAX_MANIFEST_BYTES { Vec::new() } else { manifest })
        };
        self.within(async { found(manifest.await) }).await
    }

    async fn within<T>(&self, ask: impl Future<Output = Result<T, Error>>) -> Result<T, NoAnswer> {
        timeout(self.timeout, ask).await.map_err(|_| NoAnswer::TimedOut)?.map_err(NoAnswer::Refused)
    }

    fn path(&self, key: BlockKey) -> Path {
        let key = key.to_string();
        let (first, rest) = key.split_at(2);
        Path::from(format!("{}/{first}/{rest}", self.prefix))
    }

    async fn carry_out(&self, step: &Step) -> Result<Answer, Error> {
        match step {
            Step::Contains(key) => Ok(Answer::Is(found(self.is_current(*key).await)?.unwrap_or(false))),
            Step::Fetch(block, _) => Ok(found(self.fetch(block.key()).await)?.unwrap_or(Answer::Is(false))),
            Step::Store { key, object, .. } => {
                let object = PutPayload::from(bytes::Bytes::copy_from_slice(object.bytes()));
                self.store.put(&self.path(*key), object).await.map(|_| Answer::Done)
            }
            Step::Remove(key) => found(self.store.delete(&self.path(*key)).await).map(|_| Answer::Done),
        }
    }

    /// Whether an object has its full length and has not expired. If not, the block is put again.
    async fn is_current(&self, key: BlockKey) -> Result<bool, Error> {
        let head = GetOptions { range: Some((0..HEADER_BYTES as u64).into()), ..GetOptions::default() };
        let result = match self.store.get_opts(&self.path(key), head).await {
            // No object of a tier is too short for this range.
            Err(Error::Generic { .. }) => self.store.head(&self.path(key)).await.map(|_| None)?,
            result => Some(result?),
        };
        let Some(result) = result.filter(|result| result.meta.size == self.layout.object_bytes() as u64) else {
            return Ok(false);
        };
        let (head, _) = read(result, HEADER_BYTES).await?;
        Ok(object::expires(&head).is_some_and(|expires| !worker::is_over(expires)))
    }

    async fn fetch(&self, key: BlockKey) -> Result<Answer, Error> {
        let result = self.store.get(&self.path(key)).await?;
        let size = usize::try_from(result.meta.size).unwrap_or(usize::MAX);
        let max = self.layout.object_bytes();
        // An object of another length is not read.
        if size != max {
            return Ok(Answer::OtherLength(size));
        }
        let (object, length) = read(result, max).await?;
        Ok(if length > max { Answer::OtherLength(length) } else { Answer::Object(object) })
    }
}

/// Reads up to `max` bytes of an object, whatever length the store has announced. Returns them and
/// the number of bytes that have arrived, which is larger than `max` if the object is longer.
async fn read(result: GetResult, max: usize) -> Result<(Vec<u8>, usize), Error> {
    // A file has a known length. As a stream it would be a task for each 8 KiB.
    let announced = result.range.end.saturating_sub(result.range.start);
    if !matches!(result.payload, GetResultPayload::Stream(_)) && announced <= max as u64 {
        let bytes = result.bytes().await?;
        return Ok((bytes.to_vec(), bytes.len()));
    }
    let mut parts = result.into_stream();
    let (mut bytes, mut length) = (Vec::with_capacity(max), 0);
    while let Some(part) = parts.try_next().await? {
        bytes.extend_from_slice(&part[..part.len().min(max - bytes.len())]);
        length += part.len();
        if length > max {
            break;
        }
    }
    Ok((bytes, length))
}

/// Carries out requests until the queue is closed, then waits for the requests in progress.
pub(super) async fn run<B: Buffer>(objects: &Arc<Objects>, queue: &Arc<Queue<B>>, concurrency: usize) {
    let room = Arc::new(Semaphore::new(concurrency));
    loop {
        let permit = Arc::clone(&room).acquire_owned().await;
        let Some(jobs) = poll_fn(|context| queue.poll_take(context, 1)).await else { break };
        let (objects, queue) = (Arc::clone(objects), Arc::clone(queue));
        tokio::spawn(async move {
            for job in jobs {
                one(Arc::clone(&objects), &queue, job).await;
            }
            drop(permit);
        });
    }
    let _ = timeout(objects.timeout, room.acquire_many(u32::try_from(concurrency).unwrap_or(u32::MAX))).await;
}

/// Carries one request out.
async fn one<B: Buffer>(objects: Arc<Objects>, queue: &Queue<B>, job: Job<B>) {
    let (layout, due) = (&objects.layout, job.due().into());
    let Some((id, step)) = worker::prepare(queue, layout, job, || {}) else { return };
    let step = Arc::new(step);
    let answer = ask(&objects, step.clone(), due).await;
    let reply = match &answer {
        Ok(Answer::Is(is_there)) => Reply::Is(*is_there),
        Ok(Answer::Object(bytes)) => Reply::Object(Cow::Borrowed(bytes)),
        Ok(Answer::OtherLength(bytes)) => Reply::OtherLength(*bytes),
        Ok(Answer::Done) => Reply::Done,
        Err(failure) => Reply::Failed(*failure),
    };
    let reply = worker::verified(layout, &step, reply);
    if let (Step::Fetch(block, _), Reply::Missed(why)) = (&*step, &reply) {
        if why.is_for_good() {
            // Removed before the miss is reported: while it is there, the block counts as present
            // and is not put again. Another process may have put it since; that costs a hit.
            let _ = ask(&objects, Arc::new(Step::Remove(block.key())), due).await;
        }
    }
    worker::finish(queue, layout, id, reply);
}

/// Carries a step out on its own task, so that a panic in the store is detected.
async fn ask(objects: &Arc<Objects>, step: Arc<Step>, due: Instant) -> Result<Answer, Failure> {
    let asked = Arc::clone(objects);
    // Late requests are also cancelled here: a put that the store keeps retrying could otherwise
    // take effect at any later time.
    match tokio::spawn(async move { timeout_at(due, asked.carry_out(&step)).await }).await {
        Ok(Ok(Ok(answer))) => Ok(answer),
        Ok(Ok(Err(error))) => Err(failure(&error)),
        Ok(Err(_late)) => Err(Failure::TimedOut),
        Err(_panicked) => Err(Failure::Panicked),
    }
}

/// `None` if the store has no such object.
fn found<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Failure::Denied,
        Error::NotImplemented { .. } | Error::NotSupported { .. } => Failure::Denied,
        Error::Generic { .. } => Failure::Unreachable,
        _ => Failure::Protocol,
    }
}
