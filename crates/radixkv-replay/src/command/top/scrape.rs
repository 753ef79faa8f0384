//! Scrapes metrics: sends an HTTP request, and parses the samples in the response.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    str::FromStr,
    time::{Duration, Instant},
};

use crate::serving::address;

/// Time limit of a scrape.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum number of bytes of a response.
const MOST_BYTES: usize = 4 << 20;

/// Why metrics could not be scraped.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScrapeError {
    /// The connection was refused: start the program first.
    #[error("no program listens there; start the engine, or `radixkv replay TRACE --metrics ADDR`, first")]
    NotThere,
    /// There was no response in time: another program is listening, or it is too busy.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
    #[error("cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// The response is too large, or is not HTTP/1.
    #[error("response is not metrics over HTTP")]
    Malformed,
    /// The status was not 200: the path or the server is wrong.
    #[error("the server answered {0}")]
    Refused(String),
}

impl From<io::Error> for ScrapeError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::NotThere,
            // The error kind of a timeout depends on the system.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Unreadable(error),
        }
    }
}

/// The address of metrics: a host with its port, and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The address as the user gave it.
    name: String,
    host: String,
    path: String,
}

impl Address {
    /// The address as the user gave it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// Parses `HOST:PORT` or a URL.
impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if text.starts_with("https://") {
            return Err("https is not supported; give HOST:PORT or http://HOST:PORT/metrics");
        }
        let url = text.strip_prefix("http://");
        let rest = url.unwrap_or(text);
        let (host, path) = rest.split_once('/').unwrap_or((rest, "metrics"));
        let host = match address(host) {
            Err(_) if url.is_some() && !host.is_empty() && !host.ends_with(':') => address(&format!("{host}:80"))?,
            host => host?,
        };
        let path = format!("/{}", if path.is_empty() { "metrics" } else { path });
        Ok(Self { name: text.to_owned(), host, path })
    }
}

/// The samples of a text with metrics.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Sample>);

#[derive(Debug)]
pub(super) struct Sample {
    name: String,
    /// The labels as in the text, without the closing brace.
    labels: String,
    pub(super) value: f64,
}

impl Samples {
    /// Reads the current samples at an address.
    ///
    /// # Errors
    ///
    /// [`ScrapeError`].
    pub(super) fn scrape(address: &Address) -> Result<Self, ScrapeError> {
        let answer = get(address)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(ScrapeError::Malformed)?;
        let status = head.lines().next().and_then(|line| line.split_once(' ')).ok_or(ScrapeError::Malformed)?.1;
        if !status.starts_with("200") {
            return Err(ScrapeError::Refused(status.chars().take(60).collect()));
        }
        Ok(Self::parse(body))
    }

    /// Parses a text; lines that are not samples are ignored.
    pub(super) fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(Sample::parse).collect())
    }

    /// The sum of all samples with this name; `None` if there are none.
    pub(super) fn sum(&self, name: &str) -> Option<f64> {
        self.all(name).map(|sample| sample.value).reduce(|sum, value| sum + value)
    }

    /// The sum of the samples with this name and this value of a label.
    pub(super) fn sum_of(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        let fit = self.all(name).filter(|sample| sample.label(label).is_some_and(|found| found == value));
        fit.map(|sample| sample.value).reduce(|sum, value| sum + value)
    }

    /// All samples with this name.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |sample| sample.name == name)
    }
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.split_at(line.find(['{', ' '])?);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_at(end_of_labels(rest)?),
            None => ("", rest),
        };
        let value = rest.trim_start_matches('}').split_whitespace().next()?.parse().ok()?;
        Some(Self { name: name.to_owned(), labels: labels.to_owned(), value })
    }
}

impl Sample {
    /// The value of a label.
    pub(super) fn label(&self, name: &str) -> Option<String> {
        let mut rest = self.labels.trim_start_matches('{');
        loop {
            let (found, value) = rest.split_once("=\"")?;
            let (value, after) = unquoted(value)?;
            if found.trim_start_matches([',', ' ']) == name {
                return Some(value);
            }
            rest = after;
        }
    }
}

/// A label's value up to its closing quote, and the rest after it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match (is_escaped, c) {
            (false, '"') => return Some((value, &text[at + 1..])),
            (false, '\\') => is_escaped = true,
            (true, 'n') => (value, is_escaped) = (value + "\n", false),
            _ => {
                value.push(c);
                is_escaped = false;
            }
        }
    }
    None
}

/// The index of the closing brace; braces in the values of labels do not count.
fn end_of_labels(text: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.char_indices().find_map(|(at, c)| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '}' if !is_quoted => return Some(at),
            _ => {}
        }
        None
    })
}

fn get(address: &Address) -> Result<String, ScrapeError> {
    let deadline = Instant::now() + PATIENCE;
    let mut stream = connect(&address.host)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Address { host, path, .. } = address;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes())?;
    let (mut answer, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ScrapeError::Silent);
        }
        stream.set_read_timeout(Some(left))?;
        let read = stream.read(&mut part)?;
        if read == 0 {
            return String::from_utf8(answer).map_err(|_| ScrapeError::Malformed);
        }
        answer.extend_from_slice(&part[..read]);
        if answer.len() > MOST_BYTES {
            return Err(ScrapeError::Malformed);
        }
    }
}

/// Connects to the first address of a host name that accepts.
fn connect(host: &str) -> io::Result<TcpStream> {
    let mut refused = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_a_url() {
        let parsed = |text: &str| text.parse::<Address>().map(|address| (address.host, address.path));
        let expected = |host: &str, path: &str| Ok((host.to_owned(), path.to_owned()));
        for text in ["h:1", "h:1/", "h:1/metrics", "http://h:1", "http://h:1/metrics"] {
            assert_eq!(parsed(text), expected("h:1", "/metrics"), "{text}");
        }
        assert_eq!(parsed("http://h:1/other/path"), expected("h:1", "/other/path"));
        assert_eq!(parsed("http://h/metrics"), expected("h:80", "/metrics"));
        assert_eq!(parsed("[::1]:9400"), expected("[::1]:9400", "/metrics"));
        for wrong in ["", "h", "9400", ":9400", "h:", "h:65536", "h:x", "http://", "http://:", "https://h:1", "::1"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn labels_are_read_by_name() {
        let samples = Samples::parse("a{kind=\"x\",namespace=\"t,\\\"7\\\\\\n=\"} 1\nb 2\nc{x=\"");
        let one = samples.all("a").next().expect("a sample");
        assert_eq!((one.label("kind").as_deref(), one.label("namespace").as_deref()), (Some("x"), Some("t,\"7\\\n=")));
        assert_eq!((one.label("none"), samples.all("b").next().expect("a sample").label("kind")), (None, None));
    }

    #[test]
    fn samples_are_summed_by_name_and_label() {
        let text = "# HELP a help\na 1\na{x=\"1\"} 2.5\nb{state=\"fr}ee\",y=\"\\\"}\"} 4 1700000000\nnonsense\nb{state=\"x\"\nc NaN\n# EOF\n";
        let samples = Samples::parse(text);
        assert_eq!((samples.sum("a"), samples.sum_of("b", "state", "fr}ee")), (Some(3.5), Some(4.0)));
        assert_eq!((samples.sum("b"), samples.sum("d")), (Some(4.0), None));
        let other = Samples::parse("b{substate=\"free\",state=\"leased\"} 1\nb{state=\"free\"} 2\n");
        assert_eq!(other.sum_of("b", "state", "free"), Some(2.0));
        assert!(samples.sum("c").expect("a value").is_nan());
    }
}
