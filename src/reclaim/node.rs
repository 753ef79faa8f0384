//! Nodes of the index, and three pointers to them: [`Own`] before a node is published, [`Ref`]
//! while the node is protected, [`Link`] for a stored pointer.

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::Deref;
use std::ptr::NonNull;

use super::Guard;
#[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
use super::memory;
#[cfg(any(radixkv_loom, radixkv_shuttle))]
use super::model;

/// A type that the reclaimer can free.
///
/// # Safety
///
/// `layout` returns the layout of the node's allocation. Dropping a node in place runs no code that
/// reads the index.
pub(crate) unsafe trait Node: Sized + 'static {
    /// Bytes that freeing this node releases.
    fn bytes(&self) -> usize;

    /// The word that the model reclaimer poisons.
    fn canary(&self) -> &Canary;

    /// The layout of the node's memory.
    fn layout(&self) -> Layout {
        Layout::new::<Self>()
    }
}

/// Detects use after free in model builds: freeing poisons its word and every access checks it.
/// Empty in real builds.
#[derive(Debug)]
pub(crate) struct Canary(#[cfg(any(radixkv_loom, radixkv_shuttle))] model::Canary);

impl Canary {
    pub(crate) fn new() -> Self {
        Self(
            #[cfg(any(radixkv_loom, radixkv_shuttle))]
            model::Canary::new(),
        )
    }

    #[cfg(any(radixkv_loom, radixkv_shuttle))]
    pub(super) fn model(&self) -> &model::Canary {
        &self.0
    }

    #[inline(always)]
    #[cfg_attr(any(radixkv_loom, radixkv_shuttle), track_caller)]
    fn check(&self) {
        #[cfg(any(radixkv_loom, radixkv_shuttle))]
        self.0.check();
    }
}

/// A node that no other thread can reach yet; freed on drop.
pub(crate) struct Own<'g, T: Node> {
    node: NonNull<T>,
    guard: &'g Guard<'g>,
}

impl<'g, T: Node> Own<'g, T> {
    /// Allocates memory for a node and moves it there.
    #[inline]
    pub(crate) fn new(node: T, guard: &'g Guard<'g>) -> Self {
        Self::with_layout(node, Layout::new::<T>(), guard)
    }

    /// As [`new`](Self::new), with the node's own layout, which is at least as large as its type.
    #[inline]
    pub(crate) fn with_layout(node: T, layout: Layout, guard: &'g Guard<'g>) -> Self {
        debug_assert!(node.layout() == layout && layout.size() >= size_of::<T>());
        let memory = guard.allocate(layout).cast::<T>();
        // SAFETY: memory of the node's layout, which no other thread uses.
        unsafe { memory.write(node) };
        Self::from_raw(memory, guard)
    }

    /// Takes ownership of a node that was written to memory from [`Guard::allocate`].
    pub(crate) fn from_raw(node: NonNull<T>, guard: &'g Guard<'g>) -> Self {
        let own = Self { node, guard };
        guard.record().add_allocated(own.bytes());
        #[cfg(any(radixkv_loom, radixkv_shuttle))]
        own.canary().0.arm();
        own
    }

    /// Gives the node to the index: from now on it must be retired, not dropped (I1).
    pub(crate) fn publish(self) -> Ref<'g, T> {
        let node = self.node;
        mem::forget(self);
        Ref::new(node)
    }

    /// The pointer that a compare-and-swap stores; if it succeeds, call `publish`.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.node.as_ptr()
    }

    pub(crate) fn as_ref(&self) -> Ref<'g, T> {
        Ref::new(self.node)
    }
}

impl<T: Node> Deref for Own<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: no other thread can reach the node.
        unsafe { self.node.as_ref() }
    }
}

impl<T: Node> Drop for Own<'_, T> {
    fn drop(&mut self) {
        // SAFETY: never published, so no other thread has a pointer to it.
        unsafe { free_now(self.node, self.guard.freed()) };
    }
}

/// A pointer to a node that is protected for `'g` (I2).
pub(crate) struct Ref<'g, T> {
    node: NonNull<T>,
    protection: PhantomData<&'g T>,
}

impl<T> Clone for Ref<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<'_, T> {}

impl<T> PartialEq for Ref<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl<T> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

