//! Namespaces: trees that never share, for adapters, tenants and model versions.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Bound;

use super::evictor::{Evictor, Resources, runs_below};
use super::{Inner, PrefixCache};
use crate::block::Grid;
use crate::reclaim::{Guard, Local, Ref};
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};
use crate::sync::gauge::{AtomicBool, Relaxed};
use crate::sync::{Arc, Mutex, is_only, model_size};
use crate::tree::{Holdings, Point, Space};

/// A namespace, resolved once: the verbs of a session take it and hash no string.
#[derive(Clone)]
pub struct Namespace(pub(super) Arc<State>);

/// What a namespace compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Keys {
    /// Each token for itself.
    #[default]
    Tokens,
    /// Pairs of neighbours, for draft models (EAGLE) whose keys and values at a token depend on the next one too.
    ///
    /// Sequences are given as tokens all the same. `n` tokens are `n - 1` keys: block `k` is filled once token
    /// `(k + 1) * block_size` is known as well (counted from 0), and no sequence's last token has keys and values.
    Bigrams,
}

impl Keys {
    /// Tokens that a key needs beyond its own.
    fn offset(self) -> u32 {
        match self {
            Self::Tokens => 0,
            Self::Bigrams => 1,
        }
    }
}

/// A namespace's present tree.
pub(super) struct State {
    name: Name,
    /// Where blocks end in its sequences.
    pub(super) grid: Grid,
    family: Family,
    /// The root of the tree that lookups start in; null once the namespace was dropped.
    root: AtomicPtr<Point>,
    pub(super) holdings: Arc<Holdings>,
}

/// Tells the namespaces of one cache from another's, whose trees they must never lead into.
type Family = Arc<()>;

/// A namespace's name: its parts, each with its length (`("bc", "a")` is not `("c", "ab")`), and what it compares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Name {
    parts: Box<[Box<str>]>,
    keys: Keys,
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Namespace").field(&self.0.name.parts).field(&self.0.name.keys).finish()
    }
}

impl Namespace {
    /// What it compares.
    pub fn keys(&self) -> Keys {
        self.0.name.keys
    }
}

/// Two handles are equal if they lead into the same trees; of a name that was dropped and made again they are not.
impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Namespace {}

impl Hash for Namespace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(&*self.0, state);
    }
}

impl State {
    fn new(name: Name, grid: Grid, family: &Family, guard: &Guard<'_>) -> Self {
        let grid = grid.with_offset(name.keys.offset());
        let holdings = Arc::new(Holdings::new());
        let root = AtomicPtr::new(Space::plant(grid.offset(), Arc::clone(&holdings), guard).as_ptr());
        Self { name, grid, family: Arc::clone(family), root, holdings }
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
    names: Mutex<Names>,
    /// Whether some are to be looked at again: the next helper does it.
    behind: AtomicBool,
    default: Arc<State>,
    family: Family,
}

/// Ordered, so that what is done to all of them is done in an order that does not change from run to run.
#[derive(Default)]
struct Names {
    states: BTreeMap<Name, Arc<State>>,
    /// Where the pass that is under way goes on.
    pass: Option<Pass>,
    /// With so many the next pass begins: twice what the last one found in use. What was made meanwhile, behind it, does
    /// not count.
    next_pass: usize,
}

/// How far a look at all namespaces has come: everything up to a name, and how many of those are in use.
#[derive(Debug, Default)]
pub(super) struct Pass {
    up_to: Option<Name>,
    used: usize,
}

/// Namespaces that one step looks at.
const SLICE: usize = model_size(256, 8);

/// Namespaces that are not worth a look of the cache's own.
const FEW: usize = 64;

impl Registry {
    pub(super) fn new(grid: Grid, local: &Local) -> Self {
        let family = Family::default();
        let default = State::new(Name::default(), grid, &family, &local.pin());
        let names = Names { next_pass: FEW, ..Names::default() };
        Self { names: Mutex::new(names), behind: AtomicBool::new(false), default: Arc::new(default), family }
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
        all.extend(self.names.lock().states.values().cloned());
        all
    }

