//! A client that says what it likes over a socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longer than any answer takes: a server that hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The events of a stream but for the last, `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.body).expect("text");
        let events: Vec<&str> = text.split_terminator("\n\n").map(|event| &event["data: ".len()..]).collect();
        let (last, events) = events.split_last().expect("events");
        assert_eq!(*last, "[DONE]", "{text}");
        events.iter().map(|event| serde_json::from_str(event).expect("JSON")).collect()
    }

    /// `error.param` of a refusal, and its message.
    pub fn refusal(&self) -> (Option<String>, String) {
        let error = &self.json()["error"];
        let text = |field: &str| error[field].as_str().map(str::to_owned);
        (text("param"), text("message").expect("a message"))
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a server");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream
}

/// The bytes of a request.
pub fn written(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Reads an answer to its end.
pub fn read(stream: &mut TcpStream) -> io::Result<Reply> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        // A server that refuses what it has not read to the end resets the connection after its
        // answer.
        Err(error) if bytes.is_empty() => return Err(error),
        _ => {}
    }
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let mut body = bytes.split_off(end + 4);
    if head.contains("transfer-encoding: chunked") {
        body = dechunked(&body);
    }
    Ok(Reply { status, head, body })
}

fn dechunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(at) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..at]).expect("a size"), 16).expect("a size");
        body.extend_from_slice(&bytes[at + 2..at + 2 + size]);
        bytes = &bytes[(at + 4 + size).min(bytes.len())..];
    }
    body
}

pub fn get(address: SocketAddr, path: &str) -> Reply {
    let mut stream = connect(address);
    stream.write_all(&written("GET", path, b"")).expect("written");
    read(&mut stream).expect("an answer")
}

/// Of a scraper that accepts a format.
pub fn accepting(address: SocketAddr, path: &str, format: &str) -> Reply {
    let request = String::from_utf8(written("GET", path, b"")).expect("text");
    let mut stream = connect(address);
    stream.write_all(request.replacen("\r\n", &format!("\r\nAccept: {format}\r\n"), 1).as_bytes()).expect("written");
    read(&mut stream).expect("an answer")
}

/// The sample of `/metrics` with this name.
pub fn metric(address: SocketAddr, name: &str) -> f64 {
    let text = String::from_utf8(get(address, "/metrics").body).expect("text");
    let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).expect(name);
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

pub fn post(address: SocketAddr, path: &str, body: &Value) -> Reply {
    post_bytes(address, path, body.to_string().as_bytes())
}

pub fn post_bytes(address: SocketAddr, path: &str, body: &[u8]) -> Reply {
    let mut stream = connect(address);
    stream.write_all(&written("POST", path, body)).expect("written");
    read(&mut stream).expect("an answer")
}
