//! The work of a tier's threads: read bytes from buffers, run the steps of a store, and write
//! verified bytes to buffers. A blocking store implements [`Store`]; an asynchronous one calls
//! [`prepare`], [`verified`] and [`finish`].

use std::{
    borrow::Cow,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{
    aligned::Aligned,
    caught::caught,
    key::{Block, BlockKey},
    layout::Layout,
    object::{self, Miss},
    queue::{Before, Job, JobId, Queue, Request},
    tier::{Buffer, Completion, Failure, NotGot, Outcome, Ticket},
};

/// The operation of a store for one request.
#[derive(Debug)]
pub(crate) enum Step {
    Contains(BlockKey),
    Fetch(Block, Use),
    Store {
        key: BlockKey,
        used: Use,
        object: Aligned,
        /// In milliseconds since 1970; 0: never. For stores that know which blocks have expired.
        expires: u64,
    },
    Remove(BlockKey),
}

/// A use of a block: its batch, and the block's position in its sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    /// A later batch has a larger number.
    pub(crate) batch: u64,
    pub(crate) number: u32,
    pub(crate) parent: Option<BlockKey>,
    /// For a put, `Terms::before`; otherwise the previous block.
    pub(crate) before: Option<Before>,
}

impl Use {
    fn of(block: &Block, batch: Ticket, before: Option<Before>) -> Self {
        Self { batch: batch.0, number: block.number(), parent: block.parent(), before }
    }

    /// The block that a job puts, and its use.
    pub(crate) fn of_put<B>(job: &Job<B>) -> Option<(BlockKey, Self)> {
        let Request::Put(put, terms) = &job.request else { return None };
        Some((put.block.key(), Self::of(&put.block, job.ticket, terms.before)))
    }
}

/// The reply of a store to a step.
#[derive(Debug)]
pub(crate) enum Reply<'a> {
    /// To [`Step::Contains`]; `Is(false)` also to [`Step::Fetch`] if the store has nothing.
    Is(bool),
    /// To [`Step::Fetch`]: any bytes.
    Object(Cow<'a, [u8]>),
    /// To [`Step::Fetch`]: a value that cannot be an object.
    #[cfg_attr(not(feature = "redis"), expect(dead_code))]
    Foreign,
    /// To [`Step::Fetch`]: a value with this number of bytes, which no object of the layout has.
    #[cfg_attr(not(feature = "object-store"), expect(dead_code))]
    OtherLength(usize),
    /// To [`Step::Fetch`]: the stored object is not the block.
    Missed(Miss),
    /// To [`Step::Store`] and [`Step::Remove`].
    Done,
    Failed(Failure),
}

/// A store that replies on the calling thread.
pub(crate) trait Store {
    /// The most steps to carry out together; more are not faster.
    fn batch(&self) -> usize;

    /// Waits for jobs and takes up to [`batch`](Self::batch) of them; `None` once the queue is
    /// closed.
    fn take<B>(&mut self, queue: &Queue<B>) -> Option<Vec<Job<B>>> {
        queue.take(self.batch())
    }

    /// Ends what [`take`](Self::take) began for a job that is not carried out, before the job is
    /// completed.
    fn give_up(&mut self) {}

