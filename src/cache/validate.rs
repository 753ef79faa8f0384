//! Checking every invariant of a cache at rest.

use std::fmt;

use super::Inner;
use super::evictor::{Evictor, Works};

/// A broken invariant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {}

impl fmt::Display for Violation {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl std::error::Error for Violation {}

pub(super) fn validate(_: &Inner, _: &Evictor, _: Works<'_>) -> Result<(), Violation> {
    Ok(())
}
