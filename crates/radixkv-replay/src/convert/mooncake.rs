//! Reads Mooncake's public traces, whose rows have the fields of a trace.

use serde::Deserialize;

use super::{Prompt, Said, error::LogFault};

#[derive(Deserialize)]
struct Fields {
    timestamp: Option<f64>,
    input_length: Option<u32>,
    output_length: Option<u32>,
    hash_ids: Option<Vec<u64>>,
}

pub(super) fn read(line: &str) -> Result<Said, LogFault> {
    let fields: Fields = serde_json::from_str(line).map_err(|_| LogFault::NotAnObject)?;
    let missing = |name| move || LogFault::Missing(name);
    let tokens = fields.input_length.ok_or_else(missing("input_length"))? as usize;
    let ids = fields.hash_ids.ok_or_else(missing("hash_ids"))?;
    Ok(Said::Request {
        name: None,
        milliseconds: Some(fields.timestamp.ok_or_else(missing("timestamp"))?),
        prompt: Prompt::Ids(ids, tokens),
        output: fields.output_length.ok_or_else(missing("output_length"))? as usize,
    })
}
