//! Parses one line of a trace into a row, and says which field is at fault if the line is
//! malformed.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::error::Category;

use super::{list::List, value_kind::ValueKind};
use radixkv::key::Token;

/// A field of a trace row; displayed as it is named in the row.
///
/// # Examples
///
/// ```
/// assert_eq!(radixkv_replay::Field::HashIds.to_string(), "hash_ids");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Field {
    /// When the request arrived.
    Timestamp,
    /// Tokens of the prompt.
    InputLength,
    /// Number of generated tokens.
    OutputLength,
    /// The hash ids of the prompt, one for each unit of tokens.
    HashIds,
    /// The prompt's tokens, instead of hash ids.
    InputTokIds,
    /// The generated tokens.
    OutputTokIds,
}

impl Field {
    const ALL: [Self; 6] =
        [Self::Timestamp, Self::InputLength, Self::OutputLength, Self::HashIds, Self::InputTokIds, Self::OutputTokIds];

    fn name(self) -> &'static str {
        match self {
            Self::Timestamp => "timestamp",
            Self::InputLength => "input_length",
            Self::OutputLength => "output_length",
            Self::HashIds => "hash_ids",
            Self::InputTokIds => "input_tok_ids",
            Self::OutputTokIds => "output_tok_ids",
        }
    }

    /// The fault if `value` has the wrong type for this field; `None` if it is right or null.
    fn fault(self, value: ValueKind) -> Option<RowFault> {
        let is_token = |number: u64| Token::try_from(number).is_ok();
        let (right, fault) = match self {
            Self::Timestamp => (
                matches!(value, ValueKind::Natural(_) | ValueKind::Negative(_) | ValueKind::Number),
                RowFault::NotANumber { field: self },
            ),
            Self::InputLength | Self::OutputLength => {
                (matches!(value, ValueKind::Natural(length) if is_token(length)), RowFault::NotALength { field: self })
            }
            Self::HashIds => (matches!(value, ValueKind::Naturals(_)), RowFault::NotHashIds { field: self }),
            Self::InputTokIds | Self::OutputTokIds => (
                matches!(value, ValueKind::Naturals(largest) if is_token(largest)),
                RowFault::NotTokens { field: self },
            ),
        };
        (!right && value != ValueKind::Null).then_some(fault)
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a row is malformed.
///
/// # Examples
///
/// ```
/// use radixkv_replay::{Field, RowFault, Trace, TraceError};
///
/// let error = Trace::from_reader(&b"{\"timestamp\": 0}"[..], "t.jsonl", None).unwrap_err();
/// assert_eq!(error.to_string(), "t.jsonl:1: the field hash_ids is missing");
/// let TraceError::Row { fault, .. } = error else { unreachable!() };
/// assert_eq!(fault, RowFault::Missing { field: Field::HashIds });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowFault {
    /// The line is not a JSON object; reading it failed at `column`.
    #[error("not a JSON object (column {column})")]
    NotAnObject {
        /// Byte of the line, counted from 1.
        column: usize,
    },
    /// The line ends inside its object: the file was cut short.
    #[error("the row ends early (column {column})")]
    Unfinished {
        /// Byte of the line, counted from 1.
        column: usize,
    },
    /// A field appears twice, or a value cannot be read although its type is right.
    #[error("not a trace row: a field appears twice, or its value cannot be read (column {column})")]
    NotARow {
        /// Byte of the line, counted from 1.
        column: usize,
    },
    /// The field is not in the row.
    #[error("the field {field} is missing")]
    Missing {
        /// The field.
        field: Field,
    },
    /// The field does not hold a number.
    #[error("{field} is not a number")]
    NotANumber {
        /// The field.
        field: Field,
    },
    /// The field does not hold a number of tokens.
    #[error("{field} is not an integer from 0 to 2^32 - 1")]
    NotALength {
        /// The field.
        field: Field,
    },
    /// The field does not hold a list of hash ids.
    #[error("{field} is not a list of integers from 0 to 2^64 - 1")]
    NotHashIds {
        /// The field.
        field: Field,
    },
    /// The field does not hold a list of tokens.
    #[error("{field} is not a list of integers from 0 to 2^32 - 1")]
    NotTokens {
        /// The field.
        field: Field,
    },
    /// A length and the list of its tokens disagree.
    #[error("{field} is {length}, but the row lists {listed} tokens")]
    LengthDisagrees {
        /// The length.
        field: Field,
        /// Its value.
        length: usize,
        /// Tokens in the list.
        listed: usize,
    },
    /// There are more hash ids than tokens; each id has at least one token.
    #[error("hash_ids has {ids} ids, more than the {tokens} tokens of input_length")]
    TooManyIds {
        /// Ids in the row.
        ids: usize,
        /// Its `input_length`.
        tokens: usize,
    },
    /// The list does not fit into memory.
    #[error("{field} does not fit into memory")]
    NoMemory {
        /// The field.
        field: Field,
    },
}

