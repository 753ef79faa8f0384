//! Making, dropping and clearing namespaces.

use std::fmt;

use super::{Namespace, NamespaceState};
use crate::cache::evictor::{SWEEP_SLICE, runs_below};
use crate::cache::inner::Inner;
use crate::cache::prefix_cache::PrefixCache;
use crate::cache::spans::within_span;
use crate::name::{Keys, NamespaceName};
use crate::reclaim::Link;
use crate::sync::Arc;
use crate::sync::gauge::Relaxed;
use crate::tree::Space;

impl PrefixCache {
    /// The namespace of sequences that need no separation.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(16, 8).build()?;
    /// assert!(cache.default_namespace() == cache.namespace(&[]));
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn default_namespace(&self) -> Namespace {
        Namespace(Arc::clone(&self.inner.namespaces.default))
    }

    /// The namespace of this name, made if it is new: an adapter, a tenant's salt, a model version, or several of them.
    ///
    /// The parts are kept apart: `["bc", "a"]` and `["c", "ab"]` are two namespaces. No parts name the default one. Takes
    /// a lock: ask once and keep the handle, do not ask for each request. Where many namespaces are left without a handle and
    /// without blocks, the making of a new one forgets some of them, unless another thread is evicting.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let session = cache.session();
    /// let (base, lora) = (cache.default_namespace(), cache.namespace(&["lora-7"]));
    /// drop(session.insert(session.match_prefix(&lora, &[1, 2]).lease(), &[1, 2], session.reserve(1)?)?);
    /// assert_eq!((session.peek(&lora, &[1, 2]), session.peek(&base, &[1, 2])), (2, 0));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn namespace(&self, parts: &[&str]) -> Namespace {
        self.namespace_with(parts, Keys::Tokens)
    }

    /// As [`namespace`](Self::namespace), with a choice of what is compared. That choice is part of the name: the same
    /// parts with other keys are another namespace, and the two share nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::{Keys, PrefixCache};
    /// let cache = PrefixCache::builder(1, 8).build()?;
    /// let (session, draft) = (cache.session(), cache.namespace_with(&["draft"], Keys::Bigrams));
    /// let tokens = [1, 2, 3, 4]; // three pairs
    /// let miss = session.match_prefix(&draft, &tokens);
    /// let inserted = session.insert(miss.lease(), &tokens, session.reserve(3)?)?;
    /// assert_eq!((inserted.lease.len_tokens(), inserted.dropped_tokens), (3, 1));
    /// assert_eq!(session.peek(&draft, &[1, 2, 3, 9]), 2);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn namespace_with(&self, parts: &[&str], keys: Keys) -> Namespace {
        if parts.is_empty() && keys == Keys::Tokens {
            return self.default_namespace();
        }
        let name = NamespaceName::new(parts, keys);
        let registry = &self.inner.namespaces;
        let mut names = registry.names.lock();
        if let Some(state) = names.states.get(&name) {
            return Namespace(Arc::clone(state));
        }
        let local = self.inner.participant();
        let (grid, row) = (self.inner.grid, self.inner.domain.records().row());
        let state = Arc::new(NamespaceState::new(name.clone(), grid, &registry.family, row, &local.pin()));
        names.states.insert(name, Arc::clone(&state));
        let pass_is_due = names.states.len() >= names.next_pass;
        drop(names);
        if pass_is_due {
            // Relaxed: a hint to the next thread that evicts.
            registry.behind.store(true, Relaxed);
            if let Some(background) = self.inner.background.get() {
                background.changes_pending();
            } else {
                // More than this one: so they do not pile up, however short sessions are.
                self.inner.try_evicting(|evictor, resources| registry.tidy(evictor, resources));
            }
        }
        Namespace(state)
    }

    /// Ends a namespace: its idle blocks are free when this returns, leased blocks when their leases are dropped.
    ///
    /// Matches through old handles are empty and inserts are refused; asking for the name again makes a new, empty
    /// namespace. The default namespace is cleared instead. Waits its turn if another thread is evicting.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// let old = cache.namespace(&["model-v1"]);
    /// cache.drop_namespace(&old);
    /// assert!(old != cache.namespace(&["model-v1"])); // a new one
    /// # Ok::<_, radixkv::BuildError>(())
    /// ```
    pub fn drop_namespace(&self, namespace: &Namespace) {
        self.inner.namespaces.check(namespace);
        if Arc::ptr_eq(&namespace.0, &self.inner.namespaces.default) {
            self.clear_namespace(namespace);
            return;
        }
        self.inner.replace_space(&namespace.0, false);
    }

    /// Empties a namespace: its idle blocks are free when this returns, leased blocks when their leases are dropped.
    ///
    /// Lookups that begin after this find none of the old blocks. Inserting from an older lease is refused;
    /// [`resume`](crate::Session::resume) and [`match_partial`](crate::Session::match_partial) from one still find the old
    /// blocks that leases keep. Waits its turn if another thread is evicting.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.namespace(&["lora-7"]));
    /// drop(session.insert(session.match_prefix(&space, &[1, 2]).lease(), &[1, 2], session.reserve(1)?)?);
    /// cache.clear_namespace(&space); // the adapter's weights have changed
    /// assert_eq!(session.peek(&space, &[1, 2]), 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear_namespace(&self, namespace: &Namespace) {
        self.inner.namespaces.check(namespace);
        self.inner.replace_space(&namespace.0, true);
    }

    /// Empties a namespace that nothing uses, or changes nothing.
    ///
    /// Looked at and emptied in one turn: a lease or a reservation that is counted then keeps the namespace as it is. A match that
    /// comes at the same moment may be before or after; if it is before, its blocks stay until it is dropped, as after
    /// [`clear_namespace`](Self::clear_namespace).
    ///
    /// # Errors
    ///
    /// [`NamespaceInUse`], with the numbers.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.namespace(&["lora-7"]));
    /// let lease = session.insert(session.match_prefix(&space, &[]).lease(), &[1, 2], session.reserve(1)?)?.lease;
    /// let refused = cache.clear_unused_namespace(&space).unwrap_err();
    /// assert_eq!(refused.to_string(), "the namespace is in use: 1 blocks leased, 0 reserved");
    /// drop(lease);
    /// cache.clear_unused_namespace(&space)?;
    /// assert_eq!(cache.stats().free_blocks, 8);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear_unused_namespace(&self, namespace: &Namespace) -> Result<(), NamespaceInUse> {
        self.inner.namespaces.check(namespace);
        let holdings = &namespace.0.holdings;
        let (leased_blocks, reserved_blocks) = self.inner.replace_space_if(&namespace.0, true, || {
            let in_use = (holdings.protected(), holdings.reserved());
            if in_use == (0, 0) { Ok(()) } else { Err(in_use) }
        });
        if (leased_blocks, reserved_blocks) == (0, 0) {
            return Ok(());
        }
        Err(NamespaceInUse { leased_blocks, reserved_blocks })
    }

    /// Empties every namespace; see [`clear_namespace`](Self::clear_namespace).
    ///
    /// # Examples
    ///
    /// ```
    /// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
    /// # let (session, space) = (cache.session(), cache.default_namespace());
    /// # let lora = cache.namespace(&["lora-7"]);
    /// for namespace in [&space, &lora] {
    ///     let miss = session.match_prefix(namespace, &[1, 2]);
    ///     drop(session.insert(miss.lease(), &[1, 2], session.reserve(1)?)?);
    /// }
    /// cache.clear(); // the model's weights have changed
    /// assert_eq!(cache.stats().free_blocks, 8);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear(&self) {
        self.inner.namespaces.all().iter().for_each(|state| self.inner.replace_space(state, true));
    }
}

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

