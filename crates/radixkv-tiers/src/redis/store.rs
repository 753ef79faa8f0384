//! The store of a Redis tier: objects as strings of a server, many commands in one exchange.
//!
//! Replies are read one by one, within the remaining timeout. After any unexpected reply, the
//! connection is closed: later replies on it belong to no request.

use std::{
    borrow::Cow,
    io,
    time::{Duration, Instant},
};

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value, cmd};

use super::link::{Address, Link};
use crate::{
    key::BlockKey,
    layout::{Layout, MAX_MANIFEST_BYTES},
    object::Miss,
    open::{self, OpenError},
    tier::Failure,
    worker::{self, Reply, Step, Store},
};

/// The pause after the first failed connection attempt; it doubles after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The maximum bytes of commands, or of replies, in one exchange.
const BATCH_BYTES: usize = 4 << 20;
/// The maximum number of commands in one exchange.
const MAX_BATCH: usize = 64;
/// A longer time to live counts as none: the server's clock is limited.
const LONGEST_LIFE_MS: u64 = 100 * 365 * 86_400_000;

/// One connection to a server.
pub(super) struct RedisStore {
    address: Address,
    prefix: String,
    layout: Layout,
    timeout: Duration,
    link: Option<Link>,
    /// When the next connection attempt is allowed, and the pause if that one fails.
    retry: Option<(Instant, Duration)>,
}

/// Why a connection could not be made.
enum Refused {
    Failed(RedisError),
    Manifest(OpenError),
}

impl RedisStore {
    pub(super) fn new(address: Address, prefix: String, layout: Layout, timeout: Duration) -> Self {
        Self { address, prefix, layout, timeout, link: None, retry: None }
    }

    /// Another connection to the same server.
    pub(super) fn another(&self) -> Self {
        Self::new(self.address.clone(), self.prefix.clone(), self.layout.clone(), self.timeout)
    }

    /// Connects for the first time.
    pub(super) fn open(&mut self, place: &str) -> Result<(), OpenError> {
        match self.connect(place) {
            Ok(_) => Ok(()),
            Err(Refused::Manifest(error)) => Err(error),
            Err(Refused::Failed(error)) => Err(OpenError::io(place, io::Error::other(error))),
        }
    }

    /// Connects and compares manifests: after a restart the server may belong to another layout.
    fn connect(&self, place: &str) -> Result<Link, Refused> {
        let mut link = self.address.connect(self.timeout).map_err(Refused::Failed)?;
        let name = format!("{}:manifest", self.prefix);
        let write = cmd("SET").arg(&name).arg(self.layout.manifest()).arg("NX").take();
        let read = cmd("GETRANGE").arg(&name).arg(0).arg(MAX_MANIFEST_BYTES).take();
        let mut last = Value::Nil;
        let mut keep = |value| {
            last = value;
            true
        };
        link.exchange(&[write, read], self.timeout, &mut keep).map_err(Refused::Failed)?;
        match last {
            Value::BulkString(manifest) => {
                open::compare(&place, &self.layout, &manifest).map_err(Refused::Manifest)?;
                Ok(link)
            }
            Value::ServerError(error) if error.code() == "WRONGTYPE" => {
                Err(Refused::Manifest(OpenError::NotAStore { place: place.to_owned() }))
            }
            Value::ServerError(error) => Err(Refused::Failed(error.into())),
            _ => Err(Refused::Failed((ErrorKind::UnexpectedReturnType, "no manifest").into())),
        }
    }

    /// The connection, or a new one, unless an attempt failed shortly before.
    fn link(&mut self) -> Result<Link, Failure> {
        if let Some(link) = self.link.take() {
            return Ok(link);
        }
        let pause = match self.retry {
            Some((at, _)) if Instant::now() < at => return Err(Failure::Unreachable),
            Some((_, pause)) => pause,
            None => FIRST_PAUSE,
        };
        match self.connect("") {
            Ok(link) => {
                self.retry = None;
                Ok(link)
            }
            Err(refused) => {
                self.retry = Some((Instant::now() + pause, (pause * 2).min(LONGEST_PAUSE)));
                Err(match refused {
                    Refused::Failed(error) => failure(&error),
                    Refused::Manifest(_) => Failure::OtherLayout,
                })
            }
        }
    }

