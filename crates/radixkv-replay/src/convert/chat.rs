//! Reads JSON lines of chats, in the format of OpenAI's API.
//!
//! Messages are rendered as ChatML, whatever the model's own template: common parts of two chats
//! are then in the same places.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::{Prompt, Said, error::LogFault, time, tokenize::Tokenize};

type Object = Map<String, Value>;

pub(super) fn read(line: &str, tokenizer: Option<&dyn Tokenize>) -> Result<Said, LogFault> {
    let row: Value = serde_json::from_str(line).map_err(|_| LogFault::NotAnObject)?;
    let row = row.as_object().ok_or(LogFault::NotAnObject)?;
    let inner = ["body", "request"].iter().find_map(|name| row.get(*name)?.as_object());
    let request = inner.unwrap_or(row);
    let prompt = match (request.get("messages"), request.get("prompt")) {
        (Some(messages), _) => Prompt::Text(rendered(messages, request.get("tools"))?),
        (None, Some(Value::String(text))) => Prompt::Text(text.clone()),
        (None, Some(Value::Array(tokens))) => Prompt::Tokens(numbers(tokens)?),
        (None, Some(_)) => return Err(LogFault::Wrong { field: "prompt", wanted: "a text or a list of tokens" }),
        (None, None) => return Err(LogFault::Missing("messages")),
    };
    let milliseconds = ["timestamp", "created", "created_at", "time"].iter().find_map(|name| row.get(*name));
    let milliseconds = milliseconds.map(|value| of_time(value).ok_or(WRONG_TIME)).transpose()?;
    let response = row.get("response").and_then(Value::as_object);
    let response = response.and_then(|response| response.get("body").and_then(Value::as_object).or(Some(response)));
    let output = output(response.unwrap_or(row), tokenizer)?;
    Ok(Said::Request { name: None, milliseconds, prompt, output })
}

const WRONG_TIME: LogFault = LogFault::Wrong { field: "timestamp", wanted: "a number of seconds or a date" };

fn of_time(value: &Value) -> Option<f64> {
    match value {
        Value::String(date) => time::milliseconds(date),
        _ => value.as_f64().map(|seconds| seconds * 1e3),
    }
}

fn numbers(tokens: &[Value]) -> Result<Vec<u32>, LogFault> {
    let number = |token: &Value| token.as_u64().and_then(|token| u32::try_from(token).ok());
    let tokens: Option<Vec<u32>> = tokens.iter().map(number).collect();
    tokens.ok_or(LogFault::Wrong { field: "prompt", wanted: "a text or a list of integers from 0 to 2^32 - 1" })
}

/// Renders the messages of a chat up to the beginning of the answer; the tools come first.
fn rendered(messages: &Value, tools: Option<&Value>) -> Result<String, LogFault> {
    const WRONG: LogFault = LogFault::Wrong { field: "messages", wanted: "a list of objects with a role" };
    let mut text = String::new();
    if let Some(tools) = tools.filter(|tools| !tools.is_null()) {
        let _ = write!(text, "<|im_start|>tools\n{tools}<|im_end|>\n");
    }
    for message in messages.as_array().ok_or(WRONG)? {
        let role = message.get("role").and_then(Value::as_str).ok_or(WRONG)?;
        let content = message.get("content").map(content).unwrap_or_default();
        let calls =
            message.get("tool_calls").filter(|calls| !calls.is_null()).map(Value::to_string).unwrap_or_default();
        let _ = write!(text, "<|im_start|>{role}\n{content}{calls}<|im_end|>\n");
    }
    text.push_str("<|im_start|>assistant\n");
    Ok(text)
}

/// A text, or the joined texts of a list of parts; a part without a text is rendered as JSON.
fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let part =
                |part: &Value| part.get("text").and_then(Value::as_str).map_or_else(|| part.to_string(), str::to_owned);
            parts.iter().map(part).collect()
        }
        _ => String::new(),
    }
}

/// Number of tokens of the answer: the logged count, or else the tokens of its text.
fn output(response: &Object, tokenizer: Option<&dyn Tokenize>) -> Result<usize, LogFault> {
    if let Some(tokens) = response.get("usage").and_then(|usage| usage.get("completion_tokens")) {
        let wrong = LogFault::Wrong { field: "completion_tokens", wanted: "an integer from 0 to 2^32 - 1" };
        return tokens
            .as_u64()
            .and_then(|tokens| u32::try_from(tokens).ok())
            .map(|tokens| tokens as usize)
            .ok_or(wrong);
    }
    let answer = response.get("choices").and_then(|choices| choices.get(0));
    let answer = answer.and_then(|choice| choice.get("text").or_else(|| choice.get("message")?.get("content")));
    match (answer.and_then(Value::as_str), tokenizer) {
        (Some(text), Some(tokenizer)) => tokenizer.tokens(text).map(|tokens| tokens.len()).map_err(LogFault::Tokenizer),
        _ => Ok(0),
    }
}
