//! Accepts connections, enforces their limits (number, time, size of a request's head), and drains
//! them at the end.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio_io_timeout::TimeoutStream;

use super::error::ApiError;
use super::open::{Connection, Open};
use super::{Service as Engine, routes};

/// Maximum time for a client to send a request's head.
const HEAD: Duration = Duration::from_secs(10);

/// Maximum time for which a client may leave an answer unread.
const UNREAD: Duration = Duration::from_secs(30);

/// Maximum bytes and fields of a request's head; more are answered with 431. The library's own
/// limit is not exact, so both are checked.
const HEAD_BYTES: usize = 32 << 10;
const HEAD_FIELDS: usize = 64;

/// Pause before the next `accept` when the system has no sockets left.
const REST: Duration = Duration::from_millis(50);

/// Accepts connections until `stop` is ready or a scheduler thread has failed, then waits for
/// connections that are serving a request.
pub(super) async fn run(listener: TcpListener, service: Arc<Engine>, stop: impl Future<Output = ()>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let routes = TowerToHyperService::new(routes::router(Arc::clone(&service)));
    let (open, graceful) = (Arc::new(Open::new(service.options.connections)), GracefulShutdown::new());
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            () = service.requests.failed() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            open.make_room();
            tokio::time::sleep(REST).await;
            continue;
        };
        let connection = open.add();
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(UNREAD));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_headers(HEAD_FIELDS).max_buf_size(HEAD_BYTES);
        let served = http.serve_connection(TokioIo::new(Box::pin(stream)), serve(&routes, &connection));
        let (served, open) = (graceful.watch(served), Arc::clone(&open));
        tokio::spawn(async move {
            tokio::select! {
                // Errors of a connection are ignored: dropping its handler aborts the request.
                _ = served => {}
                () = connection.gives_way() => {}
            }
            open.remove(&connection);
        });
    }
    drop(listener);
    service.requests.close();
    // Requests that are not answered in time are dropped with the runtime.
    drop(tokio::time::timeout(service.options.drain, graceful.shutdown()).await);
    Ok(())
}

/// The service that answers the requests of a connection.
fn serve<R>(
    routes: &R,
    connection: &Arc<Connection>,
) -> impl Service<
    Request<Incoming>,
    Response = Response,
    Error = Infallible,
    Future = impl Future<Output = Answer> + Send + use<R>,
> + use<R>
where
    R: Service<Request<Incoming>, Response = Response, Error = Infallible> + Clone + Send + 'static,
    R::Future: Send,
{
    let (routes, connection) = (routes.clone(), Arc::clone(connection));
    service_fn(move |mut request: Request<Incoming>| {
        let answer = match refusal(&request, &connection) {
            Some(refusal) => Err(refusal),
            None => {
                request.extensions_mut().insert(Arc::clone(&connection));
                Ok(routes.call(request))
            }
        };
        async move {
            match answer {
                Ok(answer) => answer.await,
                Err(refusal) => Ok(refusal),
            }
        }
    })
}

type Answer = Result<Response, Infallible>;

/// The error response for a request that is refused before its body is read, if any.
fn refusal(request: &Request<Incoming>, connection: &Connection) -> Option<Response> {
    let field = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + ": \r\n".len();
    let line = request.method().as_str().len() + request.uri().to_string().len() + "  HTTP/1.1\r\n".len();
    let bytes = line + request.headers().iter().map(field).sum::<usize>() + "\r\n".len();
    if bytes > HEAD_BYTES {
        let message = format!("the request's head has {bytes} bytes, at most {HEAD_BYTES} are read");
        return Some(ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message).into_response());
    }
    let is_usual = !matches!(request.uri().path(), "/health" | "/metrics");
    (connection.is_spare && is_usual).then(|| {
        let error = ApiError::later(1, "all connections have a request that is served");
        // A connection stays spare: the client's next one may be usual.
        ([(header::CONNECTION, "close")], error).into_response()
    })
}
