//! The two text formats of metrics; a scraper's `Accept` header selects one.

use prometheus_client::registry::Registry;

use crate::text::{CONTENT_TYPE, text};

/// A text format of metrics.
///
/// # Examples
///
/// ```
/// use radixkv_metrics::TextFormat;
/// use radixkv_metrics::prometheus_client::registry::Registry;
///
/// # let registry = Registry::default();
/// // A server's answer to `GET /metrics`, from the value of the request's `Accept` header:
/// let format = TextFormat::negotiate("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
/// let (content_type, body) = (format.content_type(), format.text(&registry));
/// # assert_eq!((format, body.as_str()), (TextFormat::OpenMetrics, "# EOF\n"));
/// # assert!(content_type.starts_with("application/openmetrics-text; version=1.0.0"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextFormat {
    /// Prometheus's text format 0.0.4, which every scraper, `promtool` and `curl` reads.
    #[default]
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl TextFormat {
    /// Chooses the format for an `Accept` header: OpenMetrics if the header prefers it to plain
    /// text or both equally, otherwise Prometheus's format. Without a header, pass an empty string.
    pub fn negotiate(accept: &str) -> Self {
        let (mut open_metrics, mut plain) = (0.0_f32, 0.0_f32);
        for range in accept.split(',').map(MediaRange::parse) {
            if range.is_open_metrics() {
                open_metrics = open_metrics.max(range.quality);
            } else if range.is_plain() {
                plain = plain.max(range.quality);
            }
        }
        if open_metrics > 0.0 && open_metrics >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The value of the `Content-Type` header for this format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => CONTENT_TYPE,
        }
    }

    /// Encodes all metrics of a registry in this format.
    pub fn text(self, registry: &Registry) -> String {
        match self {
            Self::Prometheus => to_prometheus(&text(registry)),
            Self::OpenMetrics => text(registry),
        }
    }
}

/// One element of an `Accept` header.
struct MediaRange<'a> {
    kind: &'a str,
    version: Option<&'a str>,
    quality: f32,
}

impl<'a> MediaRange<'a> {
    fn parse(element: &'a str) -> Self {
        let mut parts = element.split(';').map(str::trim);
        let mut range = Self { kind: parts.next().unwrap_or_default(), version: None, quality: 1.0 };
        for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => range.quality = value.parse().unwrap_or(0.0),
                "version" => range.version = Some(value),
                _ => {}
            }
        }
        range
    }

    fn is_open_metrics(&self) -> bool {
        self.kind.eq_ignore_ascii_case("application/openmetrics-text") && matches!(self.version, None | Some("1.0.0"))
    }

    fn is_plain(&self) -> bool {
        let kinds = ["text/plain", "text/*", "*/*"];
        kinds.iter().any(|kind| self.kind.eq_ignore_ascii_case(kind)) && matches!(self.version, None | Some("0.0.4"))
    }
}

/// Converts OpenMetrics text to Prometheus's format, in which help and type lines have the full
/// names of the samples (including `_total` and `_info`), and there are fewer types and no units,
/// exemplars or end mark.
fn to_prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "stateset" => ("", "gauge"),
                "gauge" | "histogram" | "summary" => ("", kind),
                _ => ("", "untyped"),
            };
            let help = help.strip_prefix(name).map_or("", str::trim_start);
            text.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(without_exemplar(line));
            text.push('\n');
        }
    }
    text
}

/// A sample's line without its exemplar, which begins at a `#` outside of quotes.
fn without_exemplar(line: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let exemplar = line.char_indices().find(|&(_, c)| {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ => {}
        }
        c == '#' && !is_quoted
    });
    exemplar.map_or(line, |(at, _)| line[..at].trim_end())
}

#[cfg(test)]
mod tests;