    fn command(&self, step: &Step) -> Cmd {
        let name = |key: &BlockKey| format!("{}:{key}", self.prefix);
        match step {
            Step::Contains(key) => cmd("EXISTS").arg(name(key)).take(),
            // Requests one byte more than an object has: longer values are detected, but not sent
            // in full.
            Step::Fetch(block, _) => {
                cmd("GETRANGE").arg(name(&block.key())).arg(0).arg(self.layout.object_bytes()).take()
            }
            Step::Remove(key) => cmd("DEL").arg(name(key)).take(),
            Step::Store { key, object, expires, .. } => {
                let left = expires.saturating_sub(worker::now());
                match (expires, left) {
                    (0, _) | (_, LONGEST_LIFE_MS..) => cmd("SET").arg(name(key)).arg(object.bytes()).take(),
                    // The block has already expired: only an older value is removed.
                    (_, 0) => cmd("DEL").arg(name(key)).take(),
                    _ => cmd("SET").arg(name(key)).arg(object.bytes()).arg("PX").arg(left).take(),
                }
            }
        }
    }

    /// Carries steps out. If a reply is missing or unexpected, returns how many replies there were,
    /// and the failure.
    fn exchange(
        &self,
        link: &mut Link,
        steps: &[Step],
        reply: &mut dyn FnMut(usize, Reply<'_>),
    ) -> Result<(), (usize, Failure)> {
        let commands: Vec<_> = steps.iter().map(|step| self.command(step)).collect();
        let mut replied = 0;
        let mut each = |value| match answer(&steps[replied], &value) {
            Reply::Failed(Failure::Protocol) => false,
            known => {
                reply(replied, known);
                replied += 1;
                true
            }
        };
        let ended = link.exchange(&commands, self.timeout, &mut each);
        match ended {
            Err(error) => Err((replied, failure(&error))),
            Ok(()) if replied < steps.len() => Err((replied, Failure::Protocol)),
            Ok(()) => Ok(()),
        }
    }
}

impl Store for RedisStore {
    fn batch(&self) -> usize {
        (BATCH_BYTES / self.layout.object_bytes()).clamp(1, MAX_BATCH)
    }

    fn carry_out(&mut self, steps: &[Step], reply: &mut dyn FnMut(usize, Reply<'_>)) {
        let ended = match self.link() {
            // A connection that is not put back is closed by dropping it.
            Ok(mut link) => self.exchange(&mut link, steps, reply).map(|()| self.link = Some(link)),
            Err(failure) => Err((0, failure)),
        };
        if let Err((first, failure)) = ended {
            (first..steps.len()).for_each(|index| reply(index, Reply::Failed(failure)));
        }
    }

    /// Another process may have put the block again since it was read; that costs a hit.
    fn discard(&mut self, key: BlockKey, _why: Miss) {
        self.carry_out(&[Step::Remove(key)], &mut |_, _| {});
    }
}

/// Interprets the reply to a step.
fn answer<'a>(step: &Step, value: &'a Value) -> Reply<'a> {
    match (step, value) {
        (Step::Fetch(..), Value::ServerError(error)) if error.code() == "WRONGTYPE" => Reply::Foreign,
        (_, Value::ServerError(error)) => Reply::Failed(failure(&error.clone().into())),
        (Step::Contains(_), Value::Int(count)) => Reply::Is(*count > 0),
        (Step::Fetch(..), Value::Nil) => Reply::Is(false),
        (Step::Fetch(..), Value::BulkString(bytes)) if bytes.is_empty() => Reply::Is(false),
        (Step::Fetch(..), Value::BulkString(bytes)) => Reply::Object(Cow::Borrowed(bytes)),
        (Step::Store { .. }, Value::Okay | Value::Int(_)) | (Step::Remove(_), Value::Int(_)) => Reply::Done,
        _ => Reply::Failed(Failure::Protocol),
    }
}

fn failure(error: &RedisError) -> Failure {
    if error.is_timeout() {
        return Failure::TimedOut;
    }
    match error.kind() {
        ErrorKind::Io => Failure::Unreachable,
        ErrorKind::AuthenticationFailed => Failure::Denied,
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::NoPerm) => Failure::Denied,
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::TryAgain
            // The slots of a cluster are moving: the next connection learns the new positions.
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask,
        ) => Failure::Unreachable,
        _ => match error.code() {
            Some("OOM" | "MISCONF") => Failure::NoRoom,
            // Any other error code is an answer of the server, and a refusal.
            Some(_) => Failure::Denied,
            None => Failure::Protocol,
        },
    }
}
