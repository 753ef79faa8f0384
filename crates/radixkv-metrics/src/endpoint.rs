//! An address at which a registry's text can be read: HTTP, without anything that a scraper does not need.
//!
//! Each connection has a thread, a deadline and a bound on its bytes. There are at most [`MOST`]: a further one takes the place
//! of the oldest. So neither slow readers nor a flood of connections keep a scraper out for longer than it takes to be served.

mod http;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Scope};
use std::time::{Duration, Instant};

use prometheus_client::registry::Registry;

use crate::TextFormat;

/// Connections at once.
const MOST: usize = 32;
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a connection's stack: a request's head and a text are on the heap.
const STACK: usize = 256 << 10;
/// Between two tries where no connection can be taken, because the process has too many files open.
const PAUSE: Duration = Duration::from_millis(20);

/// An HTTP server that answers `GET /metrics` with a registry's text, on its own threads, until it
/// is dropped. The text is in the [`TextFormat`] that the request's `Accept` header asks for.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
///
/// use radixkv_metrics::prometheus_client::registry::Registry;
/// use radixkv_metrics::{CacheCollector, Endpoint};
///
/// let cache = radixkv::PrefixCache::builder(16, 8).build()?;
/// let mut registry = Registry::default();
/// CacheCollector::register(&cache, &mut registry);
/// let endpoint = Endpoint::start("127.0.0.1:0", registry)?;
///
/// let mut scraper = TcpStream::connect(endpoint.address())?;
/// scraper.write_all(b"GET /metrics HTTP/1.1\r\nhost: cache\r\n\r\n")?;
/// let mut answer = String::new();
/// scraper.read_to_string(&mut answer)?;
/// assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("radixkv_capacity_blocks 8\n"));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Endpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Why an endpoint could not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum EndpointError {
    /// Another program uses the address: choose another port, or 0 for any free one.
    Taken {
        /// The address asked for.
        address: Box<str>,
    },
    /// The address is not one of this machine, such as `127.0.0.1:9400`, or is not permitted.
    Unusable {
        /// The address asked for.
        address: Box<str>,
        /// What the system says.
        source: io::Error,
    },
    /// The system could not start a thread.
    NoThread(io::Error),
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { address } => {
                write!(f, "{address} is in use by another program: choose another port, or 0 for a free one")
            }
            Self::Unusable { address, source } => write!(f, "cannot listen at {address}: {source}"),
            Self::NoThread(source) => write!(f, "starting a thread for the metrics failed: {source}"),
        }
    }
}

impl std::error::Error for EndpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Taken { .. } => None,
            Self::Unusable { source, .. } | Self::NoThread(source) => Some(source),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What the threads share.
struct Shared {
    registry: Registry,
    stop: AtomicBool,
    connections: Mutex<Connections>,
}

/// The connections that are open, the oldest first, and the number of the next one.
#[derive(Default)]
struct Connections {
    open: VecDeque<(u64, TcpStream)>,
    next: u64,
}

impl Endpoint {
    /// Starts a server at an address such as `127.0.0.1:9400`; port 0 is any free port.
    ///
    /// Whoever reaches the address reads the metrics: choose one that only scrapers reach.
    ///
    /// # Errors
    ///
    /// [`EndpointError`].
    pub fn start(address: &str, registry: Registry) -> Result<Self, EndpointError> {
        let listener = listen(address)?;
        let unusable = |source| EndpointError::Unusable { address: address.into(), source };
        let bound = listener.local_addr().map_err(unusable)?;
        let connections = Mutex::default();
        let shared = Arc::new(Shared { registry, stop: AtomicBool::new(false), connections });
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.accept(&listener)
        });
        Ok(Self { address: bound, shared, thread: Some(thread.map_err(EndpointError::NoThread)?) })
    }

    /// The address with the bound port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    /// Ends all connections, and waits for their threads.
    fn drop(&mut self) {
        // Relaxed: the connection below comes after it, and wakes the thread that looks.
        self.shared.stop.store(true, Relaxed);
        for (_, stream) in &self.shared.connections().open {
            // One that is gone already is as good.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let woken = TcpStream::connect_timeout(&reachable(self.address), PATIENCE).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            // A panic there was told of when it happened.
            let _ = thread.join();
        }
    }
}

fn listen(address: &str) -> Result<TcpListener, EndpointError> {
    let bound = address.to_socket_addrs().and_then(|addresses| TcpListener::bind(&*addresses.collect::<Vec<_>>()));
    bound.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => EndpointError::Taken { address: address.into() },
        _ => EndpointError::Unusable { address: address.into(), source },
    })
}

/// An address at which this machine reaches itself, also where every address is listened to.
fn reachable(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(host) if host.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(host) if host.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        host => host,
    };
    SocketAddr::new(host, address.port())
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        // Nothing panics while it is locked.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes connections until it is told to stop.
    fn accept(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            loop {
                let accepted = listener.accept();
                // Relaxed: see `drop`.
                if self.stop.load(Relaxed) {
                    return;
                }
                match accepted {
                    Ok((stream, _)) => self.serve(stream, scope),
                    Err(_) => thread::sleep(PAUSE),
                }
            }
        });
    }

    /// Serves a connection on a thread of its own; ends it if there can be none.
    fn serve<'scope>(&'scope self, stream: TcpStream, scope: &'scope Scope<'scope, '_>) {
        let Ok(kept) = stream.try_clone() else { return };
        let number = self.add(kept);
        let deadline = Instant::now() + PATIENCE;
        let thread = thread::Builder::new().name("metrics".to_owned()).stack_size(STACK);
        let spawned = thread.spawn_scoped(scope, move || {
            http::answer(&stream, deadline, |format: TextFormat| format.text(&self.registry));
            self.remove(number);
        });
        if spawned.is_err() {
            self.remove(number);
        }
    }

    /// Adds a connection, in place of the oldest if there are too many; its number.
    fn add(&self, stream: TcpStream) -> u64 {
        let mut connections = self.connections();
        if connections.open.len() == MOST {
            if let Some((_, oldest)) = connections.open.pop_front() {
                // One that is gone already is as good.
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        let number = connections.next;
        connections.next += 1;
        connections.open.push_back((number, stream));
        // Relaxed: `drop` stops the connections that it finds here, and this one if it was not here yet.
        if self.stop.load(Relaxed) {
            if let Some((_, stream)) = connections.open.back() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        number
    }

    fn remove(&self, number: u64) {
        self.connections().open.retain(|(other, _)| *other != number);
    }
}
