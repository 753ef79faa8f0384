//! Answers one HTTP/1.1 request, with only the features that a scraper needs.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::TextFormat;

/// Maximum bytes of a request up to the end of its headers.
const MOST_BYTES: usize = 8 << 10;
/// Maximum bytes that are read and discarded after the answer.
const MOST_LEFT: usize = 64 << 10;
const PATH: &str = "/metrics";

/// Why a request gets no metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Malformed,
    NoSuchPath,
    OtherMethod,
    TooSlow,
    TooLong,
    /// A collector panicked.
    Failed,
}

impl Refusal {
    fn status(self) -> &'static str {
        match self {
            Self::Malformed => "400 Bad Request",
            Self::NoSuchPath => "404 Not Found",
            Self::OtherMethod => "405 Method Not Allowed",
            Self::TooSlow => "408 Request Timeout",
            Self::TooLong => "431 Request Header Fields Too Large",
            Self::Failed => "500 Internal Server Error",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "not an HTTP/1 request\n",
            Self::NoSuchPath => "not found: the only path is /metrics\n",
            Self::OtherMethod => "only GET and HEAD are allowed\n",
            Self::TooSlow => "the request did not arrive in time\n",
            Self::TooLong => "the request headers are larger than 8 KiB\n",
            Self::Failed => "a collector of metrics panicked\n",
        }
    }
}

/// A valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    /// Whether the request is a HEAD, which is answered without a body.
    is_head: bool,
    format: TextFormat,
}

/// Reads and answers one request. Refuses it if its headers are incomplete at `head_deadline`, and
/// gives up at `deadline`.
pub(super) fn answer(
    stream: &TcpStream,
    head_deadline: Instant,
    deadline: Instant,
    text: impl FnOnce(TextFormat) -> String,
) {
    // Errors are ignored: the client has disconnected or is too slow.
    let _ = respond(stream, head_deadline, deadline, text);
}

fn respond(
    mut stream: &TcpStream,
    head_deadline: Instant,
    deadline: Instant,
    text: impl FnOnce(TextFormat) -> String,
) -> io::Result<()> {
    let wanted = read_head(stream, head_deadline)?.and_then(|head| parse(&head));
    // Collectors may call functions of the embedder.
    let text = |format| catch_unwind(AssertUnwindSafe(|| text(format))).map_err(|_| Refusal::Failed);
    let encoded = wanted.and_then(|Wanted { format, .. }| Ok((format, text(format)?)));
    let (status, kind, body) = match encoded {
        Ok((format, body)) => ("200 OK", format.content_type(), body),
        Err(refusal) => (refusal.status(), "text/plain; charset=utf-8", refusal.reason().to_owned()),
    };
    let allow = if wanted == Err(Refusal::OtherMethod) { "allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{allow}connection: close\r\n\r\n"
    );
    if !wanted.is_ok_and(|wanted| wanted.is_head) {
        answer.push_str(&body);
    }
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let written = stream.write(rest)?;
        rest = &rest[written..];
    }
    stream.shutdown(Shutdown::Write)?;
    forget_rest(stream, deadline)
}

/// The time until the deadline; an error if it has passed.
fn left(deadline: Instant) -> io::Result<std::time::Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads up to the empty line after the headers.
fn read_head(mut stream: &TcpStream, deadline: Instant) -> io::Result<Result<Vec<u8>, Refusal>> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        let Ok(left) = left(deadline) else { return Ok(Err(Refusal::TooSlow)) };
        stream.set_read_timeout(Some(left))?;
        let read = match stream.read(&mut part) {
            Ok(0) => return Ok(Err(Refusal::Malformed)),
            Ok(read) => read,
            Err(error) if is_timeout(&error) => continue,
            Err(error) => return Err(error),
        };
        // The empty line may be split across two reads.
        let seen = head.len().saturating_sub(3);
        head.extend_from_slice(&part[..read]);
        if head[seen..].windows(4).any(|end| end == b"\r\n\r\n") || head[seen..].windows(2).any(|end| end == b"\n\n") {
            return Ok(Ok(head));
        }
        if head.len() > MOST_BYTES {
            return Ok(Err(Refusal::TooLong));
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Parses a request's first line and its `Accept` headers.
fn parse(head: &[u8]) -> Result<Wanted, Refusal> {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| Refusal::Malformed)?.trim_end_matches('\r');
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::Malformed);
    };
    if !version.starts_with("HTTP/1.") {
        return Err(Refusal::Malformed);
    }
    match (method, target.split('?').next()) {
        ("GET" | "HEAD", Some(PATH)) => Ok(Wanted { is_head: method == "HEAD", format: accepted(head) }),
        (_, Some(PATH)) => Err(Refusal::OtherMethod),
        _ => Err(Refusal::NoSuchPath),
    }
}

/// The format that the `Accept` headers, read as one list, select.
fn accepted(head: &[u8]) -> TextFormat {
    let head = String::from_utf8_lossy(head);
    let headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let values = headers.filter(|(name, _)| name.eq_ignore_ascii_case("accept")).map(|(_, value)| value);
    TextFormat::negotiate(&values.collect::<Vec<_>>().join(","))
}

/// Reads and discards what the client still sends. Closing the socket with unread bytes would reset
/// the connection, and the client might lose the answer.
fn forget_rest(mut stream: &TcpStream, deadline: Instant) -> io::Result<()> {
    let (mut part, mut forgotten) = ([0; 1024], 0);
    while forgotten < MOST_LEFT {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut part)? {
            0 => return Ok(()),
            read => forgotten += read,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_request_that_does_not_arrive_in_time_is_told_so() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        let (served, _) = listener.accept().expect("a connection");
        client.write_all(b"GET /metr").expect("sent");
        let now = Instant::now();
        let server = thread::spawn(move || answer(&served, now, now + Duration::from_secs(60), |_| String::new()));
        let mut said = String::new();
        client.read_to_string(&mut said).expect("an answer");
        assert!(said.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{said:?}");
        drop(client);
        server.join().expect("no panic");
    }

    #[test]
    fn the_first_line_says_what_is_wanted() {
        let all = Wanted { is_head: false, format: TextFormat::Prometheus };
        for (line, wanted) in [
            ("GET /metrics HTTP/1.1", Ok(all)),
            ("GET /metrics?name=x HTTP/1.0", Ok(all)),
            ("HEAD /metrics HTTP/1.1", Ok(Wanted { is_head: true, ..all })),
            ("POST /metrics HTTP/1.1", Err(Refusal::OtherMethod)),
            ("GET / HTTP/1.1", Err(Refusal::NoSuchPath)),
            ("GET /metrics", Err(Refusal::Malformed)),
            ("GET /metrics HTTP/2", Err(Refusal::Malformed)),
            ("GET  /metrics HTTP/1.1", Err(Refusal::Malformed)),
            ("", Err(Refusal::Malformed)),
        ] {
            assert_eq!(parse(format!("{line}\r\nhost: x\r\n\r\n").as_bytes()), wanted, "{line:?}");
        }
        let two = b"GET /metrics HTTP/1.1\r\naccept: text/plain;q=0.5\r\nACCEPT: application/openmetrics-text\r\n\r\n";
        assert_eq!(parse(two), Ok(Wanted { format: TextFormat::OpenMetrics, ..all }));
        assert_eq!(parse(b"\xff\xfe /metrics HTTP/1.1\r\n\r\n"), Err(Refusal::Malformed));
    }
}
