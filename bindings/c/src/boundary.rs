//! The boundary between C and Rust, used by every exported function: catches panics, checks
//! pointers, and rejects concurrent use of a handle.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::status::{Status, remember};

/// Runs the body of an exported function, and turns an error or a panic into a status.
///
/// After a panic, each handle of the core is unchanged or was dropped.
pub(crate) fn run(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::Panic(text_of(panic)),
    };
    let status = failure.status();
    // This drops an earlier failure, which cannot panic.
    remember(failure);
    status
}

/// Frees a handle: the body of every `_free` function. NULL is allowed, as in `free`.
pub(crate) fn free<T>(handle: Option<Box<T>>) {
    run(|| {
        drop(handle);
        Ok(())
    });
}

fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    // Dropping the payload could panic again.
    std::mem::forget(panic);
    text
}

/// The handle that an argument points to; an error if it is NULL.
pub(crate) fn given<'a, T>(handle: Option<&'a T>, argument: &'static str) -> Result<&'a T, Failure> {
    handle.ok_or(Failure::Null(argument))
}

/// The output pointer for a result; an error if it is NULL.
pub(crate) fn output<'a, T>(
    place: Option<&'a mut MaybeUninit<T>>,
    argument: &'static str,
) -> Result<&'a mut MaybeUninit<T>, Failure> {
    place.ok_or(Failure::Null(argument))
}

/// The output pointer for a new handle. Sets the handle to NULL, so that it is NULL if the call
/// fails later.
pub(crate) fn new_handle<'a, T>(
    place: Option<&'a mut MaybeUninit<Option<Box<T>>>>,
    argument: &'static str,
) -> Result<&'a mut Option<Box<T>>, Failure> {
    Ok(output(place, argument)?.write(None))
}

/// The caller's array as a slice; it may be NULL only if it has no elements.
///
/// # Safety
///
/// `data` is NULL, or points to `len` elements that nothing changes during the call.
pub(crate) unsafe fn slice<'a, T>(data: *const T, len: usize, argument: &'static str) -> Result<&'a [T], Failure> {
    check_array(data, len, argument)?;
    // SAFETY: as the caller promised; if not empty, not NULL, aligned, and within the address
    // space.
    Ok(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, len) } })
}

/// The caller's buffer, with room for at least `needed` elements. `None` if it is NULL and has no
/// elements: then the caller wants no output.
///
/// # Safety
///
/// `data` is NULL, or points to `room` elements of memory that nothing else uses during the call.
pub(crate) unsafe fn buffer<'a, T>(
    data: *mut T,
    room: usize,
    needed: usize,
    argument: &'static str,
) -> Result<Option<&'a mut [MaybeUninit<T>]>, Failure> {
    if data.is_null() && room == 0 {
        return Ok(None);
    }
    check_array(data, room, argument)?;
    if room < needed {
        return Err(Failure::BufferTooShort { argument, needed, room });
    }
    // SAFETY: as the caller promised; if not empty, not NULL, aligned, and within the address
    // space.
    Ok(Some(if room == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(data.cast(), room) } }))
}

fn check_array<T>(data: *const T, len: usize, argument: &'static str) -> Result<(), Failure> {
    if data.is_null() && len > 0 {
        return Err(Failure::Null(argument));
    }
    if len > isize::MAX as usize / size_of::<T>() {
        return Err(Failure::Invalid { argument, accepted: "no longer than the address space" });
    }
    if data.addr() % align_of::<T>() != 0 {
        return Err(Failure::Invalid { argument, accepted: "aligned for its type" });
    }
    Ok(())
}

/// Writes `values` to the beginning of a buffer that [`buffer`] returned.
pub(crate) fn fill<T: Copy>(buffer: Option<&mut [MaybeUninit<T>]>, values: &[T]) {
    // The compiler turns this loop over two slices into one copy.
    for (place, value) in buffer.unwrap_or_default().iter_mut().zip(values) {
        place.write(*value);
    }
}

/// Writes a struct to a caller whose version of it has `size` bytes. If the caller's version is
/// older, the new fields at its end are not written; if it is newer, the extra fields stay zero.
///
/// # Safety
///
/// `place` is NULL, or points to `size` bytes of memory that nothing else uses during the call.
pub(crate) unsafe fn write_known<T>(
    place: *mut T,
    size: usize,
    value: T,
    argument: &'static str,
) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::Null(argument));
    }
    if size == 0 {
        return Err(Failure::Invalid { argument: "size", accepted: "sizeof of the struct" });
    }
    let known = size.min(size_of::<T>());
    // SAFETY: as the caller promised. Fields that this library does not know stay zero.
    unsafe { std::ptr::write_bytes(place.cast::<u8>(), 0, size) };
    // SAFETY: both have `known` bytes, and do not overlap: one is on this stack.
    unsafe { std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), place.cast::<u8>(), known) };
    Ok(())
}

