//! Parses strings and lists of numbers as Python prints them.

use radixkv::key::Token;

use super::error::LogFault;

/// The value of a string literal at the start of `text`, and the rest after it; `None` if there is
/// no literal.
pub(super) fn string(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| ['\'', '"'].contains(c))?;
    let (mut read, mut chars) = (String::new(), text.char_indices().skip(1));
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Some((read, &text[at + 1..])),
            '\\' => {
                let (at, escaped) = chars.next()?;
                let digits = match escaped {
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    _ => 0,
                };
                if digits > 0 {
                    let code = u32::from_str_radix(text.get(at + 1..at + 1 + digits)?, 16).ok()?;
                    read.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                    chars.nth(digits - 1)?;
                } else {
                    read.push(match escaped {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        other => other,
                    });
                }
            }
            _ => read.push(c),
        }
    }
    None
}

/// The numbers of a list at the start of `text`; `None` if there is no list.
pub(super) fn tokens(text: &str) -> Result<Option<Vec<Token>>, LogFault> {
    let Some((list, after)) = text.strip_prefix('[').and_then(|text| text.split_once(']')) else {
        return Ok(None);
    };
    if after.trim_start().starts_with("...") || list.contains("...") {
        return Err(LogFault::Shortened);
    }
    let numbers = list.split(',').map(str::trim).filter(|number| !number.is_empty());
    let tokens: Result<Vec<Token>, _> = numbers.map(str::parse).collect();
    tokens
        .map(Some)
        .map_err(|_| LogFault::Wrong { field: "token ids", wanted: "a list of integers from 0 to 2^32 - 1" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_python_prints_them() {
        let read = |text| string(text).map(|(read, after)| (read, after.to_owned()));
        assert_eq!(read(r"'a\n\'b\' \\ \u00e9', params"), Some(("a\n'b' \\ é".into(), ", params".into())));
        assert_eq!(read("\"it's\" x"), Some(("it's".into(), " x".into())));
        assert_eq!(read(r"'\x41\U0001f600é'"), Some(("A\u{1f600}é".into(), String::new())));
        assert_eq!((read("None"), read("'open"), read(r"'\u12'")), (None, None, None));
    }

    #[test]
    fn lists_that_are_cut_short_are_refused() {
        assert_eq!(tokens("[1, 22,3], x"), Ok(Some(vec![1, 22, 3])));
        assert_eq!((tokens("[]"), tokens("None")), (Ok(Some(vec![])), Ok(None)));
        assert_eq!(tokens("[1, 2] ... [8, 9]"), Err(LogFault::Shortened));
        assert!(tokens("[1, -2]").is_err());
    }
}
