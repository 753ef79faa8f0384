//! Fields that belong to whoever holds the evictor's state.
//!
//! # Invariants
//!
//! - **I1** A cache makes one [`Owner`] and keeps it inside its evictor's lock.
//! - **I2** A cell is reached through a `&Owner` or `&mut Owner` of its own cache: so no two threads touch it
//!   at once, and the lock's hand-over orders one owner's writes before the next one's reads.
#![allow(unsafe_code)]

/// The right to read (`&Owner`) and write (`&mut Owner`) every [`OwnerCell`] of one cache.
#[derive(Debug)]
pub(crate) struct Owner(());

impl Owner {
    /// The caller makes one for each cache (I1).
    pub(crate) fn new() -> Self {
        Self(())
    }
}

#[cfg(not(radixkv_loom))]
type Inner<T> = std::cell::UnsafeCell<T>;
#[cfg(radixkv_loom)]
type Inner<T> = loom::cell::UnsafeCell<T>;

/// A field that only the owner of the evictor's state touches.
#[derive(Debug)]
pub(crate) struct OwnerCell<T>(Inner<T>);

// SAFETY: I2: every access goes through the one owner, under its lock.
unsafe impl<T: Send> Sync for OwnerCell<T> {}

impl<T> OwnerCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    pub(crate) fn with<R>(&self, _: &Owner, read: impl FnOnce(&T) -> R) -> R {
        // SAFETY: I2: the shared owner excludes every writer while it is borrowed.
        let read = |value: *const T| read(unsafe { &*value });
        #[cfg(radixkv_loom)]
        return self.0.with(read);
        #[cfg(not(radixkv_loom))]
        read(self.0.get())
    }

    pub(crate) fn with_mut<R>(&self, _: &mut Owner, write: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: I2: the exclusive owner is borrowed for as long as the reference lives.
        let write = |value: *mut T| write(unsafe { &mut *value });
        #[cfg(radixkv_loom)]
        return self.0.with_mut(write);
        #[cfg(not(radixkv_loom))]
        write(self.0.get())
    }
}

impl<T: Copy> OwnerCell<T> {
    pub(crate) fn get(&self, owner: &Owner) -> T {
        self.with(owner, |value| *value)
    }
}
