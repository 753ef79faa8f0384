//! Namespaces: trees that never share blocks, for adapters, tenants and model versions.
//!
//! The registry maps names to namespaces. A namespace that has no handle, cached block and quota is
//! forgotten by a pass over the registry, which runs in slices under the evictor's lock.

pub(in crate::cache) mod clearing;

pub use clearing::NamespaceInUse;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Bound;

use crate::block::BlockLayout;
use crate::cache::evictor::{Evictor, Resources, runs_below};
use crate::cache::inner::Inner;
use crate::cache::prefix_cache::PrefixCache;
use crate::name::NamespaceName;
use crate::reclaim::{Guard, Link, Local, Ref, Row, RowId};
use crate::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};
use crate::sync::gauge::{AtomicBool, Relaxed};
use crate::sync::{Arc, Mutex, OnceLock, Weak, is_only, model_size};
use crate::tree::{NamespaceAccount, Point, Run, Space};

/// A handle on a tree of cached sequences that shares nothing with other namespaces; made by
/// [`PrefixCache::namespace`](crate::PrefixCache::namespace).
///
/// The methods of a session take it, so that no name is looked up for each request. It does not
/// keep its cache alive: after the cache is gone, its methods do nothing and its numbers are 0.
///
/// # Examples
///
/// ```
/// # let cache = radixkv::PrefixCache::builder(2, 8).build()?;
/// # let (session, space) = (cache.session(), cache.default_namespace());
/// let adapter = cache.namespace(&["lora-7"]); // asked for once, passed with each of its requests
/// let hit = session.match_prefix(&adapter, &[1, 2, 3]);
/// # drop(hit);
/// # Ok::<_, radixkv::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Namespace(pub(in crate::cache) Arc<NamespaceState>);

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.0.account.name;
        f.debug_tuple("Namespace").field(&name.parts().collect::<Vec<_>>()).field(&name.keys()).finish()
    }
}

impl Namespace {
    /// Its cache, if that is still alive.
    pub(in crate::cache) fn cache(&self) -> Option<PrefixCache> {
        let inner = self.0.family.cache.get()?.upgrade()?;
        Some(PrefixCache { inner })
    }
}

/// Two handles are equal if they refer to the same namespace. A handle from before a removal and
/// one from after it are not equal.
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

/// A namespace and its present tree.
pub(in crate::cache) struct NamespaceState {
    /// The block boundaries in its sequences.
    pub(in crate::cache) layout: BlockLayout,
    pub(in crate::cache) row: RowId,
    family: Arc<Family>,
    /// The root in which lookups start; null after the namespace was removed.
    root: AtomicPtr<Point>,
    pub(in crate::cache) account: Arc<NamespaceAccount>,
}

/// Shared by all namespaces of a cache: identifies handles of the cache, and refers to it.
#[derive(Default)]
pub(in crate::cache) struct Family {
    /// Set once, when the cache is built. Weak: a namespace does not keep its cache alive.
    cache: OnceLock<Weak<Inner>>,
}

/// The namespace of this name, created if it does not exist.
pub(in crate::cache) fn named(cache: &PrefixCache, name: NamespaceName) -> Namespace {
    if name.is_default() {
        return cache.default_namespace();
    }
    let registry = &cache.inner.namespaces;
    let mut names = registry.names.lock();
    if let Some(state) = names.states.get(&name) {
        return Namespace(Arc::clone(state));
    }
    let local = cache.inner.participant();
    let (layout, row) = (cache.inner.layout, cache.inner.domain.records().row());
    let state = Arc::new(NamespaceState::new(name.clone(), layout, &registry.family, row, &local.pin()));
    names.states.insert(name, Arc::clone(&state));
    let pass_is_due = names.states.len() >= names.next_pass;
    drop(names);
    if pass_is_due {
        // Relaxed: a hint to the next thread that evicts.
        registry.behind.store(true, Relaxed);
        if let Some(background) = cache.inner.background.get() {
            background.changes_pending();
        } else {
            // One call looks at many namespaces, so unused ones do not pile up, however short
            // sessions are.
            cache.inner.try_evicting(|evictor, resources| registry.tidy(evictor, resources));
        }
    }
    Namespace(state)
}

impl NamespaceState {
    fn new(name: NamespaceName, layout: BlockLayout, family: &Arc<Family>, row: Row, guard: &Guard<'_>) -> Self {
        let (layout, id) = (layout.with_offset(name.keys().offset()), row.id());
        let account = Arc::new(NamespaceAccount::new(name, row));
        let root = AtomicPtr::new(Space::plant(layout.offset(), Arc::clone(&account), guard).as_ptr());
        Self { layout, row: id, family: Arc::clone(family), root, account }
    }