    /// The trees that lookups start in.
    pub(super) fn spaces<'g>(&self, guard: &'g Guard<'_>) -> Vec<Ref<'g, Space>> {
        self.all().iter().filter_map(|state| state.root(guard)).map(|root| root.run().space()).collect()
    }

    /// Runs `body` as if a thread were stopped while it resolves a name.
    #[cfg(test)]
    pub(super) fn with_names_locked(&self, body: impl FnOnce()) {
        let _names = self.names.lock();
        body();
    }

    /// Whether the namespace is still found by its name.
    #[cfg(test)]
    pub(super) fn has_name(&self, namespace: &Namespace) -> bool {
        self.names.lock().states.contains_key(&namespace.0.name)
    }

    /// Whether namespaces have piled up that nobody may hold.
    pub(super) fn is_behind(&self) -> bool {
        // Relaxed: whoever takes the evictor's lock looks again.
        self.behind.load(Relaxed)
    }

    /// A slice of a pass over all namespaces, where so many have come that one is due; true if more is left. Leaves it
    /// for later where another thread is at the names: a match that helps the evictor waits for nobody.
    pub(super) fn tidy(&self, evictor: &mut Evictor, resources: Resources<'_>) -> bool {
        if !self.is_behind() {
            return false;
        }
        let Some(mut names) = self.names.try_lock() else {
            return false;
        };
        let mut pass = names.pass.take().unwrap_or_default();
        let (gone, more) = names.take_unused(&mut pass, resources);
        if more {
            names.pass = Some(pass);
        } else {
            names.next_pass = FEW.max(2 * pass.used);
        }
        // Where many came behind the pass the next one begins at once.
        let more = more || names.states.len() >= names.next_pass;
        self.behind.store(more, Relaxed);
        drop(names);
        end(gone, evictor, resources);
        more
    }

    /// Forgets, among the next few, the namespaces that nobody holds a handle on, nothing is cached in and no quota is
    /// set for; true if there are more.
    pub(super) fn forget_empty(&self, pass: &mut Pass, evictor: &mut Evictor, resources: Resources<'_>) -> bool {
        let (gone, more) = self.names.lock().take_unused(pass, resources);
        end(gone, evictor, resources);
        more
    }

    /// Retires every tree; the cache is going. Takes no lock: a child process may have been forked off while another
    /// thread held it.
    pub(super) fn tear_down(&mut self, resources: Resources<'_>) {
        let named = self.names.get_mut().states.values();
        for state in named.chain([&self.default]) {
            let Some(space) = state.root(resources.guard).map(|root| root.run().space()) else {
                continue;
            };
            let Some((root, trunk)) = space.root(resources.guard).zip(space.trunk(resources.guard)) else {
                continue;
            };
            let mut runs = runs_below(root, resources);
            runs.push(trunk);
            for run in runs {
                run.as_ref().points.for_each(resources.guard, &mut |point| resources.guard.retire(point));
                run.retire_arrays(resources.guard);
                resources.guard.retire(run);
            }
            resources.guard.retire(space);
        }
    }
}

impl Names {
    /// Takes the unused ones out of the next few; whether there are more.
    fn take_unused(&mut self, pass: &mut Pass, resources: Resources<'_>) -> (Vec<Arc<State>>, bool) {
        let from = pass.up_to.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut unused = Vec::new();
        for (name, state) in self.states.range_mut((from, Bound::Unbounded)).take(SLICE) {
            if is_unused(state, resources) {
                unused.push(name.clone());
            } else {
                pass.used += 1;
            }
            pass.up_to = Some(name.clone());
        }
        let gone = unused.iter().filter_map(|name| self.states.remove(name)).collect();
        (gone, pass.up_to.is_some())
    }
}

/// Ends namespaces that were taken out of the names.
fn end(gone: Vec<Arc<State>>, evictor: &mut Evictor, resources: Resources<'_>) {
    for state in gone {
        evictor.end_quota(&state.holdings);
        if let Some(space) = state.detach(std::ptr::null_mut(), resources.guard) {
            evictor.end_bare(space, resources);
        }
    }
}

/// Whether nobody holds a handle, nothing is cached and no quota is set. Called with the names locked.
fn is_unused(state: &mut Arc<State>, resources: Resources<'_>) -> bool {
    // In this order. Handles are cloned from this one under the lock, so who could still come is counted here, and a
    // lease on the root is of a match that found nothing and may be about to insert; the run hangs there before that
    // lease goes. So one look at the word tells, whatever the evictor has heard of.
    let limited = state.holdings.cached_limit().or(state.holdings.pinned_limit()).is_some();
    !limited && is_only(state) && state.root(resources.guard).is_none_or(|root| root.word.load(Acquire).is_bare_root())
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
        self.namespace_with(parts, Keys::Tokens)
    }

