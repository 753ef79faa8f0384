//! Waits for blocks without a thread: wraps a future of the core, and a socket that tells an event
//! loop which futures to poll.
//!
//! A thread that makes blocks available calls the waker of a request, with or without the GIL. The
//! waker adds the request's number to [`Woken`]; if that was empty, it also writes a byte to the
//! socket. The event loop sees the byte, takes the numbers, and polls those requests.

use std::collections::BTreeSet;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use radixkv::{Acquired, Acquiring, Reserving};
use radixkv_host::TieredStart;

use crate::cache::Origin;
use crate::errors::{self, catch};
use crate::fork::{Held, Process};
use crate::host;
use crate::lease::PrefixMatch;
use crate::reservation::Reservation;

/// The numbers of the requests that an event loop has to poll.
struct Woken {
    numbers: Mutex<BTreeSet<u64>>,
    bell: UnixStream,
}

impl Woken {
    fn numbers(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        // Nothing panics while it is locked.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of one request.
struct WakeOne {
    number: u64,
    woken: Arc<Woken>,
}

impl Wake for WakeOne {
    fn wake(self: Arc<Self>) {
        let was_empty = {
            let mut numbers = self.woken.numbers();
            let was_empty = numbers.is_empty();
            numbers.insert(self.number);
            was_empty
        };
        if was_empty {
            // Errors are harmless: a full socket still has unread bytes, and a closed one has no
            // reader.
            let _ = (&self.woken.bell).write(&[0]);
        }
    }
}

/// The queue that an event loop watches: its descriptor is readable when there are requests to
/// poll.
#[pyclass(module = "radixkv", frozen)]
pub(crate) struct WakeQueue {
    woken: Arc<Woken>,
    reader: UnixStream,
    process: Process,
}

#[pymethods]
impl WakeQueue {
    #[new]
    fn new() -> PyResult<Self> {
        let made = UnixStream::pair().and_then(|(reader, bell)| {
            reader.set_nonblocking(true)?;
            bell.set_nonblocking(true)?;
            let woken = Arc::new(Woken { numbers: Mutex::default(), bell });
            Ok(Self { woken, reader, process: Process::current() })
        });
        made.map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// The file descriptor to watch.
    fn fileno(&self) -> PyResult<i32> {
        self.process.check()?;
        Ok(self.reader.as_raw_fd())
    }

    /// take(): takes the numbers of the requests to poll.
    fn take(&self) -> PyResult<Vec<u64>> {
        // The socket is the parent's in a forked child: taking a byte would lose it there.
        self.process.check()?;
        let mut bytes = [0; 64];
        // Empties the socket before it takes the numbers: the byte of a number that is added
        // afterwards stays in the socket.
        while (&self.reader).read(&mut bytes).is_ok_and(|read| read == bytes.len()) {}
        Ok(std::mem::take(&mut *self.woken.numbers()).into_iter().collect())
    }
}

type Request<T> = Pin<Box<dyn Future<Output = Result<T, radixkv::ReserveError>> + Send + Sync>>;

/// A future that is not `Sync`; only `&mut` access is used.
type Exclusive<T> = Mutex<Pin<Box<dyn Future<Output = Result<T, radixkv::ReserveError>> + Send>>>;

enum Kind {
    Reserving(Request<radixkv::Reservation>),
    Acquiring(Request<Acquired>),
    /// Has a reference to the tiers, which keep the mover alive.
    Starting(Exclusive<TieredStart>, Py<host::TieredCache>),
}

/// Polls a request without the GIL: Python code may copy the blocks that it evicts.
fn poll<T: Send, F: Future<Output = T> + Send + ?Sized>(
    py: Python<'_>,
    request: Pin<&mut F>,
    waker: &Waker,
) -> PyResult<Poll<T>> {
    py.detach(|| catch(|| request.poll(&mut Context::from_waker(waker))))
}

/// A waiting request for blocks; `_asyncio.py` polls it.
#[pyclass(module = "radixkv")]
pub(crate) struct Waiting {
    held: Held<Kind>,
    origin: Origin,
}

impl Waiting {
    pub(crate) fn reserving(request: Reserving, origin: Origin) -> Self {
        Self { held: Held::new(Kind::Reserving(Box::pin(request))), origin }
    }

    pub(crate) fn acquiring(request: Acquiring, origin: Origin) -> Self {
        Self { held: Held::new(Kind::Acquiring(Box::pin(request))), origin }
    }

    pub(crate) fn starting(
        request: impl Future<Output = Result<TieredStart, radixkv::ReserveError>> + Send + 'static,
        tiers: Py<host::TieredCache>,
        origin: Origin,
    ) -> Self {
        Self { held: Held::new(Kind::Starting(Mutex::new(Box::pin(request)), tiers)), origin }
    }

    /// Makes a coroutine that waits for the request.
    pub(crate) fn awaitable(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        py.import("radixkv._asyncio")?.call_method1("wait", (Bound::new(py, self)?,))
    }
}

#[pymethods]
impl Waiting {
    /// poll(queue, number): returns the result, or None if the request still waits. Then `queue`
    /// gets `number` as soon as polling again may succeed.
    ///
    /// Raises ReserveError.
    fn poll<'py>(&mut self, py: Python<'py>, queue: &WakeQueue, number: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let waker = Waker::from(Arc::new(WakeOne { number, woken: Arc::clone(&queue.woken) }));
        let origin = self.origin;
        Ok(Some(match self.held.get_mut()? {
            Kind::Reserving(request) => match poll(py, request.as_mut(), &waker)? {
                Poll::Pending => return Ok(None),
                Poll::Ready(reserved) => {
                    Bound::new(py, Reservation::new(reserved.map_err(errors::reserve)?, origin))?.into_any()
                }
            },
            Kind::Acquiring(request) => match poll(py, request.as_mut(), &waker)? {
                Poll::Pending => return Ok(None),
                Poll::Ready(acquired) => {
                    let Acquired { hit, blocks, .. } = acquired.map_err(errors::reserve)?;
                    let ids = hit.blocks().to_vec();
                    let hit = Bound::new(py, PrefixMatch::new(hit.into_lease(), ids, origin.block_size))?;
                    (hit, Bound::new(py, Reservation::new(blocks, origin))?).into_pyobject(py)?.into_any()
                }
            },
            Kind::Starting(request, _) => {
                let request = request.get_mut().unwrap_or_else(PoisonError::into_inner);
                match poll(py, request.as_mut(), &waker)? {
                    Poll::Pending => return Ok(None),
                    Poll::Ready(start) => {
                        let start = start.map_err(errors::reserve)?;
                        Bound::new(py, host::TieredStart::new(py, start, origin)?)?.into_any()
                    }
                }
            }
        }))
    }

    /// Leaves the queue. Does nothing if the request was served or has left.
    fn close(&mut self) -> PyResult<()> {
        catch(|| self.held.release())?
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.held.peek() {
            Some(Kind::Starting(_, tiers)) => visit.call(tiers),
            _ => Ok(()),
        }
    }
}
