//! Reports errors of the command, with a remedy, and maps them to exit statuses.

use std::{error::Error, process::ExitCode};

use radixkv::InsertErrorKind;
use radixkv_replay::{ReplayError, TraceError};

use crate::{
    console,
    live::LiveError,
    status::{AT_FAULT, BROKEN},
};

/// Prints an error and its remedy, and returns the exit status.
pub(crate) fn fail(error: &(dyn Error + 'static)) -> ExitCode {
    let error = match error.downcast_ref() {
        Some(LiveError::Replay(error)) => error,
        _ => error,
    };
    match remedy(error) {
        Some(remedy) => console::say(format_args!("radixkv: {error}; {remedy}")),
        None => console::say(format_args!("radixkv: {error}")),
    }
    ExitCode::from(if is_broken(error) { BROKEN } else { AT_FAULT })
}

/// The options that help against an error, if there are any.
pub(crate) fn remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(TraceError::LongLine { .. }), _) => Some("raise the limit with --max-line-bytes"),
        (Some(TraceError::TooManyRows { .. }), _) => Some("raise the limit with --max-rows"),
        (Some(TraceError::TooManyTokens { .. }), _) => Some("raise the limit with --max-tokens"),
        (Some(TraceError::NoMemory { .. }), _) => Some("replay a part of the trace"),
        (_, Some(ReplayError::RequestTooLong { .. })) => {
            Some("raise the limit with --max-request-tokens, or bypass the cache with --longest")
        }
        (_, Some(ReplayError::CacheTooLarge { .. })) => Some("raise the limit with --max-tokens, or lower --capacity"),
        (_, Some(ReplayError::NoMemory(_))) => Some("lower --capacity, or replay a part of the trace"),
        (_, Some(ReplayError::ServiceExcludes)) => Some("remove --checks or --service"),
        (_, Some(ReplayError::AllWarmUp { .. })) => Some("lower --warm-up"),
        (_, Some(ReplayError::NoThread { .. })) => Some("use fewer --threads"),
        _ => None,
    }
}

/// Whether the cache is at fault.
fn is_broken(error: &(dyn Error + 'static)) -> bool {
    match error.downcast_ref() {
        Some(ReplayError::NotInserted { kind, .. }) => !matches!(kind, InsertErrorKind::TooLong { .. }),
        Some(ReplayError::Check { .. } | ReplayError::Refused { .. }) => true,
        _ => false,
    }
}
