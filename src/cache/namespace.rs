//! Namespaces: trees that never share, for adapters, tenants and model versions.

use std::collections::HashMap;
use std::fmt;

use super::evictor::{Evictor, Works, runs_below};
use super::{Inner, PrefixCache};
use crate::reclaim::{Guard, Local, Ref};
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};
use crate::sync::{Arc, Mutex};
use crate::tree::{Point, Space};

/// A namespace, resolved once: the verbs of a session take it and hash no string.
#[derive(Clone)]
pub struct Namespace(pub(super) Arc<State>);

/// A namespace's present tree.
pub(super) struct State {
    name: Name,
    family: Family,
    /// The root of the tree that lookups start in; null once the namespace was dropped.
    root: AtomicPtr<Point>,
}

/// Tells the namespaces of one cache from another's, whose trees they must never lead into.
type Family = Arc<()>;

/// The parts of a namespace's name, each with its length: `("bc", "a")` is not `("c", "ab")`.
type Name = Box<[Box<str>]>;

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Namespace").field(&self.0.name).finish()
    }
}

impl State {
    fn new(name: Name, family: &Family, guard: &Guard<'_>) -> Self {
        Self { name, family: Arc::clone(family), root: AtomicPtr::new(Space::plant(guard).as_ptr()) }
    }

    /// Where lookups start; nothing once the namespace was dropped.
    #[inline]
    pub(super) fn root<'g>(&self, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        // Acquire: pairs with the swap that put it here.
        Ref::from_ptr(self.root.load(Acquire), guard)
    }

    /// Lookups start at `next` from now on; the tree that they started in before, detached.
    fn detach<'g>(&self, next: *mut Point, guard: &'g Guard<'_>) -> Option<Ref<'g, Space>> {
        // Release: publishes `next`. Acquire: for the old one.
        let old = Ref::from_ptr(self.root.swap(next, AcqRel), guard)?;
        let space = old.run().space();
        space.detach();
        Some(space)
    }
}

/// All namespaces of a cache, by name.
pub(super) struct Registry {
    names: Mutex<HashMap<Name, Arc<State>>>,
    default: Arc<State>,
    family: Family,
}

impl Registry {
    pub(super) fn new(local: &Local) -> Self {
        let family = Family::default();
        let default = State::new(Box::default(), &family, &local.pin());
        Self { names: Mutex::new(HashMap::new()), default: Arc::new(default), family }
    }

    /// # Panics
    ///
    /// If `namespace` is of another cache.
    #[inline]
    pub(super) fn check(&self, namespace: &Namespace) {
        assert!(Arc::ptr_eq(&self.family, &namespace.0.family), "{namespace:?} is of another cache");
    }

    fn all(&self) -> Vec<Arc<State>> {
        let mut all = vec![Arc::clone(&self.default)];
        all.extend(self.names.lock().values().cloned());
        all
    }

    /// The trees that lookups start in.
    pub(super) fn spaces<'g>(&self, guard: &'g Guard<'_>) -> Vec<Ref<'g, Space>> {
        self.all().iter().filter_map(|state| state.root(guard)).map(|root| root.run().space()).collect()
    }

    /// Forgets the namespaces that nobody holds a handle on and nothing is cached in.
    pub(super) fn forget_empty(&self, evictor: &mut Evictor, works: Works<'_>) {
        let mut gone = Vec::new();
        self.names.lock().retain(|_, state| {
            // A lease on the root is of a match that found nothing, and may be about to insert.
            let empty = state.root(works.guard).is_none_or(|root| {
                root.word.load(Acquire).leases() == 0 && root.run().space().runs.get(&evictor.owner) == 0
            });
            // Handles are cloned from this one under the lock.
            let unused = Arc::strong_count(state) == 1 && empty;
            if unused {
                gone.push(Arc::clone(state));
            }
            !unused
        });
        for state in gone {
            if let Some(space) = state.detach(std::ptr::null_mut(), works.guard) {
                evictor.sweep(space, works);
            }
        }
    }

    /// Retires every tree; the cache is going.
    pub(super) fn tear_down(&self, works: Works<'_>) {
        for space in self.spaces(works.guard) {
            let Some((root, trunk)) = space.root(works.guard).zip(space.trunk(works.guard)) else {
                continue;
            };
            let mut runs = runs_below(root, works);
            runs.push(trunk);
            for run in runs {
                run.as_ref().points.for_each(works.guard, &mut |point| works.guard.retire(point));
                run.retire_arrays(works.guard);
                works.guard.retire(run);
            }
            works.guard.retire(space);
        }
    }
}

impl PrefixCache {
    /// The namespace of sequences that need none.
    pub fn default_namespace(&self) -> Namespace {
        Namespace(Arc::clone(&self.inner.namespaces.default))
    }

    /// The namespace of this name, made if it is new: an adapter, a tenant's salt, a model version, or several of them.
    ///
    /// The parts are kept apart: `["bc", "a"]` and `["c", "ab"]` are two namespaces. No parts at all name the default
    /// one. Takes a lock: resolve once, not per request.
    pub fn namespace(&self, parts: &[&str]) -> Namespace {
        if parts.is_empty() {
            return self.default_namespace();
        }
        let name: Name = parts.iter().map(|part| Box::from(*part)).collect();
        let mut names = self.inner.namespaces.names.lock();
        if let Some(state) = names.get(&name) {
            return Namespace(Arc::clone(state));
        }
        let local = self.inner.domain.register();
        let state = Arc::new(State::new(name.clone(), &self.inner.namespaces.family, &local.pin()));
        names.insert(name, Arc::clone(&state));
        Namespace(state)
    }

    /// Ends a namespace: its idle blocks are free when this returns, leased ones when their leases go.
    ///
    /// Matches through handles that are still held are empty and inserts are refused; asking for the name again makes a
    /// new, empty namespace. The default namespace is cleared instead. Waits its turn if another thread is evicting.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    pub fn drop_namespace(&self, namespace: &Namespace) {
        self.inner.namespaces.check(namespace);
        if Arc::ptr_eq(&namespace.0, &self.inner.namespaces.default) {
            self.clear_namespace(namespace);
            return;
        }
        let mut names = self.inner.namespaces.names.lock();
        if names.get(&namespace.0.name).is_some_and(|state| Arc::ptr_eq(state, &namespace.0)) {
            names.remove(&namespace.0.name);
            drop(names);
            self.inner.replace_space(&namespace.0, false);
        }
    }

    /// Empties a namespace: its idle blocks are free when this returns, leased ones when their leases go.
    ///
    /// Lookups that begin after this find nothing of what was there. Inserting from a lease taken before is refused.
    /// Waits its turn if another thread is evicting.
    ///
    /// # Panics
    ///
    /// If the namespace is of another cache.
    pub fn clear_namespace(&self, namespace: &Namespace) {
        self.inner.namespaces.check(namespace);
        self.inner.replace_space(&namespace.0, true);
    }

    /// Empties every namespace; see [`clear_namespace`](Self::clear_namespace).
    pub fn clear(&self) {
        self.inner.namespaces.all().iter().for_each(|state| self.inner.replace_space(state, true));
    }
}

impl Inner {
    fn replace_space(&self, state: &State, renew: bool) {
        self.evicting_all(|evictor, works| {
            // A namespace that was dropped stays so; dropping and clearing exclude each other here.
            if state.root(works.guard).is_none() {
                return;
            }
            let next = if renew { Space::plant(works.guard).as_ptr() } else { std::ptr::null_mut() };
            if let Some(space) = state.detach(next, works.guard) {
                evictor.sweep(space, works);
            }
        });
    }
}
