//! The endpoint answers scrapers, whatever others do to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use radixkv::PrefixCache;
use radixkv_metrics::prometheus_client::registry::Registry;
use radixkv_metrics::{CacheCollector, Endpoint, EndpointError};

/// A hang, where one is looked for.
const FAR: Duration = Duration::from_secs(60);

fn endpoint() -> Endpoint {
    let cache = PrefixCache::builder(4, 8).build().expect("valid");
    let mut registry = Registry::default();
    CacheCollector::register(&cache, &mut registry);
    Endpoint::start("127.0.0.1:0", registry).expect("a port is free")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&address, FAR).expect("it listens");
    stream.set_read_timeout(Some(FAR)).expect("a time");
    stream
}

/// A collector that panics, or an embedder's function that it calls, fails its own scrape.
#[test]
fn a_scrape_that_panics_is_answered() {
    let mut registry = Registry::default();
    CacheCollector::register_with(4, || panic!("a collector's panic"), &mut registry);
    let endpoint = Endpoint::start("127.0.0.1:0", registry).expect("a port is free");
    for _ in 0..2 {
        let answer = scrape(endpoint.address());
        assert!(answer.starts_with("HTTP/1.1 500 Internal Server Error\r\n"), "{answer}");
    }
    assert!(answered(endpoint.address(), b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
}

/// What is answered to these bytes; what the system says of the connection's end does not matter.
fn answered(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connect(address);
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("text")
}

fn scrape(address: SocketAddr) -> String {
    answered(address, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
}

fn assert_scraped(address: SocketAddr) {
    let answer = scrape(address);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\nradixkv_capacity_blocks 8\n"), "{answer}");
}

// Holds: ME2.
#[test]
fn the_text_is_in_the_format_that_a_scraper_accepts() {
    let endpoint = endpoint();
    let accepting = |accept: &str| {
        let answer = answered(endpoint.address(), format!("GET /metrics HTTP/1.1\r\n{accept}\r\n").as_bytes());
        let (head, body) = answer.split_once("\r\n\r\n").expect("headers");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        (head.to_owned(), body.to_owned())
    };
    for accept in ["", "accept: */*\r\n", "accept: text/plain;version=0.0.4\r\n"] {
        let (head, body) = accepting(accept);
        assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{accept:?}: {head}");
        assert!(body.contains("\n# TYPE radixkv_lookups_total counter\nradixkv_lookups_total 0\n"), "{body}");
        assert!(!body.contains("# EOF"), "{body}");
    }
    let (head, body) = accepting("Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    assert!(body.contains("\n# TYPE radixkv_lookups counter\n") && body.ends_with("\n# EOF\n"), "{body}");
}

#[test]
fn a_scraper_gets_the_text_and_others_a_reason() {
    let endpoint = endpoint();
    let address = endpoint.address();
    let answer = scrape(address);
    let (head, body) = answer.split_once("\r\n\r\n").expect("headers");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    assert!(body.contains("\nradixkv_capacity_blocks 8\n"), "{body}");
    let only_head = answered(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(only_head.starts_with("HTTP/1.1 200 OK\r\n") && only_head.ends_with("\r\n\r\n"), "{only_head}");
    for (request, status) in [
        ("POST /metrics HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc", "405"),
        ("GET /other HTTP/1.1\r\n\r\n", "404"),
        ("nonsense\r\n\r\n", "400"),
        ("\u{0}\u{0}\r\n\r\n", "400"),
    ] {
        let answer = answered(address, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer:?}");
    }
}

#[test]
fn a_flood_of_headers_is_refused_and_the_next_scraper_is_served() {
    let endpoint = endpoint();
    let flood = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "x-flood: 0123456789abcdef\r\n".repeat(20_000));
    for _ in 0..3 {
        let answer = answered(endpoint.address(), flood.as_bytes());
        // The system may take the answer from a client that goes on sending.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer:?}");
    }
    let endless = answered(endpoint.address(), &[b'x'; 9_000]);
    assert!(endless.starts_with("HTTP/1.1 431 "), "{endless:?}");
    assert_scraped(endpoint.address());
}

/// More connections than there may be, each of which says nothing or reads nothing.
#[test]
fn connections_that_do_nothing_keep_no_scraper_out() {
    let endpoint = endpoint();
    let began = Instant::now();
    let idle: Vec<_> = (0..100)
        .map(|i| {
            let mut stream = connect(endpoint.address());
            // Every second one asks, and does not read.
            if i % 2 == 0 {
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
            }
            stream
        })
        .collect();
    for _ in 0..5 {
        assert_scraped(endpoint.address());
    }
    assert!(began.elapsed() < FAR);
    drop(idle);
}

/// There are 32 connections: a further one takes the place of the oldest, which need not wait for
/// its deadline.
#[test]
fn the_oldest_connection_goes_for_a_further_one() {
    let endpoint = endpoint();
    let mut idle: Vec<_> = (0..40).map(|_| connect(endpoint.address())).collect();
    assert_scraped(endpoint.address());
    let mut answer = Vec::new();
    let _ = idle[0].read_to_end(&mut answer);
    assert!(answer.is_empty(), "{:?}", String::from_utf8_lossy(&answer));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let endpoint = endpoint();
    let address = endpoint.address().to_string();
    let refused = Endpoint::start(&address, Registry::default()).expect_err("one program listens");
    assert!(matches!(refused, EndpointError::Taken { .. }));
    assert_eq!(
        refused.to_string(),
        format!("{address} is in use by another program: choose another port, or 0 for a free one")
    );
    let none = Endpoint::start("nowhere", Registry::default()).expect_err("no port");
    assert!(none.to_string().starts_with("cannot listen on nowhere: "), "{none}");
}

#[test]
fn dropping_it_ends_its_connections_and_frees_the_port() {
    let endpoint = endpoint();
    let address = endpoint.address();
    let mut idle = connect(address);
    // Taken after it, so that it is there when the endpoint is dropped.
    assert_scraped(address);
    let began = Instant::now();
    drop(endpoint);
    // Served or not, the connection has ended, and before its deadline.
    let mut answer = Vec::new();
    let _ = idle.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{:?}", String::from_utf8_lossy(&answer));
    assert!(began.elapsed() < FAR);
    assert!(TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_err());
}