impl<'g, T> Ref<'g, T> {
    fn new(node: NonNull<T>) -> Self {
        Self { node, protection: PhantomData }
    }

    /// Makes a reference from a pointer that was loaded from the index under `_guard`.
    pub(crate) fn from_ptr(node: *mut T, _guard: &'g Guard<'_>) -> Option<Self> {
        NonNull::new(node).map(Self::new)
    }

    pub(crate) fn as_ptr(self) -> *mut T {
        self.node.as_ptr()
    }

    #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
    pub(super) fn as_non_null(self) -> NonNull<T> {
        self.node
    }

    /// A pointer to store in a field, whose comment says what protects the node (I3).
    pub(crate) fn link(self) -> Link<T> {
        Link(self.node)
    }
}

impl<'g, T: Node> Ref<'g, T> {
    /// The node, while the protection lasts.
    #[cfg_attr(any(radixkv_loom, radixkv_shuttle), track_caller)]
    pub(crate) fn as_ref(self) -> &'g T {
        // SAFETY: I2: the node is protected for `'g`.
        let node = unsafe { self.node.as_ref() };
        node.canary().check();
        node
    }
}

impl<T: Node> Deref for Ref<'_, T> {
    type Target = T;

    #[inline(always)]
    #[cfg_attr(any(radixkv_loom, radixkv_shuttle), track_caller)]
    fn deref(&self) -> &T {
        self.as_ref()
    }
}

/// A stored pointer, followed only while its target is protected (I3).
pub(crate) struct Link<T>(NonNull<T>);

// SAFETY: a link is only an address; following it needs the protection of I3, and nodes are shared
// between threads.
unsafe impl<T: Sync> Send for Link<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Link<T> {}

impl<T> Clone for Link<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Link<T> {}

impl<T> PartialEq for Link<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Link<T> {}

impl<T> std::hash::Hash for Link<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T> fmt::Debug for Link<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Link<T> {
    /// The address, only for prefetching: the node may have been freed.
    pub(crate) fn as_ptr(self) -> *const T {
        self.0.as_ptr()
    }

    /// The address, for keys of tables. No result may depend on the order of addresses.
    pub(crate) fn address(self) -> u64 {
        self.0.addr().get() as u64
    }

    /// Follows the pointer. `_protection` (a guard, a lease, the node that holds the link) protects
    /// the node (I3).
    #[inline(always)]
    pub(crate) fn get<P: ?Sized>(self, _protection: &P) -> Ref<'_, T> {
        Ref::new(self.0)
    }
}

/// Drops a node in place and returns its memory, which the caller must free.
///
/// # Safety
///
/// No other thread uses `node`, now or later.
#[inline(always)]
pub(super) unsafe fn end<T: Node>(node: NonNull<T>) -> (NonNull<u8>, Layout) {
    // SAFETY: the caller owns the node.
    let layout = unsafe { node.as_ref() }.layout();
    // SAFETY: as the caller promised.
    unsafe { node.drop_in_place() };
    (node.cast(), layout)
}

/// Frees a node whose bytes the caller has already counted as freed.
///
/// # Safety
///
/// No other thread uses `node`, now or later.
pub(crate) unsafe fn free_owned<T: Node>(node: NonNull<T>) {
    #[cfg(any(radixkv_loom, radixkv_shuttle))]
    // SAFETY: as the caller promised; the model keeps the memory, poisoned, until the model ends.
    unsafe {
        model::quarantine(node)
    };
    #[cfg(not(any(radixkv_loom, radixkv_shuttle)))]
    {
        // SAFETY: as the caller promised.
        let (memory, layout) = unsafe { end(node) };
        // SAFETY: nodes are in the memory of their cache, and this one has been dropped.
        unsafe { memory::free(memory, layout) };
    }
}

/// Frees a node at once, and counts its bytes as freed.
///
/// # Safety
///
/// No other thread uses `node`, now or later.
pub(crate) unsafe fn free_now<T: Node>(node: NonNull<T>, bytes: &super::FreedBytes) {
    // SAFETY: the caller owns the node.
    let freed = unsafe { node.as_ref() }.bytes();
    bytes.add(freed);
    // SAFETY: as the caller promised.
    unsafe { free_owned(node) };
}
