//! A minimal HTTP server that serves a registry's text to scrapers.
//!
//! Each connection has a thread, a deadline and a limit on its bytes. There are at most [`MOST`]
//! connections; one more replaces the oldest. So slow readers cannot block a scraper. Under a
//! flood, a scraper is served if that takes less time than [`MOST`] new connections.

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

/// Maximum number of open connections.
const MOST: usize = 32;
/// Maximum duration of a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time until the headers of its request are complete.
const HEAD: Duration = Duration::from_secs(4);
/// Stack size of a connection's thread in bytes. Requests and texts are on the heap.
const STACK: usize = 256 << 10;
/// Pause after `accept` failed, for example because the process has too many open files.
const PAUSE: Duration = Duration::from_millis(20);

/// An HTTP server that answers `GET /metrics` with a registry's text, on its own threads, until it
/// is dropped. The request's `Accept` header selects the [`TextFormat`].
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
        /// The requested address.
        address: Box<str>,
    },
    /// The address is invalid, not of this machine, or not permitted; `127.0.0.1:9400` is a valid
    /// one.
    Unusable {
        /// The requested address.
        address: Box<str>,
        /// The system's error.
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
            Self::Unusable { address, source } => write!(f, "cannot listen on {address}: {source}"),
            Self::NoThread(source) => write!(f, "cannot start the metrics thread: {source}"),
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

/// State that the threads share.
struct Shared {
    registry: Registry,
    stop: AtomicBool,
    connections: Mutex<Connections>,
}

/// The open connections, oldest first, and the number of the next one.
#[derive(Default)]
struct Connections {
    open: VecDeque<(u64, TcpStream)>,
    next: u64,
}

impl Endpoint {
    /// Starts a server at an address such as `127.0.0.1:9400`; port 0 selects a free port.
    ///
    /// There is no authentication: choose an address that only scrapers can reach.
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
    /// Closes all connections, and waits for their threads.
    fn drop(&mut self) {
        // Relaxed: the connection below is made after the store and wakes the thread that reads it.
        self.shared.stop.store(true, Relaxed);
        for (_, stream) in &self.shared.connections().open {
            // An error means that the connection is already closed.
            let _ = stream.shutdown(Shutdown::Both);
        }
        let woken = TcpStream::connect_timeout(&reachable(self.address), PATIENCE).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            // The panic hook has already reported a panic of the thread.
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

/// The address to connect to from this machine; loopback if the server listens at all addresses.
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

    /// Accepts connections until `stop` is set.
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

    /// Serves a connection on a new thread; closes it if no thread can be started.
    fn serve<'scope>(&'scope self, stream: TcpStream, scope: &'scope Scope<'scope, '_>) {
        let Ok(kept) = stream.try_clone() else { return };
        let number = self.add(kept);
        let begun = Instant::now();
        let thread = thread::Builder::new().name("metrics".to_owned()).stack_size(STACK);
        let spawned = thread.spawn_scoped(scope, move || {
            http::answer(&stream, begun + HEAD, begun + PATIENCE, |format: TextFormat| format.text(&self.registry));
            self.remove(number);
        });
        if spawned.is_err() {
            self.remove(number);
        }
    }

    /// Adds a connection and closes the oldest one if there are too many. Returns the new one's
    /// number.
    fn add(&self, stream: TcpStream) -> u64 {
        let mut connections = self.connections();
        if connections.open.len() == MOST {
            if let Some((_, oldest)) = connections.open.pop_front() {
                // An error means that the connection is already closed.
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        let number = connections.next;
        connections.next += 1;
        connections.open.push_back((number, stream));
        // Relaxed: `drop` sets `stop` before it takes the lock, so either it finds this connection
        // in the list, or this load sees `stop`.
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
