//! Reads Azure's public traces, which have only lengths.

use super::{Prompt, Said, error::LogFault, time};

pub(super) fn read(line: &str) -> Result<Said, LogFault> {
    let mut cells = line.split(',').map(|cell| cell.trim().trim_matches('"'));
    let date = cells.next().unwrap_or("");
    if date.trim_start_matches('\u{feff}').eq_ignore_ascii_case("TIMESTAMP") {
        return Ok(Said::Nothing);
    }
    let mut length = |field| match cells.next() {
        None => Err(LogFault::Missing(field)),
        Some(cell) => {
            cell.parse::<u32>().map_err(|_| LogFault::Wrong { field, wanted: "an integer from 0 to 2^32 - 1" })
        }
    };
    let (prompt, output) = (length("ContextTokens")? as usize, length("GeneratedTokens")? as usize);
    let wrong = LogFault::Wrong { field: "TIMESTAMP", wanted: "a date and a time" };
    let milliseconds = Some(time::milliseconds(date).ok_or(wrong)?);
    Ok(Said::Request { name: None, milliseconds, prompt: Prompt::Length(prompt), output })
}
