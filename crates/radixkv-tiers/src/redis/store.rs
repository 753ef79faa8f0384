//! Objects as strings of a Redis server, many commands at once.
//!
//! Replies are read one by one, each within what is left of the timeout. After anything but a reply the connection is given
//! up: what may still come on it belongs to no request.

use std::{
    io,
    time::{Duration, Instant},
};

use redis::{Connection, ErrorKind, RedisError, ServerErrorKind, Value, cmd};

use crate::{
    key::BlockKey,
    layout::{Layout, MAX_MANIFEST_BYTES},
    open::{self, OpenError},
    tier::Failure,
    worker::{self, Reply, Step, Store},
};

/// How long no connection is tried after the first that failed; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Bytes of commands, or of replies, that go together.
const BATCH_BYTES: usize = 4 << 20;
/// Commands that go together.
const MAX_BATCH: usize = 64;
/// A time to live beyond this is none: the server's own clock has an end.
const LONGEST_LIFE_MS: u64 = 100 * 365 * 86_400_000;

/// One connection to a server.
pub(super) struct RedisStore {
    client: redis::Client,
    prefix: String,
    layout: Layout,
    timeout: Duration,
    connection: Option<Connection>,
    /// When a connection is tried again, and how long is waited after that one.
    retry: Option<(Instant, Duration)>,
}

/// Why there is no connection.
enum Refused {
    Failed(RedisError),
    Manifest(OpenError),
}

impl RedisStore {
    pub(super) fn new(client: redis::Client, prefix: String, layout: Layout, timeout: Duration) -> Self {
        Self { client, prefix, layout, timeout, connection: None, retry: None }
    }

    /// Another connection to the same server.
    pub(super) fn another(&self) -> Self {
        Self::new(self.client.clone(), self.prefix.clone(), self.layout.clone(), self.timeout)
    }

    /// Connects for the first time.
    pub(super) fn open(&mut self, place: &str) -> Result<(), OpenError> {
        match self.connect(place) {
            Ok(_) => Ok(()),
            Err(Refused::Manifest(error)) => Err(error),
            Err(Refused::Failed(error)) => Err(OpenError::io(place, io::Error::other(error))),
        }
    }

    /// Connects and compares manifests: a server that was restarted may belong to another layout now.
    fn connect(&self, place: &str) -> Result<Connection, Refused> {
        let due = Instant::now() + self.timeout;
        let mut connection = self.client.get_connection_with_timeout(self.timeout).map_err(Refused::Failed)?;
        let name = format!("{}:manifest", self.prefix);
        let mut commands = cmd("SET").arg(&name).arg(self.layout.manifest()).arg("NX").get_packed_command();
        commands.extend(cmd("GETRANGE").arg(&name).arg(0).arg(MAX_MANIFEST_BYTES).get_packed_command());
        connection.set_write_timeout(Some(self.timeout)).map_err(Refused::Failed)?;
        connection.send_packed_command(&commands).map_err(Refused::Failed)?;
        receive(&mut connection, due).and_then(served).map_err(Refused::Failed)?;
        match receive(&mut connection, due) {
            Ok(Value::BulkString(manifest)) => {
                open::compare(&place, &self.layout, &manifest).map_err(Refused::Manifest)?;
                Ok(connection)
            }
            Ok(Value::ServerError(error)) if error.code() == "WRONGTYPE" => {
                Err(Refused::Manifest(OpenError::NotAStore { place: place.to_owned() }))
            }
            Ok(Value::ServerError(error)) => Err(Refused::Failed(error.into())),
            Ok(_) => Err(Refused::Failed((ErrorKind::UnexpectedReturnType, "no manifest").into())),
            Err(error) => Err(Refused::Failed(error)),
        }
    }