impl Inner {
    fn replace_space(&self, state: &NamespaceState, renew: bool) {
        self.replace_space_if(state, renew, || Ok(()));
    }

    /// Detaches the namespace's tree if `may` allows it, in the same turn; the numbers for which it did not.
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
            // A dropped namespace stays dropped; the evictor's lock keeps dropping and clearing apart.
            state.root(resources.guard)?;
            let next = if renew {
                Space::plant(state.grid.offset(), Arc::clone(&state.holdings), resources.guard).as_ptr()
            } else {
                // In the same turn: what a namespace of the same name stores is told after the end of this one.
                self.namespaces.forget(state);
                evictor.end_quota(&state.holdings);
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
        // Where a quota has ended, a request that waits for it may be served.
        self.ring();
        in_use
    }

    /// Frees the unleased blocks of a detached space in slices, between which other threads get their turn, and ends it.
    fn sweep(&self, space: Link<Space>) {
        let local = self.participant();
        // For the whole of it: what other threads evict meanwhile stays readable. The space itself stays until
        // `finish_sweep`.
        let guard = local.pin();
        let Some(root) = space.get(&guard).root(&guard) else { return };
        let (runs, _) = runs_below(root, usize::MAX, &guard);
        let runs: Vec<_> = runs.into_iter().rev().map(|run| run.link()).collect();
        for slice in runs.chunks(SWEEP_SLICE) {
            self.in_turn(|evictor, resources| {
                evictor.sweep(slice.iter().map(|run| run.get(resources.guard)), resources);
            });
        }
        self.in_turn(|evictor, resources| evictor.finish_sweep(space.get(resources.guard), resources));
    }
}

#[cfg(test)]
mod tests;
