//! Status codes, and the error of a thread's last failed call.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use crate::boundary::{output, run};
use crate::failure::Failure;

/// The result of a function. `radixkv_last_error` has the text and the numbers of an error.
///
/// If it is not `RADIXKV_STATUS_OK`, nothing has changed, except after `RADIXKV_STATUS_PANICKED`;
/// handles that the function would have created are NULL.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// A required argument is NULL.
    NullPointer = 1,
    /// An argument is out of its range: the text says which, and what is accepted.
    InvalidArgument = 2,
    /// A buffer has room for fewer elements than the call may write: `requested` of `available`.
    BufferTooShort = 3,
    /// A handle belongs to another cache.
    OtherCache = 4,
    /// Another thread is inside a call with the same handle, which only one thread may use at a
    /// time.
    HandleBusy = 5,
    /// The tokens are shorter than the sequence of their lease: pass the whole sequence.
    SequenceTooShort = 6,
    /// Different namespaces pay for the two reservations.
    OtherPayer = 7,
    /// Leases and reservations hold too many blocks: retry when some are released.
    Exhausted = 20,
    /// The namespace would have more blocks in leases and reservations than its quota allows.
    OverQuota = 21,
    /// The timeout passed before enough blocks were available.
    TimedOut = 22,
    /// The request has more blocks than the cache: it can never succeed.
    TooLarge = 23,
    /// The engine owns the blocks (`radixkv_builder_external`): adopt them instead of reserving.
    ExternalPool = 24,
    /// The cache owns the blocks: build it with `radixkv_builder_external`.
    NotExternal = 25,
    /// The cache already has one of the blocks, or the list has it twice: its id is `requested`.
    BlockHeld = 26,
    /// A block id is not below the capacity: the id is `requested`.
    BlockOutOfRange = 27,
    /// The number of blocks in the reservation differs from the number of whole blocks of the
    /// sequence beyond the lease.
    BlockCount = 40,
    /// The sequence is longer than 2^31 - 1 tokens.
    SequenceTooLong = 41,
    /// A fork also holds a block of the reservation: `radixkv_reservation_make_unique` first.
    SharedBlock = 42,
    /// The lease protects nothing, because its namespace was removed or cleared: match again.
    NamespaceRemoved = 43,
    /// Blocks of the lease were invalidated: match again, and compute what is missing.
    Invalidated = 44,
    /// Too many sequences branch off after the same token: retry when some leases are released.
    TooManyBranches = 45,
    /// The prefix holds 2^28 leases: retry when some are released.
    TooManyLeases = 46,
    /// The namespace has leases or reservations, and was not changed.
    NamespaceInUse = 47,
    /// The growth exceeds the limit that was set when the cache was built.
    CannotGrow = 60,
    /// The cache has no background evictor.
    NotBackground = 61,
    /// The system could not start the evictor's thread.
    NoThread = 62,
    /// An invariant of the cache is broken: a bug of this library (`radixkv_cache_validate`).
    Violation = 63,
    /// Another failure: the text says which.
    Other = 98,
    /// A bug of this library: the text is the panic message. Free the handles, and stop using the
    /// library.
    Panicked = 99,
}

/// The error of a thread's last failed call.
#[repr(C)]
#[derive(Debug)]
pub struct Error {
    /// Its status; `RADIXKV_STATUS_OK` if no call of this thread has failed yet.
    pub status: Status,
    /// The requested number of blocks, tokens or elements. This and the next two are 0 if they do
    /// not apply to the status.
    pub requested: usize,
    /// The available number: free or evictable blocks, pinned blocks of the namespace, elements of
    /// the buffer.
    pub available: usize,
    /// The limit: the quota of the namespace, or the capacity of the cache.
    pub limit: usize,
    /// One line of text. Valid until this thread calls `radixkv_last_error` again.
    pub text: *const c_char,
}

thread_local! {
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
    static TEXT: RefCell<CString> = RefCell::new(CString::default());
}

/// Stores a failure for `radixkv_last_error`. Does nothing while the thread ends.
pub(crate) fn remember(failure: Failure) {
    let _ = LAST.try_with(|last| last.replace(Some(failure)));
}

/// Writes the error of this thread's last failed call to `error`. Calls that succeed do not change
/// it.
///
/// Threads: any; each has its own last error.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_last_error(error: Option<&mut MaybeUninit<Error>>) -> Status {
    run(|| {
        let error = output(error, "error")?;
        let (status, [requested, available, limit], text) = LAST
            .try_with(|last| {
                last.borrow().as_ref().map(|failure| (failure.status(), failure.numbers(), failure.to_string()))
            })
            .ok()
            .flatten()
            .unwrap_or((Status::Ok, [0; 3], "no call has failed".to_owned()));
        let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
        let kept = TEXT.try_with(|kept| {
            kept.replace(text);
            kept.borrow().as_ptr()
        });
        let text = kept.unwrap_or(c"the thread is ending".as_ptr());
        error.write(Error { status, requested, available, limit, text });
        Ok(())
    })
}

/// Returns a short text for a status, without the numbers of a call. Never NULL, even for unknown
/// numbers; always valid.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_status_text(status: i32) -> *const c_char {
    TEXTS.iter().find(|(known, _)| *known as i32 == status).map_or(c"unknown status", |(_, text)| text).as_ptr()
}

const TEXTS: &[(Status, &std::ffi::CStr)] = &[
    (Status::Ok, c"done"),
    (Status::NullPointer, c"a required argument is NULL"),
    (Status::InvalidArgument, c"an argument is out of its range"),
    (Status::BufferTooShort, c"a buffer is too short"),
    (Status::OtherCache, c"a handle belongs to another cache"),
    (Status::HandleBusy, c"another thread is using the handle"),
    (Status::SequenceTooShort, c"the tokens are shorter than the sequence of their lease"),
    (Status::OtherPayer, c"different namespaces pay for the two reservations"),
    (Status::Exhausted, c"leases and reservations hold too many blocks"),
    (Status::OverQuota, c"the quota of the namespace is exceeded"),
    (Status::TimedOut, c"the timeout passed before enough blocks were available"),
    (Status::TooLarge, c"more blocks than the cache has"),
    (Status::ExternalPool, c"the engine owns the blocks"),
    (Status::NotExternal, c"the cache owns the blocks"),
    (Status::BlockHeld, c"the cache already has the block"),
    (Status::BlockOutOfRange, c"a block id is not below the capacity"),
    (Status::BlockCount, c"the reservation has the wrong number of blocks"),
    (Status::SequenceTooLong, c"the sequence is too long"),
    (Status::SharedBlock, c"a fork also holds the block"),
    (Status::NamespaceRemoved, c"the namespace of the lease was removed or cleared"),
    (Status::Invalidated, c"blocks of the lease were invalidated"),
    (Status::TooManyBranches, c"too many sequences branch off after one token"),
    (Status::TooManyLeases, c"the prefix holds too many leases"),
    (Status::NamespaceInUse, c"the namespace is in use"),
    (Status::CannotGrow, c"the growth exceeds the limit of the cache"),
    (Status::NotBackground, c"the cache has no background evictor"),
    (Status::NoThread, c"the system could not start a thread"),
    (Status::Violation, c"an invariant of the cache is broken"),
    (Status::Other, c"another failure"),
    (Status::Panicked, c"a bug of this library"),
];

/// Returns the version of the library, such as "0.1.0". Never NULL; always valid.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_version() -> *const c_char {
    const VERSION: &[u8] = concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes();
    VERSION.as_ptr().cast()
}