/// The caller's text, which must be UTF-8. Without `len` it ends before the terminating zero.
///
/// # Safety
///
/// `data` is NULL, or points to `len` bytes, or without a length to bytes that end with a zero.
pub(crate) unsafe fn text<'a>(
    data: *const c_char,
    len: Option<usize>,
    argument: &'static str,
) -> Result<&'a str, Failure> {
    let bytes = match len {
        // SAFETY: as the caller promised.
        Some(len) => unsafe { slice(data.cast::<u8>(), len, argument) }?,
        None if data.is_null() => return Err(Failure::Null(argument)),
        // SAFETY: as the caller promised; not NULL.
        None => unsafe { CStr::from_ptr(data) }.to_bytes(),
    };
    std::str::from_utf8(bytes).map_err(|_| Failure::Invalid { argument, accepted: "UTF-8" })
}

/// The deadline `nanos` nanoseconds from now, at most a century.
pub(crate) fn deadline(nanos: u64) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(Duration::from_nanos(nanos).min(CENTURY)).unwrap_or(now)
}

/// Identifies the cache that owns a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    /// A new identity, for a new cache.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers need only be distinct.
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn check(self, other: Self, argument: &'static str) -> Result<(), Failure> {
        if self == other { Ok(()) } else { Err(Failure::OtherCache(argument)) }
    }
}

/// A value that one thread at a time may use. A second thread gets an error immediately.
pub(crate) struct Exclusive<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only through `Entered`; `busy` ensures that only one exists at a
// time. Acquire and Release order the uses.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub(crate) fn enter(&self, argument: &'static str) -> Result<Entered<'_, T>, Failure> {
        if self.busy.swap(true, Ordering::Acquire) {
            Err(Failure::Busy(argument))
        } else {
            Ok(Entered(self, PhantomData))
        }
    }
}

/// Exclusive access to an [`Exclusive`] value, until dropped. It is `Sync` only if the value is.
pub(crate) struct Entered<'a, T>(&'a Exclusive<T>, PhantomData<&'a mut T>);

impl<T> Deref for Entered<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this is the only use of the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Entered<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only use of the value.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::status::{Error, radixkv_last_error};

    /// The status and the text of this thread's last failed call.
    fn last_error() -> (Status, String) {
        let mut error = MaybeUninit::<Error>::uninit();
        assert_eq!(radixkv_last_error(Some(&mut error)), Status::Ok);
        // SAFETY: the call has written it.
        let error = unsafe { error.assume_init() };
        // SAFETY: the text ends with a zero and is valid until the next call.
        let text = unsafe { CStr::from_ptr(error.text) };
        (error.status, text.to_str().expect("UTF-8").to_owned())
    }

    // Holds: CC5.
    #[test]
    fn a_panic_becomes_a_status() {
        for (panic, text) in [
            (Box::new("broken") as Box<dyn Any + Send>, "a bug of radixkv: broken"),
            (Box::new("broken\0again".to_owned()), "a bug of radixkv: broken?again"),
            (Box::new(7), "a bug of radixkv: "),
        ] {
            assert_eq!(run(|| std::panic::resume_unwind(panic)), Status::Panicked);
            assert_eq!(last_error(), (Status::Panicked, text.to_owned()));
        }
    }

    // Holds: CC5.
    #[test]
    fn a_panic_leaves_the_handle_usable() {
        let value = Exclusive::new(1);
        let status = run(|| {
            *value.enter("value")? = 2;
            std::panic::resume_unwind(Box::new("inside"))
        });
        assert_eq!(status, Status::Panicked);
        assert_eq!(value.enter("value").map(|entered| *entered).ok(), Some(2));
    }

    // Holds: CC4.
    #[test]
    fn one_use_at_a_time() {
        let value = Exclusive::new(1);
        let first = value.enter("value").expect("nobody uses it");
        assert_eq!(value.enter("value").err().map(|failure| failure.status()), Some(Status::HandleBusy));
        drop(first);
        assert!(value.enter("value").is_ok());
    }

    #[test]
    fn a_deadline_is_never_in_the_past() {
        assert!(deadline(u64::MAX) > Instant::now() + Duration::from_secs(3600));
        assert!(deadline(0) <= Instant::now());
    }
}
