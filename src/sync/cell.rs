//! Fields that only the evictor touches, under the lock of a shard.
//!
//! # Invariants
//!
//! - **O1** `Shards` (`cache::evictor::shards`) makes one [`Owner`] for each turn of the evictor,
//!   which ends with the turn's locks.
//! - **O2** A cell is accessed only through a `&Owner` or `&mut Owner` of its own cache, in a turn
//!   that holds the lock of the cell's shard (V2). A cell that belongs to no shard is written only
//!   in turns of all shards (V1). So two threads never access it at once unless both read, and the
//!   locks order one thread's writes before the next thread's reads.
//!
//! V1 and V2 are invariants of `Shards`. The types do not enforce V2: the `Owner` of a turn of one
//! shard would also give access to the cells of the others.
#![allow(unsafe_code)]

/// The right to read (`&Owner`) and write (`&mut Owner`) the [`OwnerCell`]s of a turn's shards.
#[derive(Debug)]
pub(crate) struct Owner(());

impl Owner {
    /// The caller makes one for each turn (O1).
    pub(crate) fn new() -> Self {
        Self(())
    }
}

#[cfg(not(radixkv_loom))]
use super::atomic::{AtomicPtr, Ordering::Relaxed};

#[cfg(not(radixkv_loom))]
type Inner<T> = std::cell::UnsafeCell<T>;
#[cfg(radixkv_loom)]
type Inner<T> = loom::cell::UnsafeCell<T>;

/// A field that only the evictor touches, under the lock of its shard.
#[derive(Debug)]
pub(crate) struct OwnerCell<T>(Inner<T>);

// SAFETY: O2: every access needs the owner of a turn that holds the lock of the cell's shard.
unsafe impl<T: Send> Sync for OwnerCell<T> {}

impl<T> OwnerCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    pub(crate) fn with<R>(&self, _: &Owner, read: impl FnOnce(&T) -> R) -> R {
        // SAFETY: O2: the shared borrow of the owner excludes writers of this turn, the lock those
        // of other turns.
        let read = |value: *const T| read(unsafe { &*value });
        #[cfg(radixkv_loom)]
        return self.0.with(read);
        #[cfg(not(radixkv_loom))]
        read(self.0.get())
    }

    pub(crate) fn with_mut<R>(&self, _: &mut Owner, write: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: O2: the owner is borrowed exclusively while the reference lives; the lock
        // excludes other turns.
        let write = |value: *mut T| write(unsafe { &mut *value });
        #[cfg(radixkv_loom)]
        return self.0.with_mut(write);
        #[cfg(not(radixkv_loom))]
        write(self.0.get())
    }
}

/// A pointer that a flag in another word guards: only the thread that owns the flag accesses it.
///
/// The flag's edges order every access, so it need not be atomic. Under loom it is a plain cell, so
/// that loom checks those edges.
#[derive(Debug)]
pub(crate) struct HandedOver<T>(#[cfg(not(radixkv_loom))] AtomicPtr<T>, #[cfg(radixkv_loom)] Inner<*mut T>);

#[cfg(radixkv_loom)]
// SAFETY: the flag's protocol orders every access; loom reports an unordered one.
unsafe impl<T> Sync for HandedOver<T> {}
#[cfg(radixkv_loom)]
// SAFETY: the cell holds an address.
unsafe impl<T> Send for HandedOver<T> {}

impl<T> HandedOver<T> {
    pub(crate) fn null() -> Self {
        #[cfg(radixkv_loom)]
        return Self(Inner::new(std::ptr::null_mut()));
        #[cfg(not(radixkv_loom))]
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self) -> *mut T {
        #[cfg(radixkv_loom)]
        // SAFETY: loom reports an unordered access; the value is plain.
        return self.0.with(|pointer| unsafe { *pointer });
        // Relaxed: the flag orders it.
        #[cfg(not(radixkv_loom))]
        self.0.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, pointer: *mut T) {
        #[cfg(radixkv_loom)]
        // SAFETY: as above.
        self.0.with_mut(|cell| unsafe { *cell = pointer });
        // Relaxed: the flag orders it.
        #[cfg(not(radixkv_loom))]
        self.0.store(pointer, Relaxed);
    }
}

impl<T: Copy> OwnerCell<T> {
    pub(crate) fn get(&self, owner: &Owner) -> T {
        self.with(owner, |value| *value)
    }
}
