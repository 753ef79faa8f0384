//! Formats reports as JSON.

use radixkv_replay::{Details, Report, workload::Band};
use serde::Serialize;

use crate::console::is_obeyed;

/// A report, and the name of the trace.
#[derive(Serialize)]
pub(crate) struct TraceReport<'a> {
    pub(crate) trace: String,
    #[serde(flatten)]
    pub(crate) report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<&'a Details>,
}

/// A report, and the workload class.
#[derive(Serialize)]
pub(crate) struct ClassReport {
    pub(crate) class: &'static str,
    pub(crate) strains: &'static str,
    #[serde(serialize_with = "ends")]
    pub(crate) band: Band,
    #[serde(flatten)]
    pub(crate) report: Report,
}

/// The reports of all classes.
#[derive(Serialize)]
pub(crate) struct WorkloadReport<'a> {
    pub(crate) trace: Option<&'static str>,
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) classes: &'a [ClassReport],
}

fn ends<S: serde::Serializer>(band: &Band, serializer: S) -> Result<S::Ok, S::Error> {
    [band.low, band.high].serialize(serializer)
}

/// A report as one line of JSON. Characters that a terminal obeys are escaped, even where JSON does
/// not require it.
pub(crate) fn json(report: &impl Serialize) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string(report)?;
    if !text.contains(is_obeyed) {
        return Ok(text);
    }
    // Such characters occur only in strings.
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
            escaped.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            escaped.push(c);
        }
    }
    Ok(escaped)
}

#[cfg(test)]
mod tests {
    use super::json;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        let text = "\u{1b}[2J\u{7f}\u{9b}\u{202e}日\"\u{200b}\u{2028}\u{feff}\u{e0041}";
        let written = json(&text).expect("JSON");
        assert_eq!(written, r#""\u001b[2J\u007f\u009b\u202e日\"\u200b\u2028\ufeff\udb40\udc41""#);
        assert_eq!(serde_json::from_str::<String>(&written).expect("JSON"), text);
    }
}