    /// The root in which lookups start; `None` after the namespace was removed.
    #[inline]
    pub(in crate::cache) fn root<'g>(&self, guard: &'g Guard<'_>) -> Option<Ref<'g, Point>> {
        // Acquire: pairs with the swap that published the root.
        Ref::from_ptr(self.root.load(Acquire), guard)
    }

    /// Makes lookups start at `next` from now on; returns the previous tree, now detached.
    fn detach<'g>(&self, next: *mut Point, guard: &'g Guard<'_>) -> Option<Ref<'g, Space>> {
        // Release: publishes `next`. Acquire: for the old root.
        let old = Ref::from_ptr(self.root.swap(next, AcqRel), guard)?;
        let space = old.run().space();
        space.detach();
        Some(space)
    }
}

/// All namespaces of a cache, by name.
pub(in crate::cache) struct Registry {
    names: Mutex<Names>,
    /// Whether a pass over the namespaces is due or in progress: the next thread that creates a
    /// namespace or evicts does a part of it.
    behind: AtomicBool,
    pub(in crate::cache) default: Arc<NamespaceState>,
    /// The identity that all handles of this cache share.
    pub(in crate::cache) family: Arc<Family>,
}

/// Ordered by name, so that work on all namespaces has the same order in every run.
#[derive(Default)]
struct Names {
    states: BTreeMap<NamespaceName, Arc<NamespaceState>>,
    /// The state of the pass that is in progress.
    pass: Option<Pass>,
    /// The number of namespaces at which the next pass begins: twice the number that the last pass
    /// found in use. A namespace created behind that pass, at a name before its position, was not
    /// found.
    next_pass: usize,
}

/// The progress of a pass over all namespaces: the last name it has looked at, and how many
/// namespaces up to there are in use.
#[derive(Debug, Default)]
pub(in crate::cache) struct Pass {
    up_to: Option<NamespaceName>,
    used: usize,
}

/// The number of namespaces that one step looks at.
const SLICE: usize = model_size(256, 8);

/// Below this number of namespaces no pass begins.
const FEW: usize = 64;

impl Registry {
    pub(in crate::cache) fn new(layout: BlockLayout, row: Row, local: &Local) -> Self {
        let family = Arc::<Family>::default();
        let default = NamespaceState::new(NamespaceName::default(), layout, &family, row, &local.pin());
        let names = Names { next_pass: FEW, ..Names::default() };
        Self { names: Mutex::new(names), behind: AtomicBool::new(false), default: Arc::new(default), family }
    }

    /// # Panics
    ///
    /// If `namespace` belongs to another cache.
    #[inline]
    pub(in crate::cache) fn check(&self, namespace: &Namespace) {
        assert!(self.has_made(namespace), "{namespace:?} belongs to another cache");
    }

    /// Whether `namespace` belongs to this cache.
    #[inline]
    pub(in crate::cache) fn has_made(&self, namespace: &Namespace) -> bool {
        self.is_family(&namespace.0.family)
    }

    /// Lets the namespaces find their cache; called once, before any handle is given out.
    pub(in crate::cache) fn join(&self, inner: &Arc<Inner>) {
        self.family.cache.get_or_init(|| Arc::downgrade(inner));
    }

    pub(in crate::cache) fn is_family(&self, family: &Arc<Family>) -> bool {
        Arc::ptr_eq(&self.family, family)
    }

    /// Unregisters a namespace that is being removed. Called with the evictor's lock.
    fn forget(&self, state: &NamespaceState) {
        let removed = self.names.lock().states.remove(&state.account.name);
        debug_assert!(removed.is_some_and(|removed| std::ptr::eq(&*removed, state)), "the name was registered");
    }

    pub(in crate::cache) fn all(&self) -> Vec<Arc<NamespaceState>> {
        let mut all = vec![Arc::clone(&self.default)];
        all.extend(self.names.lock().states.values().cloned());
        all
    }

    /// The trees in which lookups start.
    pub(in crate::cache) fn spaces<'g>(&self, guard: &'g Guard<'_>) -> Vec<Ref<'g, Space>> {
        self.all().iter().filter_map(|state| state.root(guard)).map(|root| root.run().space()).collect()
    }

    /// For tests: runs `body` while the names are locked, as if another thread were looking up a
    /// name.
    #[cfg(test)]
    pub(in crate::cache) fn with_names_locked(&self, body: impl FnOnce()) {
        let _names = self.names.lock();
        body();
    }

