//! Atomics for stress builds: any access may first yield or spin, so that rare interleavings become
//! common.

use std::cell::Cell;
use std::sync::atomic::{self, Ordering};

thread_local!(static STATE: Cell<u64> = const { Cell::new(0) });

/// Yields before 1 access in 32 and spins before 1 in 64.
fn disturb() {
    let roll = STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            x = (std::ptr::from_ref(state).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        x
    });
    match roll >> 56 {
        0..=7 => std::thread::yield_now(),
        8..=11 => (0..roll & 0x3ff).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

macro_rules! disturbed {
    ($name:ident $(<$t:ident>)?, $value:ty) => {
        #[derive(Debug)]
        pub(crate) struct $name$(<$t>)?(atomic::$name$(<$t>)?);

        impl$(<$t>)? $name$(<$t>)? {
            pub(crate) const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }
            // Each operation uses its caller's ordering; the reason is at the call.
            pub(crate) fn load(&self, order: Ordering) -> $value {
                disturb();
                self.0.load(order)
            }
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                disturb();
                self.0.store(value, order);
            }
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                disturb();
                self.0.swap(value, order)
            }
            pub(crate) fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                disturb();
                self.0.compare_exchange(current, new, success, failure)
            }
            pub(crate) fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                disturb();
                self.0.compare_exchange_weak(current, new, success, failure)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty, $($operation:ident),+) => {
        impl $name {
            $(pub(crate) fn $operation(&self, value: $value, order: Ordering) -> $value {
                disturb();
                self.0.$operation(value, order)
            })+
        }
    };
}

disturbed!(AtomicU32, u32);
disturbed!(AtomicU64, u64);
disturbed!(AtomicUsize, usize);
disturbed!(AtomicPtr<T>, *mut T);
arithmetic!(AtomicU32, u32, fetch_add, fetch_sub);
arithmetic!(AtomicU64, u64, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_max);
arithmetic!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_max);
