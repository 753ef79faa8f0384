//! Counts what a peer sends, by the lengths in the headers of its ZMTP frames.

use super::Bounds;

/// Bytes of a ZMTP 3 greeting.
const GREETING: u64 = 64;
/// Bytes that each frame counts for beyond its length: its memory here, however short it is.
const FRAME: u64 = 64;
/// Bits of a frame's first byte. `MORE`: further frames of the message follow. `LONG`: the length
/// has eight bytes instead of one.
const MORE: u8 = 1;
const LONG: u8 = 2;

/// A parser of a peer's byte stream that adds up the announced bytes.
#[derive(Debug)]
pub(super) struct Frames {
    bounds: Bounds,
    part: Part,
    /// Whether a frame has been complete.
    has_begun: bool,
    /// Bytes counted for the current message, and for all frames of the connection.
    message: u64,
    all: u64,
}

/// The part of the stream that the next byte belongs to.
#[derive(Debug, Clone, Copy)]
enum Part {
    Greeting { left: u64 },
    Flags,
    Length { left: u8, length: u64, more: bool },
    Body { left: u64, more: bool },
}

impl Frames {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, part: Part::Greeting { left: GREETING }, has_begun: false, message: 0, all: 0 }
    }

    /// Parses the next bytes; `false` if they announce more than the peer may send.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> bool {
        while let Some(&byte) = bytes.first() {
            let taken = match &mut self.part {
                Part::Greeting { left } | Part::Body { left, .. } => {
                    let taken = (bytes.len() as u64).min(*left);
                    *left -= taken;
                    taken as usize
                }
                Part::Flags => {
                    let left = if byte & LONG == 0 { 1 } else { 8 };
                    self.part = Part::Length { left, length: 0, more: byte & MORE != 0 };
                    1
                }
                Part::Length { left, length, .. } => {
                    *left -= 1;
                    *length = *length << 8 | u64::from(byte);
                    1
                }
            };
            bytes = &bytes[taken..];
            if !self.advance() {
                return false;
            }
        }
        true
    }

    /// Whether the peer has sent the greeting and a whole frame.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Moves to the next part if this one is complete; `false` if a limit is exceeded.
    fn advance(&mut self) -> bool {
        match self.part {
            Part::Length { left: 0, length, more } => {
                let counts = length.saturating_add(FRAME);
                self.message = self.message.saturating_add(counts);
                self.all = self.all.saturating_add(counts);
                self.part = Part::Body { left: length, more };
                if self.message > self.bounds.message || self.all > self.bounds.all {
                    return false;
                }
                self.advance()
            }
            Part::Body { left: 0, more } => {
                if !more {
                    self.message = 0;
                }
                self.has_begun = true;
                self.part = Part::Flags;
                true
            }
            Part::Greeting { left: 0 } => {
                self.part = Part::Flags;
                true
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { message: 1_000, all: 3_000, ..Bounds::OF_ANY };

    fn short(more: bool, length: u8) -> Vec<u8> {
        [vec![u8::from(more), length], vec![7; usize::from(length)]].concat()
    }

    fn long(more: bool, length: u64) -> Vec<u8> {
        [&[LONG | u8::from(more)][..], &length.to_be_bytes()].concat()
    }

    /// Whether a peer may send these frames after its greeting, for any split of the bytes.
    fn passes(frames: &[Vec<u8>]) -> bool {
        let bytes = [vec![0xff; GREETING as usize], frames.concat()].concat();
        let verdicts = [1, 3, bytes.len()].map(|part| {
            let mut frames = Frames::new(BOUNDS);
            bytes.chunks(part).all(|bytes| frames.pass(bytes))
        });
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
        verdicts[0]
    }

    #[test]
    fn a_message_has_so_many_bytes_and_not_one_more() {
        assert!(passes(&[long(false, 1_000 - FRAME)]));
        assert!(!passes(&[long(false, 1_001 - FRAME)]));
        assert!(!passes(&[long(false, u64::MAX)]));
        let both = |last| vec![short(true, 255), long(false, last)];
        assert!(passes(&both(1_000 - 2 * FRAME - 255)));
        assert!(!passes(&both(1_001 - 2 * FRAME - 255)));
    }

    #[test]
    fn a_message_of_empty_frames_ends() {
        assert!(passes(&vec![short(true, 0); 15]));
        assert!(!passes(&vec![short(true, 0); 16]));
        // Separate messages are limited only in total.
        assert!(passes(&vec![short(false, 0); 46]));
        assert!(!passes(&vec![short(false, 0); 47]));
    }

    #[test]
    fn a_peer_has_begun_when_it_has_sent_a_frame() {
        let mut frames = Frames::new(BOUNDS);
        let bytes = [vec![0xff; GREETING as usize], short(false, 2)].concat();
        for (at, byte) in bytes.iter().enumerate() {
            assert!(!frames.has_begun(), "after {at} bytes");
            assert!(frames.pass(&[*byte]));
        }
        assert!(frames.has_begun());
        assert!(frames.pass(&short(false, 2)[..3]));
        assert!(frames.has_begun(), "inside its second frame");
    }
}