/// A row whose fields have the right types and lengths.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    pub(super) timestamp: f64,
    pub(super) prompt: Prompt,
    pub(super) prompt_tokens: u32,
    pub(super) output: Option<Vec<Token>>,
    pub(super) output_tokens: u32,
}

/// How a prompt is given.
#[derive(Debug, PartialEq)]
pub(super) enum Prompt {
    HashIds(Vec<u64>),
    Tokens(Vec<Token>),
}

#[derive(Deserialize)]
struct Fields {
    timestamp: Option<f64>,
    input_length: Option<u32>,
    output_length: Option<u32>,
    hash_ids: Option<List<u64>>,
    input_tok_ids: Option<List<Token>>,
    output_tok_ids: Option<List<Token>>,
}

impl Row {
    /// Parses a line; unknown fields are ignored.
    pub(super) fn parse(line: &[u8]) -> Result<Self, RowFault> {
        let fields: Fields = serde_json::from_slice(line).map_err(|error| diagnose(line, &error))?;
        let timestamp = fields.timestamp.ok_or(RowFault::Missing { field: Field::Timestamp })?;
        let prompt = match (fields.input_tok_ids, fields.hash_ids) {
            (Some(tokens), _) => Prompt::Tokens(whole(tokens, Field::InputTokIds)?),
            (None, Some(ids)) => Prompt::HashIds(whole(ids, Field::HashIds)?),
            (None, None) => return Err(RowFault::Missing { field: Field::HashIds }),
        };
        let listed = match &prompt {
            Prompt::Tokens(tokens) => Some(tokens.len()),
            Prompt::HashIds(_) => None,
        };
        let prompt_tokens = agreed_length(Field::InputLength, fields.input_length, listed)?;
        let output = fields.output_tok_ids.map(|tokens| whole(tokens, Field::OutputTokIds)).transpose()?;
        // A row that spells out its prompt may omit both `output_length` and `output_tok_ids`.
        let answer = output.as_ref().map(Vec::len).or(listed.filter(|_| fields.output_length.is_none()).map(|_| 0));
        let output_tokens = agreed_length(Field::OutputLength, fields.output_length, answer)?;
        let row = Self { timestamp, prompt, prompt_tokens, output, output_tokens };
        row.check_ids()?;
        Ok(row)
    }

    /// Fails if there are more hash ids than prompt tokens.
    fn check_ids(&self) -> Result<(), RowFault> {
        let tokens = self.prompt_tokens as usize;
        match &self.prompt {
            Prompt::HashIds(ids) if ids.len() > tokens => Err(RowFault::TooManyIds { ids: ids.len(), tokens }),
            _ => Ok(()),
        }
    }

    /// Number of hash ids and spelled-out tokens in the row.
    pub(super) fn listed(&self) -> usize {
        let prompt = match &self.prompt {
            Prompt::HashIds(ids) => ids.len(),
            Prompt::Tokens(tokens) => tokens.len(),
        };
        prompt + self.output.as_ref().map_or(0, Vec::len)
    }

    /// Drops the hash ids that begin beyond the prompt's end if each id stands for `unit` tokens.
    pub(super) fn cut_ids(&mut self, unit: usize) {
        if let Prompt::HashIds(ids) = &mut self.prompt {
            ids.truncate((self.prompt_tokens as usize).div_ceil(unit));
        }
    }
}

/// All elements of a list; fails if memory was short while the list was read.
fn whole<T>(list: List<T>, field: Field) -> Result<Vec<T>, RowFault> {
    list.into_vec().ok_or(RowFault::NoMemory { field })
}

/// The length of a list from its length field, its elements, or both, which must then agree.
fn agreed_length(field: Field, length: Option<u32>, listed: Option<usize>) -> Result<u32, RowFault> {
    match (length, listed) {
        (Some(length), Some(listed)) if length as usize != listed => {
            Err(RowFault::LengthDisagrees { field, length: length as usize, listed })
        }
        (Some(length), _) => Ok(length),
        (None, Some(listed)) => u32::try_from(listed).map_err(|_| RowFault::NotALength { field }),
        (None, None) => Err(RowFault::Missing { field }),
    }
}

