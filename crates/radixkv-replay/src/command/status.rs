//! The exit statuses of the command, besides success.

/// A bug of the cache was found.
pub(crate) const BROKEN: u8 = 1;
/// The input, the command line or the system is at fault.
pub(crate) const AT_FAULT: u8 = 2;
