//! Fields that only the holder of the evictor's lock touches.
//!
//! # Invariants
//!
//! - **O1** A cache makes one [`Owner`] and keeps it inside its evictor's lock.
//! - **O2** A cell is reached only through a `&Owner` or `&mut Owner` of its own cache. So no two
//!   threads touch it at once, and the lock orders one thread's writes before the next thread's
//!   reads.
#![allow(unsafe_code)]

/// The right to read (`&Owner`) and write (`&mut Owner`) every [`OwnerCell`] of one cache.
#[derive(Debug)]
pub(crate) struct Owner(());

impl Owner {
    /// The caller makes one for each cache (O1).
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

/// A field that only the holder of the evictor's lock touches.
#[derive(Debug)]
pub(crate) struct OwnerCell<T>(Inner<T>);

// SAFETY: O2: every access goes through the one owner, under its lock.
unsafe impl<T: Send> Sync for OwnerCell<T> {}

impl<T> OwnerCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    pub(crate) fn with<R>(&self, _: &Owner, read: impl FnOnce(&T) -> R) -> R {
        // SAFETY: O2: the shared owner excludes every writer while it is borrowed.
        let read = |value: *const T| read(unsafe { &*value });
        #[cfg(radixkv_loom)]
        return self.0.with(read);
        #[cfg(not(radixkv_loom))]
        read(self.0.get())
    }

    pub(crate) fn with_mut<R>(&self, _: &mut Owner, write: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: O2: the exclusive owner is borrowed for as long as the reference lives.
        let write = |value: *mut T| write(unsafe { &mut *value });
        #[cfg(radixkv_loom)]
        return self.0.with_mut(write);
        #[cfg(not(radixkv_loom))]
        write(self.0.get())
    }
}

/// A pointer that is handed over with a flag in another word: only the thread that owns the flag
/// touches it.
///
/// The flag's edges order every access, so it need not be atomic. Under loom it is a plain cell,
/// and loom checks those edges.
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