/// Finds the first field with a value of the wrong type in a line that could not be parsed.
fn diagnose(line: &[u8], error: &serde_json::Error) -> RowFault {
    let column = error.column();
    match serde_json::from_slice(line) {
        Ok(Faults(faults)) => faults.into_iter().flatten().next().unwrap_or(RowFault::NotARow { column }),
        Err(error) if error.classify() == Category::Eof => RowFault::Unfinished { column },
        Err(_) => RowFault::NotAnObject { column },
    }
}

/// What is wrong with the types of an object's fields, in the order of [`Field::ALL`].
#[derive(Default)]
struct Faults([Option<RowFault>; Field::ALL.len()]);

impl<'de> Deserialize<'de> for Faults {
    fn deserialize<D: Deserializer<'de>>(row: D) -> Result<Self, D::Error> {
        row.deserialize_map(Self::default())
    }
}

impl<'de> Visitor<'de> for Faults {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Self, A::Error> {
        while let Some(name) = fields.next_key::<Cow<'_, str>>()? {
            match Field::ALL.iter().position(|field| field.name() == name) {
                Some(at) => self.0[at] = Field::ALL[at].fault(fields.next_value()?),
                None => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(line: &str) -> String {
        Row::parse(line.as_bytes()).expect_err("a fault").to_string()
    }

    #[test]
    fn reads_hash_ids_and_spelled_out_tokens() {
        let line = br#"{"timestamp": 5, "input_length": 700, "output_length": 3, "hash_ids": [18446744073709551615, 2], "session": 9}"#;
        let row = Row::parse(line).expect("a row");
        assert_eq!((row.timestamp, row.prompt_tokens, row.output_tokens), (5.0, 700, 3));
        assert_eq!(row.prompt, Prompt::HashIds(vec![u64::MAX, 2]));
        let row = Row::parse(br#"{"timestamp": 1.5, "input_tok_ids": [1, 2], "output_tok_ids": [3]}"#).expect("a row");
        assert_eq!((row.prompt, row.prompt_tokens), (Prompt::Tokens(vec![1, 2]), 2));
        assert_eq!((row.output, row.output_tokens), (Some(vec![3]), 1));
    }

    #[test]
    fn names_the_field_at_fault() {
        let row = |rest: &str| fault(&format!(r#"{{"timestamp": 0, "output_length": 1, {rest}}}"#));
        assert_eq!(row(r#""input_length": -1, "hash_ids": []"#), "input_length is not an integer from 0 to 2^32 - 1");
        assert_eq!(row(r#""input_length": 1.5, "hash_ids": [1]"#), "input_length is not an integer from 0 to 2^32 - 1");
        assert_eq!(row(r#""input_length": 9, "hash_ids": 7"#), "hash_ids is not a list of integers from 0 to 2^64 - 1");
        assert_eq!(
            row(r#""input_length": 9, "hash_ids": [-7]"#),
            "hash_ids is not a list of integers from 0 to 2^64 - 1"
        );
        assert_eq!(row(r#""input_length": 9"#), "the field hash_ids is missing");
        assert_eq!(row(r#""hash_ids": [1]"#), "the field input_length is missing");
        assert_eq!(row(r#""input_length": 3, "input_tok_ids": [1]"#), "input_length is 3, but the row lists 1 tokens");
        assert_eq!(row(r#""input_tok_ids": ["a"]"#), "input_tok_ids is not a list of integers from 0 to 2^32 - 1");
        assert_eq!(
            row(r#""input_length": 1, "hash_ids": [1, 2]"#),
            "hash_ids has 2 ids, more than the 1 tokens of input_length"
        );
        assert_eq!(fault(r#"{"timestamp": "noon", "input_tok_ids": []}"#), "timestamp is not a number");
        assert_eq!(fault(r#"{"input_tok_ids": []}"#), "the field timestamp is missing");
        assert_eq!(
            fault(r#"{"timestamp": 0, "input_length": 1, "hash_ids": [1]}"#),
            "the field output_length is missing"
        );
        let alone = Row::parse(br#"{"timestamp": 0, "input_tok_ids": [7]}"#).expect("a row");
        assert_eq!((alone.prompt_tokens, alone.output_tokens), (1, 0));
    }

    #[test]
    fn names_the_column_where_no_field_is_at_fault() {
        assert_eq!(fault(r#"{"timestamp": 0, "input_len"#), "the row ends early (column 27)");
        assert!(fault("[1, 2").starts_with("not a JSON object"));
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert_eq!(fault(&format!(r#"{{"timestamp": {deep}}}"#)), "timestamp is not a number");
        assert!(fault(r#"{"timestamp": 0, "timestamp": 1}"#).contains("a field appears twice"));
    }
}