    /// [`namespace`](Self::namespace) that compares other keys. What it compares is part of its name: the same parts
    /// with other keys are another namespace, and the two share nothing.
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
        let name = Name { parts: parts.iter().map(|part| Box::from(*part)).collect(), keys };
        let registry = &self.inner.namespaces;
        let mut names = registry.names.lock();
        if let Some(state) = names.states.get(&name) {
            return Namespace(Arc::clone(state));
        }
        let local = self.inner.domain.register();
        let state = Arc::new(State::new(name.clone(), self.inner.grid, &registry.family, &local.pin()));
        names.states.insert(name, Arc::clone(&state));
        let pass_is_due = names.states.len() >= names.next_pass;
        drop(names);
        if pass_is_due {
            // Relaxed: a hint to whoever evicts.
            registry.behind.store(true, Relaxed);
            if let Some(background) = self.inner.background.get() {
                background.changes_pending();
            }
        }
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
        if names.states.get(&namespace.0.name).is_some_and(|state| Arc::ptr_eq(state, &namespace.0)) {
            names.states.remove(&namespace.0.name);
        }
        drop(names);
        // Also where another thread has taken the name: it may not have come to the tree yet.
        self.inner.replace_space(&namespace.0, false);
    }

    /// Empties a namespace: its idle blocks are free when this returns, leased ones when their leases go.
    ///
    /// Lookups that begin after this find nothing of what was there. Inserting from a lease taken before is refused;
    /// [`resume`](super::Session::resume) and [`match_partial`](super::Session::match_partial) from one still find what leases keep
    /// there. Waits its turn if another thread is evicting.
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
        self.evicting_all(|evictor, resources| {
            // A namespace that was dropped stays so; dropping and clearing exclude each other here.
            if state.root(resources.guard).is_none() {
                return;
            }
            let next = if renew {
                Space::plant(state.grid.offset(), Arc::clone(&state.holdings), resources.guard).as_ptr()
            } else {
                evictor.end_quota(&state.holdings);
                std::ptr::null_mut()
            };
            if let Some(space) = state.detach(next, resources.guard) {
                evictor.sweep(space, resources);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_equal_that_lead_into_the_same_trees() {
        let cache = PrefixCache::builder(1, 1).build().expect("valid");
        let first = cache.namespace(&["a"]);
        assert_eq!((first == cache.namespace(&["a"]), first == cache.namespace(&["b"])), (true, false));
        cache.drop_namespace(&first);
        assert!(first != cache.namespace(&["a"]), "made again");
    }

    /// A look at all of them costs a step for each: so the next one comes when they are twice as many.
    #[test]
    fn the_next_pass_waits_until_there_are_twice_as_many() {
        let cache = PrefixCache::builder(1, 1).build().expect("valid");
        let behind = || cache.inner.namespaces.is_behind();
        let name = |i: usize| cache.namespace(&[i.to_string().as_str()]);
        let mut held: Vec<_> = (0..FEW - 1).map(name).collect();
        assert!(!behind());
        for next in [FEW, 2 * FEW] {
            held.extend((held.len()..next - 1).map(name));
            assert!(!behind(), "{} of {next}", held.len());
            held.push(name(next - 1));
            assert!(behind());
            while cache.run_once() {}
            assert!(!behind());
        }
    }
}