    /// Carries steps out, and replies to each one once.
    fn carry_out(&mut self, steps: &[Step], reply: &mut dyn FnMut(usize, Reply<'_>));

    /// Removes a value under a key that is not the key's block. While it is there, the block counts
    /// as present and is not put again.
    fn discard(&mut self, key: BlockKey, why: Miss);
}

/// Carries out requests until the queue is closed.
pub(crate) fn work<B: Buffer>(queue: &Queue<B>, layout: &Layout, store: &mut impl Store) {
    while let Some(jobs) = store.take(queue) {
        let mut ids = Vec::with_capacity(jobs.len());
        let mut steps = Vec::with_capacity(jobs.len());
        for job in jobs {
            if let Some((id, step)) = prepare(queue, layout, job, || store.give_up()) {
                ids.push(id);
                steps.push(step);
            }
        }
        let mut wrong = Vec::new();
        let mut reply = |index: usize, reply: Reply<'_>| match verified(layout, &steps[index], reply) {
            // Completed only after it is removed, so that a put that follows finds the key free.
            Reply::Missed(why) if why.is_for_good() => wrong.push((index, why)),
            reply => finish(queue, layout, ids[index], reply),
        };
        if caught(|| store.carry_out(&steps, &mut reply)).is_none() {
            // The steps that have a reply are already completed.
            (0..steps.len()).for_each(|index| reply(index, Reply::Failed(Failure::Panicked)));
        }
        for (index, why) in wrong {
            if let Step::Fetch(block, _) = &steps[index] {
                let _ = caught(|| store.discard(block.key(), why));
            }
            finish(queue, layout, ids[index], Reply::Missed(why));
        }
    }
}

/// Makes a step from a job and parks the job. A job that fails before it reaches the store is
/// completed, after a call of `give_up`.
pub(crate) fn prepare<B: Buffer>(
    queue: &Queue<B>,
    layout: &Layout,
    job: Job<B>,
    give_up: impl FnOnce(),
) -> Option<(JobId, Step)> {
    let step = match &job.request {
        Request::Contains(key) => Ok(Step::Contains(*key)),
        Request::Get(get) => {
            Ok(Step::Fetch(get.block.clone(), Use::of(&get.block, job.ticket, Before::of(&get.block))))
        }
        Request::Remove(key) => Ok(Step::Remove(*key)),
        Request::Put(put, terms) => {
            let encoded = caught(|| {
                let payload = put.buffer.as_ref();
                if payload.len() != layout.block_bytes() {
                    return Err(Failure::Buffer);
                }
                let mut object = Aligned::new(layout.object_bytes());
                object::encode(layout, &put.block, terms.expires, payload, object.bytes_mut())?;
                Ok(object)
            });
            let used = Use::of(&put.block, job.ticket, terms.before);
            let store = |object| Step::Store { key: put.block.key(), used, object, expires: terms.expires };
            encoded.unwrap_or(Err(Failure::Buffer)).map(store)
        }
    };
    match step {
        Ok(step) => Some((queue.park(job), step)),
        Err(failure) => {
            give_up();
            queue.complete(fail(queue, job, failure));
            None
        }
    }
}

/// Verifies the reply to a fetch: returns either an object with the block's keys and values, or a
/// miss.
pub(crate) fn verified<'a>(layout: &Layout, step: &Step, reply: Reply<'a>) -> Reply<'a> {
    let Step::Fetch(block, _) = step else { return reply };
    let miss = match reply {
        Reply::Object(Cow::Borrowed(bytes)) => match object::verify(bytes, layout, block, now()) {
            Ok(payload) => return Reply::Object(payload),
            Err(miss) => miss,
        },
        // A decrypted object was verified before.
        Reply::Object(Cow::Owned(_)) => return reply,
        Reply::OtherLength(bytes) => Miss::Torn { bytes, expected: layout.object_bytes() },
        Reply::Foreign => Miss::NotAnObject,
        Reply::Failed(_) | Reply::Missed(_) => return reply,
        Reply::Is(_) | Reply::Done => Miss::Absent,
    };
    Reply::Missed(miss)
}

/// Completes a job with the store's reply, after [`verified`].
pub(crate) fn finish<B: Buffer>(queue: &Queue<B>, layout: &Layout, id: JobId, reply: Reply<'_>) {
    let Some(job) = queue.unpark(id) else { return };
    let completion = match reply {
        Reply::Failed(failure) => fail(queue, job, failure),
        reply => job.ends(|request| match (request, reply) {
            (Request::Get(mut get), reply) => {
                let got = got(&mut get.buffer, &reply);
                match got {
                    Ok(()) => queue.counters.hit(layout.object_bytes()),
                    Err(NotGot::Miss(miss)) => queue.counters.missed(miss),
                    Err(NotGot::Failed(failure)) => queue.counters.failed(failure),
                }
                Outcome::Got(get, got)
            }
            (Request::Contains(key), reply) => Outcome::Contained(key, Ok(matches!(reply, Reply::Is(true)))),
            (Request::Put(put, _), reply) => {
                let done = is_done(queue, &reply);
                if done.is_ok() {
                    queue.counters.stored(layout.object_bytes());
                }
                Outcome::Put(put, done)
            }
            (Request::Remove(key), reply) => {
                let done = is_done(queue, &reply);
                if done.is_ok() {
                    queue.counters.removed();
                }
                Outcome::Removed(key, done)
            }
        }),
    };
    queue.complete(completion);
}

/// Whether a store has carried out a put or a removal: no other reply says so.
fn is_done<B>(queue: &Queue<B>, reply: &Reply<'_>) -> Result<(), Failure> {
    if matches!(reply, Reply::Done) {
        return Ok(());
    }
    queue.counters.failed(Failure::Protocol);
    Err(Failure::Protocol)
}

fn fail<B>(queue: &Queue<B>, job: Job<B>, failure: Failure) -> Completion<B> {
    queue.counters.failed(failure);
    job.fails(failure)
}

/// Copies a block into a buffer, if the reply has the block's keys and values.
fn got(buffer: &mut impl Buffer, reply: &Reply<'_>) -> Result<(), NotGot> {
    let payload = match reply {
        Reply::Object(payload) => payload,
        Reply::Missed(miss) => return Err((*miss).into()),
        _ => return Err(Miss::Absent.into()),
    };
    let copied = caught(|| {
        let buffer = buffer.as_mut();
        let fits = buffer.len() == payload.len();
        if fits {
            buffer.copy_from_slice(payload);
        }
        fits
    });
    if copied == Some(true) { Ok(()) } else { Err(Failure::Buffer.into()) }
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Whether a block with this expiry has expired; in milliseconds since 1970; 0: never.
pub(crate) fn is_over(expires: u64) -> bool {
    expires != 0 && expires <= now()
}

/// The expiry of a block that is stored now; 0: never.
pub(crate) fn expiry(time_to_live: Option<Duration>) -> u64 {
    time_to_live.map_or(0, |time| {
        let millis = u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        now().saturating_add(millis).max(1)
    })
}
