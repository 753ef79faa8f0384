//! Checks every invariant of a cache at rest, for
//! [`PrefixCache::validate`](crate::PrefixCache::validate).
//!
//! The evictor's lock is held and its queue is drained, so the tree and the evictor's accounts must
//! agree. A later pass follows only links that an earlier pass has checked.
//!
//! | file | pass |
//! |---|---|
//! | `tree` | queue, spaces, runs, points, their words and links |
//! | `blocks` | the pool, and every block in at most one place |
//! | `accounts` | the evictor's accounts of runs and points, and its totals |
//! | `ranking` | candidates, slots, their due times and the policy |
//! | `retained` | the evictor's leases on retained points |
//!
//! The walk keeps its own list instead of recursing, so a chain of any length is checked on any
//! stack. Its time is linear in the size of the index. Links are followed only from nodes that are
//! in the index; entries of the evictor's lists are compared by address. Nothing is repaired.

mod accounts;
mod blocks;
mod ranking;
mod retained;
mod tree;

#[cfg(test)]
mod tests;

use super::violation::{Violation, ensure_equal};
use crate::cache::evictor::{Evictor, Resources};
use crate::cache::inner::Inner;
use crate::sync::gauge::Relaxed;

/// Returns the first broken invariant that it finds.
pub(in crate::cache) fn validate(
    inner: &Inner,
    evictor: &Evictor<'_>,
    resources: Resources<'_>,
) -> Result<(), Violation> {
    tree::check_rest(evictor, resources)?;
    let spaces = tree::spaces(inner, evictor, resources)?;
    let mut runs = Vec::new();
    let counted = spaces.iter().map(|space| space.hidden_runs().load(Relaxed)).sum();
    for space in spaces {
        tree::walk(space, evictor, resources, &mut runs)?;
    }
    for recorded in [evictor.common.listeners.hidden.len(), counted] {
        let found = tree::hidden(&runs, resources);
        ensure_equal(recorded, found, "the number of partly invalidated runs is wrong")?;
    }
    blocks::check(inner, &runs, evictor, resources)?;
    accounts::check(&runs, evictor, resources)?;
    ranking::check(&runs, evictor, resources)?;
    retained::check(&runs, evictor, resources)
}
