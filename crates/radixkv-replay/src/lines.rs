//! Reads a text line by line, with a limit on the length of a line.

use std::{
    collections::TryReserveError,
    io::{self, BufRead, Read},
};

/// The byte order mark that some editors write before UTF-8 text; not part of the text.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Why the next line could not be read.
#[derive(Debug)]
pub(super) enum LineFault {
    /// Reading the text failed.
    Read(io::Error),
    /// The line is longer than the limit.
    TooLong,
    /// The line is within the limit, but there is not enough memory for it.
    NoMemory(TryReserveError),
}

/// A text that is read line by line into one buffer.
pub(super) struct Lines {
    source: Box<dyn BufRead>,
    text: Vec<u8>,
    max_bytes: usize,
    /// Whether no line was read yet.
    at_start: bool,
}

impl Lines {
    pub(super) fn new(source: Box<dyn BufRead>, max_bytes: usize) -> Self {
        Self { source, text: Vec::new(), max_bytes, at_start: true }
    }

    /// The next line without its newline; `None` at the end of the text.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, LineFault> {
        self.text.clear();
        loop {
            let ready = match self.source.fill_buf() {
                Ok(bytes) => bytes.len(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(LineFault::Read(error)),
            };
            self.text.try_reserve(ready).map_err(LineFault::NoMemory)?;
            // Reads only the bytes that are ready: the buffer does not grow beyond what was
            // reserved.
            let piece = (&mut self.source).take(ready as u64).read_until(b'\n', &mut self.text);
            let ended = piece.map_err(LineFault::Read)? == 0;
            let line = self.text.strip_suffix(b"\n").map_or(self.text.len(), <[u8]>::len);
            if line > self.max_bytes {
                return Err(LineFault::TooLong);
            }
            if ended || line < self.text.len() {
                let none_left = self.text.is_empty();
                let mark = std::mem::take(&mut self.at_start) && self.text.starts_with(MARK);
                let start = if mark { MARK.len() } else { 0 };
                return Ok((!none_left).then_some(&self.text[start..line]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &'static [u8], max_bytes: usize) -> Vec<Result<Vec<u8>, &'static str>> {
        // A buffer of three bytes: lines arrive in pieces.
        let mut lines = Lines::new(Box::new(io::BufReader::with_capacity(3, text)), max_bytes);
        let mut all = Vec::new();
        loop {
            match lines.next() {
                Ok(Some(line)) => all.push(Ok(line.to_vec())),
                Ok(None) => return all,
                Err(LineFault::TooLong) => {
                    all.push(Err("too long"));
                    return all;
                }
                Err(fault) => panic!("{fault:?}"),
            }
        }
    }

    #[test]
    fn lines_are_cut_at_their_ends() {
        let ok = |text: &[u8]| Ok(text.to_vec());
        assert_eq!(lines(b"", 9), []);
        assert_eq!(lines(b"\n", 9), [ok(b"")]);
        assert_eq!(lines(b"ab\n\nabcdefgh\nx", 9), [ok(b"ab"), ok(b""), ok(b"abcdefgh"), ok(b"x")]);
        assert_eq!(lines(b"abc\nabcdef\n", 6), [ok(b"abc"), ok(b"abcdef")]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        let read = |text| lines(text, 10).into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(read(b"\xef\xbb\xbfone\n\xef\xbb\xbftwo"), [&b"one"[..], b"\xef\xbb\xbftwo"]);
        assert_eq!(read(b"\xef\xbb\xbf"), [b""]);
        assert_eq!(read(b"\xef\xbb"), [b"\xef\xbb"]);
    }

    #[test]
    fn a_line_beyond_the_limit_is_refused() {
        assert_eq!(lines(b"abc\nabcdefg\nx", 6), [Ok(b"abc".to_vec()), Err("too long")]);
        assert_eq!(lines(b"abcdefg", 6), [Err("too long")]);
    }
}
