//! Reading metrics: an HTTP request, and the samples of its answer.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

/// How long a scrape may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of an answer.
const MOST_BYTES: usize = 4 << 20;

/// Why there are no samples.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScrapeError {
    /// Start what is to be watched first.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is too large, or is no answer of HTTP/1.
    #[error("its answer is no text of metrics")]
    Malformed,
    /// Another path, or another server.
    #[error("it answers {0}")]
    Refused(String),
}

/// Where metrics are: a host with its port, and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    path: String,
}

impl Address {
    /// `HOST:PORT`, or the same as a URL.
    pub(super) fn new(text: &str) -> Self {
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let (host, path) = rest.split_once('/').unwrap_or((rest, "metrics"));
        Self { host: host.to_owned(), path: format!("/{}", if path.is_empty() { "metrics" } else { path }) }
    }
}

/// The samples of a text.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<Sample>);

#[derive(Debug)]
struct Sample {
    name: String,
    /// As they stand in the text, without the braces.
    labels: String,
    value: f64,
}

impl Samples {
    /// What is told at an address now.
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

    /// Lines that are no samples are passed over.
    fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(Sample::parse).collect())
    }

    /// The sum of all samples of a name; `None` if there is none.
    pub(super) fn sum(&self, name: &str) -> Option<f64> {
        self.sum_of(name, "")
    }

    /// The sum of those that have a label, such as `state="free"`.
    pub(super) fn sum_of(&self, name: &str, label: &str) -> Option<f64> {
        let fit = self.0.iter().filter(|sample| sample.name == name && sample.labels.contains(label));
        fit.map(|sample| sample.value).reduce(|sum, value| sum + value)
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

/// Where the closing brace is: not in a label's value.
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
    let Address { host, path } = address;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: {host}\r\nconnection: close\r\n\r\n").as_bytes())?;
    let (mut answer, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
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

/// Connects to the first address of a name that answers.
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
        let expected = Address { host: "h:1".to_owned(), path: "/metrics".to_owned() };
        for text in ["h:1", "h:1/", "h:1/metrics", "http://h:1", "http://h:1/metrics"] {
            assert_eq!(Address::new(text), expected, "{text}");
        }
        assert_eq!(Address::new("http://h:1/other/path").path, "/other/path");
    }

    #[test]
    fn samples_are_summed_by_name_and_label() {
        let text = "# HELP a help\na 1\na{x=\"1\"} 2.5\nb{state=\"fr}ee\",y=\"\\\"}\"} 4 1700000000\nnonsense\nb{state=\"x\"\nc NaN\n# EOF\n";
        let samples = Samples::parse(text);
        assert_eq!((samples.sum("a"), samples.sum_of("b", "state=\"fr}ee\"")), (Some(3.5), Some(4.0)));
        assert_eq!((samples.sum("b"), samples.sum("d")), (Some(4.0), None));
        assert!(samples.sum("c").expect("a value").is_nan());
    }
}
