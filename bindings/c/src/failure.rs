//! The reason why a call failed: misuse, found before anything changed, or an error of the core.

use std::fmt;

use radixkv::{
    AdoptError, BuildError, GrowError, InsertErrorKind, NamespaceInUse, ReserveError, RetainError, SettingError,
    TooManyLeases, UnknownPolicy, Violation,
};

use crate::status::Status;

/// The reason why a call failed. Only `radixkv_last_error` formats its text.
#[derive(Debug)]
pub(crate) enum Failure {
    Null(&'static str),
    Invalid { argument: &'static str, accepted: &'static str },
    BufferTooShort { argument: &'static str, needed: usize, room: usize },
    OtherCache(&'static str),
    Busy(&'static str),
    SequenceTooShort { tokens: usize, leased: usize },
    OtherPayer,
    NotExternal,
    Policy(UnknownPolicy),
    Build(BuildError),
    Reserve(ReserveError),
    Insert(InsertErrorKind),
    Retain(RetainError),
    Adopt(AdoptError),
    Grow(GrowError),
    Setting(SettingError),
    NamespaceInUse(NamespaceInUse),
    TooManyLeases(TooManyLeases),
    Violation(Violation),
    Panic(String),
}

impl Failure {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Null(_) => Status::NullPointer,
            Self::Invalid { .. } | Self::Policy(_) => Status::InvalidArgument,
            Self::BufferTooShort { .. } => Status::BufferTooShort,
            Self::OtherCache(_) => Status::OtherCache,
            Self::Busy(_) => Status::HandleBusy,
            Self::SequenceTooShort { .. } => Status::SequenceTooShort,
            Self::OtherPayer => Status::OtherPayer,
            Self::NotExternal => Status::NotExternal,
            Self::Build(BuildError::NoThread { .. }) => Status::NoThread,
            Self::Build(_) => Status::InvalidArgument,
            Self::Reserve(error) => of_reserve(error),
            Self::Insert(kind) => of_insert(kind),
            Self::Retain(RetainError::NamespaceDropped) => Status::NamespaceRemoved,
            Self::Retain(RetainError::Invalidated) => Status::Invalidated,
            Self::Retain(RetainError::TooManyLeases) | Self::TooManyLeases(_) => Status::TooManyLeases,
            Self::Adopt(AdoptError::Held { .. }) => Status::BlockHeld,
            Self::Adopt(AdoptError::OutOfRange { .. }) => Status::BlockOutOfRange,
            Self::Grow(_) => Status::CannotGrow,
            Self::Setting(SettingError::NotBackground) => Status::NotBackground,
            Self::Setting(SettingError::Watermarks { .. }) => Status::InvalidArgument,
            Self::NamespaceInUse(_) => Status::NamespaceInUse,
            Self::Violation(_) => Status::Violation,
            Self::Panic(_) => Status::Panicked,
            Self::Retain(_) | Self::Adopt(_) | Self::Setting(_) => Status::Other,
        }
    }

    /// The numbers of [`Error`](crate::status::Error): requested, available, limit.
    pub(crate) fn numbers(&self) -> [usize; 3] {
        match *self {
            Self::BufferTooShort { needed, room, .. } => [needed, room, 0],
            Self::SequenceTooShort { tokens, leased } => [leased, tokens, 0],
            Self::Reserve(ReserveError::Exhausted { requested, available })
            | Self::Reserve(ReserveError::TimedOut { requested, available }) => [requested, available, 0],
            Self::Reserve(ReserveError::TooLarge { requested, capacity }) => [requested, 0, capacity],
            Self::Reserve(ReserveError::OverQuota { requested, pinned, limit })
            | Self::Insert(InsertErrorKind::OverQuota { requested, pinned, limit }) => [requested, pinned, limit],
            Self::Insert(InsertErrorKind::BlockCount { needed, given }) => [needed, given, 0],
            Self::Insert(InsertErrorKind::TooLong { tokens }) => [tokens, 0, 0],
            Self::Insert(InsertErrorKind::SharedBlock { index }) => [index, 0, 0],
            Self::Adopt(AdoptError::Held { block }) => [block as usize, 0, 0],
            Self::Adopt(AdoptError::OutOfRange { block, capacity }) => [block as usize, 0, capacity],
            Self::Grow(GrowError { requested, capacity, limit, .. }) => [requested, capacity, limit],
            Self::NamespaceInUse(NamespaceInUse { leased_blocks, reserved_blocks, .. }) => {
                [0, leased_blocks, reserved_blocks]
            }
            _ => [0; 3],
        }
    }
}

fn of_reserve(error: &ReserveError) -> Status {
    match error {
        ReserveError::Exhausted { .. } => Status::Exhausted,
        ReserveError::OverQuota { .. } => Status::OverQuota,
        ReserveError::External => Status::ExternalPool,
        ReserveError::TimedOut { .. } => Status::TimedOut,
        ReserveError::TooLarge { .. } => Status::TooLarge,
        _ => Status::Other,
    }
}

fn of_insert(kind: &InsertErrorKind) -> Status {
    match kind {
        InsertErrorKind::BlockCount { .. } => Status::BlockCount,
        InsertErrorKind::TooLong { .. } => Status::SequenceTooLong,
        InsertErrorKind::OverQuota { .. } => Status::OverQuota,
        InsertErrorKind::SharedBlock { .. } => Status::SharedBlock,
        InsertErrorKind::NamespaceDropped => Status::NamespaceRemoved,
        InsertErrorKind::Invalidated => Status::Invalidated,
        InsertErrorKind::TooManyBranches => Status::TooManyBranches,
        _ => Status::Other,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null(argument) => write!(f, "{argument} is NULL"),
            Self::Invalid { argument, accepted } => write!(f, "{argument} must be {accepted}"),
            Self::BufferTooShort { argument, needed, room } => {
                write!(f, "{argument} has room for {room} elements, but the call may write {needed}")
            }
            Self::OtherCache(argument) => write!(f, "{argument} belongs to another cache"),
            Self::Busy(argument) => write!(f, "another thread is inside a call with {argument}"),
            Self::SequenceTooShort { tokens, leased } => {
                write!(f, "{tokens} tokens given, but the lease covers {leased}: pass the whole sequence")
            }
            Self::OtherPayer => f.write_str("different namespaces pay for the two reservations"),
            Self::NotExternal => f.write_str("the cache owns its blocks: build it with radixkv_builder_external"),
            Self::Policy(error) => error.fmt(f),
            Self::Build(error) => error.fmt(f),
            Self::Reserve(error) => error.fmt(f),
            Self::Insert(kind) => kind.fmt(f),
            Self::Retain(error) => error.fmt(f),
            Self::Adopt(error) => error.fmt(f),
            Self::Grow(error) => error.fmt(f),
            Self::Setting(error) => error.fmt(f),
            Self::NamespaceInUse(error) => error.fmt(f),
            Self::TooManyLeases(error) => error.fmt(f),
            Self::Violation(error) => error.fmt(f),
            Self::Panic(text) => write!(f, "a bug of radixkv: {text}"),
        }
    }
}

/// One `From` for each error of the core.
macro_rules! from {
    ($($variant:ident($error:ty)),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from! {
    Policy(UnknownPolicy), Build(BuildError), Reserve(ReserveError), Insert(InsertErrorKind), Retain(RetainError),
    Adopt(AdoptError), Grow(GrowError), Setting(SettingError), NamespaceInUse(NamespaceInUse),
    TooManyLeases(TooManyLeases), Violation(Violation),
}