    /// Whether a pass is due: there may be many namespaces without a handle.
    pub(in crate::cache) fn is_behind(&self) -> bool {
        // Relaxed: a hint; `tidy` looks again under the evictor's lock.
        self.behind.load(Relaxed)
    }

    /// Does a slice of the pass over all namespaces, if one is due; returns whether more is left.
    /// Skips it while another thread has the names locked, so that a thread that evicts does not
    /// wait for a thread that looks up a name.
    pub(in crate::cache) fn tidy(&self, evictor: &mut Evictor<'_>, resources: Resources<'_>) -> bool {
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
        // If many namespaces were created behind the pass, the next one begins at once.
        let more = more || names.states.len() >= names.next_pass;
        // Relaxed: a hint, as in `is_behind`.
        self.behind.store(more, Relaxed);
        drop(names);
        end(gone, evictor, resources);
        more
    }

    /// Looks at the next few namespaces, and forgets those without handle, cached block and quota;
    /// returns whether there are more to look at.
    pub(in crate::cache) fn forget_empty(
        &self,
        pass: &mut Pass,
        evictor: &mut Evictor<'_>,
        resources: Resources<'_>,
    ) -> bool {
        let (gone, more) = self.names.lock().take_unused(pass, resources);
        end(gone, evictor, resources);
        more
    }

    /// Retires every tree when the cache is dropped, and the `severed` runs, which have no child
    /// runs. Takes no lock: in a child process it may be locked for ever, by a thread that was
    /// running at the fork.
    pub(in crate::cache) fn tear_down(&mut self, severed: Vec<Link<Run>>, resources: Resources<'_>) {
        let named = self.names.get_mut().states.values();
        for state in named.chain([&self.default]) {
            let Some(space) = state.root(resources.guard).map(|root| root.run().space()) else {
                continue;
            };
            let Some((root, trunk)) = space.root(resources.guard).zip(space.trunk(resources.guard)) else {
                continue;
            };
            let (mut runs, _) = runs_below(root, usize::MAX, resources.guard);
            runs.push(trunk);
            runs.into_iter().for_each(|run| retire(run, resources));
            resources.guard.retire(space);
        }
        severed.into_iter().for_each(|run| retire(run.get(resources.guard), resources));
    }
}

/// Retires a run with its points.
fn retire(run: Ref<'_, Run>, resources: Resources<'_>) {
    run.as_ref().points.for_each(resources.guard, &mut |point| resources.guard.retire(point));
    run.retire_arrays(resources.guard);
    resources.guard.retire(run);
}

impl Names {
    /// Removes the unused namespaces among the next few. Returns them, and whether there are more
    /// to look at.
    fn take_unused(&mut self, pass: &mut Pass, resources: Resources<'_>) -> (Vec<Arc<NamespaceState>>, bool) {
        let from = pass.up_to.take().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut unused, mut looked_at) = (Vec::new(), 0);
        for (name, state) in self.states.range_mut((from, Bound::Unbounded)).take(SLICE) {
            if is_unused(state, resources) {
                unused.push(name.clone());
            } else {
                pass.used += 1;
            }
            pass.up_to = Some(name.clone());
            looked_at += 1;
        }
        let gone = unused.iter().filter_map(|name| self.states.remove(name)).collect();
        // A slice that is not full has reached the end. Continuing might never end, because other
        // threads create namespaces meanwhile.
        (gone, looked_at == SLICE)
    }
}

/// Ends namespaces whose names were removed.
fn end(gone: Vec<Arc<NamespaceState>>, evictor: &mut Evictor<'_>, resources: Resources<'_>) {
    for state in gone {
        evictor.end_quota(&state.account);
        if let Some(space) = state.detach(std::ptr::null_mut(), resources.guard) {
            evictor.list_detached(space.link());
            evictor.end_bare(space, resources);
        }
    }
}

/// Whether the namespace has no handle, no cached block and no quota. Called with the names locked.
fn is_unused(state: &mut Arc<NamespaceState>, resources: Resources<'_>) -> bool {
    // The order matters: handles are made only under the lock, so none is made after `is_only`. A
    // match that found nothing leases the root until its run is attached there, so a root without
    // lease and child means that nothing is cached and no insert is in progress.
    let limited = state.account.both_limits() != (None, None) || state.account.time_to_idle().is_some();
    !limited && is_only(state) && state.root(resources.guard).is_none_or(|root| root.word.load(Acquire).is_bare_root())
}
