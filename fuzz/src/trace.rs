//! The trace reader on garbage: it never panics, and an error names the file, the line and the
//! field.

use std::io::Cursor;

use radixkv_replay::{Trace, TraceError};

const NAME: &str = "garbage.jsonl";
/// Tokens of a request that are made at most: a row can claim billions.
const TOKENS: usize = 256;
const FIELDS: [&str; 6] = ["timestamp", "input_length", "output_length", "hash_ids", "input_tok_ids", "output_tok_ids"];

/// The first byte is the unit, zero for none; the rest is the file.
pub fn run(data: &[u8]) {
    let Some((&unit, file)) = data.split_first() else {
        return;
    };
    let unit = (unit > 0).then_some(u32::from(unit));
    match Trace::from_reader(Cursor::new(file.to_vec()), NAME, unit) {
        Ok(trace) => use_all(&trace),
        Err(error) => judge(&error, file),
    }
}

/// Reads of every request what a replay reads.
fn use_all(trace: &Trace) {
    assert!(!trace.requests().is_empty());
    for pair in trace.requests().windows(2) {
        assert!(pair[0].timestamp() <= pair[1].timestamp(), "not in the order of arrival");
    }
    let mut tokens = [0; TOKENS];
    let mut total = 0;
    for request in trace.requests() {
        let len = request.key_tokens(true).min(TOKENS);
        trace.fill(request, &mut tokens[..len]);
        total += request.prompt_tokens() as u64;
    }
    assert_eq!(trace.prompt_tokens(), total);
}

fn judge(error: &TraceError, file: &[u8]) {
    let message = error.to_string();
    let after_name = message.strip_prefix(NAME).and_then(|rest| rest.strip_prefix(':'));
    let rest = after_name.unwrap_or_else(|| panic!("no file in {message:?}"));
    if let TraceError::Row { line, .. } = error {
        let fault = rest.strip_prefix(&format!("{line}: ")).unwrap_or_else(|| panic!("no line in {message:?}"));
        let subject = fault.strip_prefix("the field ").unwrap_or(fault);
        let blamed = FIELDS.iter().any(|field| subject.starts_with(field)) || fault.contains("(column ");
        assert!(blamed, "neither field nor column in {message:?}");
        let lines = file.split(|&byte| byte == b'\n').count();
        assert!(*line >= 1 && (*line <= lines || is_compressed(file)), "{message:?} of {lines} lines");
    }
}

fn is_compressed(file: &[u8]) -> bool {
    file.starts_with(&[0x1f, 0x8b]) || file.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
}