    /// The connection, or a new one, unless the last attempt was a moment ago.
    fn connection(&mut self) -> Result<Connection, Failure> {
        if let Some(connection) = self.connection.take() {
            return Ok(connection);
        }
        let pause = match self.retry {
            Some((at, _)) if Instant::now() < at => return Err(Failure::Unreachable),
            Some((_, pause)) => pause,
            None => FIRST_PAUSE,
        };
        match self.connect("") {
            Ok(connection) => {
                self.retry = None;
                Ok(connection)
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

    fn command(&self, step: &Step, out: &mut Vec<u8>) {
        let name = |key: &BlockKey| format!("{}:{key}", self.prefix);
        let command = match step {
            Step::Contains(key) => cmd("EXISTS").arg(name(key)).take(),
            // One byte more than an object has, so that longer ones are seen, and no more of them is sent.
            Step::Fetch(key) => cmd("GETRANGE").arg(name(key)).arg(0).arg(self.layout.object_bytes()).take(),
            Step::Remove(key) => cmd("DEL").arg(name(key)).take(),
            Step::Store { key, object, expires } => {
                let left = expires.saturating_sub(worker::now());
                match (expires, left) {
                    (0, _) | (_, LONGEST_LIFE_MS..) => cmd("SET").arg(name(key)).arg(object.bytes()).take(),
                    // It expired already, and with it what stood there.
                    (_, 0) => cmd("DEL").arg(name(key)).take(),
                    _ => cmd("SET").arg(name(key)).arg(object.bytes()).arg("PX").arg(left).take(),
                }
            }
        };
        out.extend(command.get_packed_command());
    }

    /// Sends commands and reads replies until one is none; how many there were, and why there are no more.
    fn exchange(
        &self,
        connection: &mut Connection,
        steps: &[Step],
        reply: &mut dyn FnMut(usize, Reply<'_>),
    ) -> Result<(), (usize, Failure)> {
        let due = Instant::now() + self.timeout;
        let mut commands = Vec::new();
        steps.iter().for_each(|step| self.command(step, &mut commands));
        connection.send_packed_command(&commands).map_err(|error| (0, failure(&error)))?;
        for (index, step) in steps.iter().enumerate() {
            let value = receive(connection, due).map_err(|error| (index, failure(&error)))?;
            match answer(step, &value) {
                Reply::Failed(Failure::Protocol) => return Err((index, Failure::Protocol)),
                known => reply(index, known),
            }
        }
        Ok(())
    }
}

impl Store for RedisStore {
    fn batch(&self) -> usize {
        (BATCH_BYTES / self.layout.object_bytes()).clamp(1, MAX_BATCH)
    }

    fn carry_out(&mut self, steps: &[Step], reply: &mut dyn FnMut(usize, Reply<'_>)) {
        let ended = match self.connection() {
            // A connection that is not put back is closed.
            Ok(mut connection) => {
                self.exchange(&mut connection, steps, reply).map(|()| self.connection = Some(connection))
            }
            Err(failure) => Err((0, failure)),
        };
        if let Err((first, failure)) = ended {
            (first..steps.len()).for_each(|index| reply(index, Reply::Failed(failure)));
        }
    }
}

fn receive(connection: &mut Connection, due: Instant) -> Result<Value, RedisError> {
    let left = due.saturating_duration_since(Instant::now());
    // A timeout of zero would be none.
    connection.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
    connection.recv_response()
}

/// What a reply says to a step.
fn answer<'a>(step: &Step, value: &'a Value) -> Reply<'a> {
    match (step, value) {
        (_, Value::ServerError(error)) if error.code() == "WRONGTYPE" => Reply::Foreign,
        (_, Value::ServerError(error)) => Reply::Failed(failure(&error.clone().into())),
        (Step::Contains(_), Value::Int(count)) => Reply::Is(*count > 0),
        (Step::Fetch(_), Value::Nil) => Reply::Is(false),
        (Step::Fetch(_), Value::BulkString(bytes)) if bytes.is_empty() => Reply::Is(false),
        (Step::Fetch(_), Value::BulkString(bytes)) => Reply::Object(bytes),
        (Step::Store { .. }, Value::Okay | Value::Int(_)) | (Step::Remove(_), Value::Int(_)) => Reply::Done,
        _ => Reply::Failed(Failure::Protocol),
    }
}

/// An error of the server's as an error.
fn served(value: Value) -> Result<Value, RedisError> {
    match value {
        Value::ServerError(error) if error.code() != "WRONGTYPE" => Err(error.into()),
        value => Ok(value),
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
            | ServerErrorKind::TryAgain,
        ) => Failure::Unreachable,
        _ => match error.code() {
            Some("OOM" | "MISCONF") => Failure::NoRoom,
            // Whatever else a server says in words: it is an answer, and no is its sense.
            Some(_) => Failure::Denied,
            None => Failure::Protocol,
        },
    }
}
