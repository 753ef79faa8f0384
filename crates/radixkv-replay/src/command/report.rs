//! Reports as JSON.

use radixkv_replay::{Details, Report, workload::Band};
use serde::Serialize;

/// A report with the file that it is about.
#[derive(Serialize)]
pub(crate) struct TraceReport<'a> {
    pub(crate) trace: String,
    #[serde(flatten)]
    pub(crate) report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<&'a Details>,
}

/// A report with the class that it is about.
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

pub(crate) fn json(report: &impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_string(report)
}
