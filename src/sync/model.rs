//! Atomics for loom, with two ways to explore loads.
//!
//! *As loads*: loom tries every value that a weak memory may return. But loom 0.7 remembers only
//! the last access to each location. So in the usual loop of a load and a compare-and-swap, a
//! thread's own load hides another thread's earlier load, and loom misses the schedules in which
//! that load comes later.
//!
//! *As read-modify-writes* that change nothing: these return only the newest value, but loom sees
//! every race and tries both orders. Each model runs both ways.
//!
//! *At rest*, when every store happens before the loads: loom explores nothing and only checks this
//! order.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;

use loom::sync::atomic::{self, Ordering};

// All threads of a model share one thread of the system; other models may run at the same time.
thread_local! {
    static LOADS: Cell<Loads> = const { Cell::new(Loads::Weak) };
    static APART: Cell<bool> = const { Cell::new(false) };
}

/// How a model's loads are explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loads {
    /// As loads.
    Weak,
    /// As read-modify-writes.
    Exact,
    /// As accesses that no store may race with.
    AtRest,
}

/// Sets how loads are explored from now on.
pub fn explore_loads(loads: Loads) {
    LOADS.set(loads);
}

/// Runs `body`, for which all stores of other threads must happen before.
pub fn at_rest<T>(body: impl FnOnce() -> T) -> T {
    let loads = LOADS.replace(Loads::AtRest);
    let result = body();
    LOADS.set(loads);
    result
}

fn exact() -> bool {
    LOADS.get() == Loads::Exact
}

/// Explores every [`Apart`] that is created in `body`.
pub fn exploring_apart<T>(body: impl FnOnce() -> T) -> T {
    let before = APART.replace(true);
    let result = body();
    APART.set(before);
    result
}

/// A count of handles, or the state of a slot in a pool of participants. Only its own models
/// explore it: in others it would order accesses that nothing else orders, and so hide races.
#[derive(Debug)]
pub(crate) enum Apart {
    Explored(AtomicUsize),
    Plain(std::sync::atomic::AtomicUsize),
}

macro_rules! either {
    ($($operation:ident($($value:ident: $kind:ty),*) -> $result:ty;)+) => {
        $(#[track_caller]
        pub(crate) fn $operation(&self, $($value: $kind),*) -> $result {
            match self {
                Self::Explored(count) => count.$operation($($value),*),
                Self::Plain(count) => count.$operation($($value),*),
            }
        })+
    };
}

impl Apart {
    pub(crate) fn new(value: usize) -> Self {
        if APART.get() { Self::Explored(AtomicUsize::new(value)) } else { Self::Plain(value.into()) }
    }

    either! {
        load(order: Ordering) -> usize;
        store(value: usize, order: Ordering) -> ();
        fetch_add(value: usize, order: Ordering) -> usize;
        fetch_sub(value: usize, order: Ordering) -> usize;
        compare_exchange(current: usize, new: usize, success: Ordering, failure: Ordering) -> Result<usize, usize>;
    }
}

macro_rules! wrapped {
    ($name:ident $(<$t:ident>)?, $value:ty) => {
        pub(crate) struct $name$(<$t>)?(atomic::$name$(<$t>)?);

        impl$(<$t>)? fmt::Debug for $name$(<$t>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }

        // Each operation uses its caller's ordering; the reason is at the call.
        #[allow(dead_code)]
        impl$(<$t>)? $name$(<$t>)? {
            #[track_caller]
            pub(crate) fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }
            #[track_caller]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                // With a plain store, an exact load (a write for loom) could come after the store
                // without seeing it.
                if exact() {
                    self.0.swap(value, order);
                } else {
                    self.0.store(value, order);
                }
            }
            #[track_caller]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, order)
            }
            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(current, new, success, failure)
            }
            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange_weak(current, new, success, failure)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty, $($operation:ident),+) => {
        #[allow(dead_code)]
        impl $name {
            #[track_caller]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                match LOADS.get() {
                    Loads::Weak => self.0.load(order),
                    Loads::Exact => self.0.fetch_add(0, order),
                    // SAFETY: loom panics if a store is not ordered before it.
                    Loads::AtRest => unsafe { self.0.unsync_load() },
                }
            }
            $(#[track_caller]
            pub(crate) fn $operation(&self, value: $value, order: Ordering) -> $value {
                self.0.$operation(value, order)
            })+
        }
    };
}

wrapped!(AtomicU32, u32);
wrapped!(AtomicU64, u64);
wrapped!(AtomicUsize, usize);
wrapped!(AtomicPtr<T>, *mut T);
arithmetic!(AtomicU32, u32, fetch_add, fetch_sub);
arithmetic!(AtomicU64, u64, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_max);
arithmetic!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_max);

impl<T> AtomicPtr<T> {
    #[track_caller]
    pub(crate) fn load(&self, order: Ordering) -> *mut T {
        let null = std::ptr::null_mut();
        match LOADS.get() {
            Loads::Weak => self.0.load(order),
            Loads::Exact => self.0.compare_exchange(null, null, order, order).unwrap_or_else(|pointer| pointer),
            // SAFETY: loom panics if a store is not ordered before it.
            Loads::AtRest => unsafe { self.0.unsync_load() },
        }
    }
}
