//! The specification of reserving: a counter that never falls below zero.

use todc_utils::Specification;

/// Blocks of the cache.
pub const CAPACITY: usize = 5;

/// A call with its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Reserve { blocks: usize, granted: bool },
    GiveBack { blocks: usize },
}

/// Free blocks of a cache that caches nothing.
pub struct Pool;

impl Specification for Pool {
    type State = usize;
    type Operation = Step;

    fn init() -> usize {
        CAPACITY
    }

    fn apply(step: &Step, free: &usize) -> (bool, usize) {
        match *step {
            Step::Reserve { blocks, granted: true } if blocks <= *free => (true, free - blocks),
            Step::Reserve { granted: true, .. } => (false, *free),
            Step::Reserve { blocks, granted: false } => (blocks > *free, *free),
            Step::GiveBack { blocks } => (free + blocks <= CAPACITY, free + blocks),
        }
    }
}
