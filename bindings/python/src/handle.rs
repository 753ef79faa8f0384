//! Handles that several threads may use at the same time.
//!
//! Each handle has a lock. It is held only during calls into the core that neither run Python code
//! nor wait for another thread. A method that does one of these works without the lock, on a value
//! that it has borrowed or copied. So threads may wait for the lock while they hold the GIL.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::PyResult;

use crate::errors::{self, catch};
use crate::fork::Process;

struct Slot<T> {
    value: Option<T>,
    /// Whether a method has borrowed the value, and the handle was not released since then.
    is_lent: bool,
}

/// A value of the core that can be released, and that only the process that created it can use.
pub(crate) struct Handle<T> {
    slot: Mutex<Slot<T>>,
    process: Process,
}

impl<T> Handle<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { slot: Mutex::new(Slot { value: Some(value), is_lent: false }), process: Process::current() }
    }

    /// Call [`check`](Process::check) first: in a forked child, another thread's lock stays locked.
    fn lock(&self) -> MutexGuard<'_, Slot<T>> {
        // Nothing panics while it is locked.
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process created the handle: methods of a forked child raise ForkError.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// Whether the handle has a value: it was not released, and no other method has it.
    pub(crate) fn is_held(&self) -> bool {
        if self.process.is_current() {
            return self.lock().value.is_some();
        }
        // A method of the parent was using the value if the slot was locked at the fork.
        self.slot.try_lock().map_or(true, |slot| slot.value.is_some())
    }

    /// Calls the core with the value.
    #[inline]
    pub(crate) fn with<R>(&self, verb: impl FnOnce(&mut T) -> R) -> PyResult<R> {
        self.process.check()?;
        let mut slot = self.lock();
        let done = slot.value.as_mut().map(|value| catch_unwind(AssertUnwindSafe(|| verb(value))));
        // Errors are Python objects: they are created without the lock.
        drop(slot);
        done.ok_or_else(errors::released)?.map_err(|panic| errors::internal(&*panic))
    }

    /// Calls the core with the values of two handles, which must not be the same. The second value
    /// may be taken out.
    pub(crate) fn with_both<R>(&self, other: &Self, verb: impl FnOnce(&mut T, &mut Option<T>) -> R) -> PyResult<R> {
        self.process.check()?;
        other.process.check()?;
        // Locks in the order of the addresses, as all threads do.
        let is_first = address(self) < address(other);
        let (first, second) = if is_first { (self, other) } else { (other, self) };
        let (mut first, mut second) = (first.lock(), second.lock());
        let (own, more) = if is_first { (&mut *first, &mut *second) } else { (&mut *second, &mut *first) };
        let done = match (&mut own.value, &mut more.value) {
            (Some(own), more @ Some(_)) => Some(catch_unwind(AssertUnwindSafe(|| verb(own, more)))),
            _ => None,
        };
        drop((first, second));
        done.ok_or_else(errors::released)?.map_err(|panic| errors::internal(&*panic))
    }

    /// Calls the core with the values of several handles, some of which may be the same.
    pub(crate) fn with_all<R>(handles: &[&Self], verb: impl FnOnce(&[&T]) -> R) -> PyResult<R> {
        handles.iter().try_for_each(|handle| handle.process.check())?;
        let mut order = handles.to_vec();
        order.sort_unstable_by_key(|handle| address(handle));
        order.dedup_by_key(|handle| address(handle));
        let locked: Vec<_> = order.iter().map(|handle| handle.lock()).collect();
        let value = |handle: &&Self| {
            let at = order.binary_search_by_key(&address(handle), |handle| address(handle)).ok()?;
            locked[at].value.as_ref()
        };
        let values: Option<Vec<_>> = handles.iter().map(value).collect();
        let done = values.map(|values| catch_unwind(AssertUnwindSafe(|| verb(&values))));
        drop(locked);
        done.ok_or_else(errors::released)?.map_err(|panic| errors::internal(&*panic))
    }

    fn take_out<E>(&self, is_lent: bool, check: impl FnOnce(&T) -> Result<(), E>) -> PyResult<Result<T, E>> {
        self.process.check()?;
        let mut slot = self.lock();
        let taken = match slot.value.take() {
            Some(value) => match check(&value) {
                Ok(()) => Some(Ok(value)),
                Err(refused) => {
                    slot.value = Some(value);
                    Some(Err(refused))
                }
            },
            None => None,
        };
        slot.is_lent |= is_lent && matches!(taken, Some(Ok(_)));
        drop(slot);
        taken.ok_or_else(errors::released)
    }

    /// Takes the value out if `check` succeeds. Later uses of the handle raise.
    pub(crate) fn take_if<E>(&self, check: impl FnOnce(&T) -> Result<(), E>) -> PyResult<Result<T, E>> {
        self.take_out(false, check)
    }

    /// Takes the value out. Later uses of the handle raise.
    pub(crate) fn take(&self) -> PyResult<T> {
        self.take_out(false, |_| Ok(())).map(|taken| taken.unwrap_or_else(|never: Infallible| match never {}))
    }

    /// Same as `take_if`, for a method that may [put the value back](Self::put_back).
    pub(crate) fn lend_if<E>(&self, check: impl FnOnce(&T) -> Result<(), E>) -> PyResult<Result<T, E>> {
        self.take_out(true, check)
    }

    /// Puts back a borrowed value. Drops it if the handle was released meanwhile.
    pub(crate) fn put_back(&self, value: T) -> PyResult<()> {
        self.process.check()?;
        let mut slot = self.lock();
        let mut unused = Some(value);
        if std::mem::take(&mut slot.is_lent) {
            slot.value = unused.take();
        }
        drop(slot);
        catch(|| drop(unused))
    }

    /// Drops the value, if it was not taken or released.
    pub(crate) fn release(&self) -> PyResult<()> {
        self.process.check()?;
        let mut slot = self.lock();
        slot.is_lent = false;
        let value = slot.value.take();
        drop(slot);
        catch(|| drop(value))
    }
}

fn address<T>(handle: &Handle<T>) -> usize {
    std::ptr::from_ref(handle).addr()
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if !self.process.is_current() {
            let slot = self.slot.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(slot.value.take());
        }
    }
}
