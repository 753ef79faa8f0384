//! Clearing and removing namespaces: their tree is detached, then its unleased blocks are freed
//! (`evictor::sweep`).

use std::fmt;

use super::{Namespace, NamespaceState};
use crate::cache::evictor::{SWEEP_SLICE, runs_below};
use crate::cache::inner::Inner;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::spans::within_span;
use crate::reclaim::Link;
use crate::sync::Arc;
use crate::tree::Space;

/// A namespace was not emptied because it is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamespaceInUse {
    /// Blocks that leases protect.
    pub leased_blocks: usize,
    /// Blocks of reservations that it pays for.
    pub reserved_blocks: usize,
}

impl fmt::Display for NamespaceInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { leased_blocks, reserved_blocks } = self;
        write!(f, "the namespace is in use: {leased_blocks} blocks leased, {reserved_blocks} reserved")
    }
}

impl std::error::Error for NamespaceInUse {}

pub(in crate::cache) fn clear_if_unused(cache: &PrefixCache, namespace: &Namespace) -> Result<(), NamespaceInUse> {
    let (inner, account) = (&*cache.inner, &namespace.0.account);
    inner.evicting(|_, _| account.tell(true));
    inner.listen_to_namespace(namespace);
    let (leased_blocks, reserved_blocks) = inner.replace_space_if(&namespace.0, true, || {
        let in_use = (account.protected(), account.reserved());
        if in_use == (0, 0) { Ok(()) } else { Err(in_use) }
    });
    inner.evicting(|_, _| account.tell(false));
    if (leased_blocks, reserved_blocks) == (0, 0) {
        return Ok(());
    }
    Err(NamespaceInUse { leased_blocks, reserved_blocks })
}

impl Inner {
    pub(in crate::cache) fn replace_space(&self, state: &NamespaceState, renew: bool) {
        self.replace_space_if(state, renew, || Ok(()));
    }

    /// Detaches the namespace's tree if `may` allows it, in the same turn. Returns the numbers with
    /// which `may` refused, else zeros.
    fn replace_space_if(
        &self,
        state: &NamespaceState,
        renew: bool,
        may: impl FnOnce() -> Result<(), (usize, usize)>,
    ) -> (usize, usize) {
        within_span!("clear");
        let mut in_use = (0, 0);
        let unswept = self.settled(|evictor, resources| {
            if let Err(numbers) = may() {
                in_use = numbers;
                return None;
            }
            // A removed namespace stays removed. The evictor's lock keeps removing and clearing
            // apart.
            state.root(resources.guard)?;
            let next = if renew {
                Space::plant(state.layout.offset(), Arc::clone(&state.account), resources.guard).as_ptr()
            } else {
                // In the same turn: events of a later namespace of the same name come after the end
                // of this one.
                self.namespaces.forget(state);
                evictor.end_quota(&state.account);
                std::ptr::null_mut()
            };
            let space = state.detach(next, resources.guard)?;
            evictor.tell_cleared(&space);
            evictor.list_detached(space.link());
            let is_done = evictor.begin_sweep(space, resources);
            (!is_done).then(|| space.link())
        });
        if let Some(space) = unswept {
            self.sweep(space);
        }
        self.reclaim();
        // If a quota has ended, a request that waits for it can be served.
        self.ring();
        in_use
    }

    /// Frees the unleased blocks of a detached space in slices, between which other threads get
    /// their turn. Then ends the space.
    fn sweep(&self, space: Link<Space>) {
        let local = self.participant();
        // Pinned throughout: runs that other threads evict meanwhile stay readable. The space
        // itself stays until `finish_sweep`.
        let guard = local.pin();
        while !self.in_turn(|evictor, resources| evictor.end_retentions(space.get(resources.guard), resources)) {}
        let Some(root) = space.get(&guard).root(&guard) else { return };
        let (runs, _) = runs_below(root, usize::MAX, &guard);
        let runs: Vec<_> = runs.into_iter().rev().map(|run| run.link()).collect();
        for slice in runs.chunks(SWEEP_SLICE) {
            self.in_turn(|evictor, resources| {
                evictor.sweep(slice.iter().map(|run| run.get(resources.guard)), resources);
            });
        }
        self.settled(|evictor, resources| evictor.finish_sweep(space.get(resources.guard), resources));
    }
}

#[cfg(test)]
mod tests;
