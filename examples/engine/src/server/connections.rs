//! Connections: how many, how slow, how large; and their end.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

use super::{Service, routes};

/// Connections at once; further ones wait to be accepted.
const CONNECTIONS: usize = 1_024;

/// How long a client may take for a request's head.
const HEAD: Duration = Duration::from_secs(10);

/// How long a client may leave an answer unread.
const UNREAD: Duration = Duration::from_secs(30);

/// Bytes and fields of a request's head; more are answered with 431.
const HEAD_BYTES: usize = 32 << 10;
const HEAD_FIELDS: usize = 64;

/// How long accepting rests when the system has no sockets left.
const REST: Duration = Duration::from_millis(50);

/// Accepts connections until `stop` is ready or a scheduler thread has failed, then waits for those that are busy.
pub(super) async fn run(
    listener: TcpListener,
    service: Arc<Service>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let router = routes::router(Arc::clone(&service));
    let (connections, graceful) = (Arc::new(Semaphore::new(CONNECTIONS)), GracefulShutdown::new());
    let mut stop = pin!(stop);
    loop {
        let accept = async {
            let permit = Arc::clone(&connections).acquire_owned().await;
            (permit.expect("the semaphore is not closed"), listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = &mut stop => break,
            () = service.requests.failed() => break,
            accepted = accept => accepted,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(UNREAD));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_headers(HEAD_FIELDS).max_buf_size(HEAD_BYTES);
        let connection =
            http.serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A connection that breaks is its client's affair; its request is aborted with its handler.
            drop(connection.await);
            drop(permit);
        });
    }
    drop(listener);
    service.requests.close();
    // What is not answered by then is dropped with the runtime.
    drop(tokio::time::timeout(service.options.drain, graceful.shutdown()).await);
    Ok(())
}
