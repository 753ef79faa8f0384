//! The block sizes of device and host, one a multiple of the other.

use std::ops::Range;

/// Tokens in a block of the device and of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) device: usize,
    pub(crate) host: usize,
}

/// Tokens that are in one block of either size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// The number of the device block in the sequence, and the tokens within it.
    pub(crate) device_number: usize,
    pub(crate) device_tokens: Range<usize>,
    /// The tokens within the host block.
    pub(crate) host_tokens: Range<usize>,
}

impl Sizes {
    pub(crate) fn are_multiples(self) -> bool {
        self.device % self.host == 0 || self.host % self.device == 0
    }

    /// Divides tokens of a sequence, all in one host block, where device blocks end.
    pub(crate) fn parts(self, tokens: Range<usize>) -> impl Iterator<Item = Part> {
        let mut from = tokens.start;
        std::iter::from_fn(move || {
            if from >= tokens.end {
                return None;
            }
            let to = (from / self.device + 1).saturating_mul(self.device).min(tokens.end);
            let within = |size: usize| from % size..from % size + (to - from);
            let part = Part {
                device_number: from / self.device,
                device_tokens: within(self.device),
                host_tokens: within(self.host),
            };
            from = to;
            Some(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(device: usize, host: usize, tokens: Range<usize>) -> Vec<(usize, Range<usize>, Range<usize>)> {
        let parts = Sizes { device, host }.parts(tokens);
        parts.map(|part| (part.device_number, part.device_tokens, part.host_tokens)).collect()
    }

    #[test]
    fn a_host_block_is_a_part_of_a_device_block_or_the_reverse() {
        assert_eq!(parts(4, 4, 8..12), [(2, 0..4, 0..4)]);
        assert_eq!(parts(4, 1, 9..10), [(2, 1..2, 0..1)]);
        assert_eq!(parts(2, 4, 4..8), [(2, 0..2, 0..2), (3, 0..2, 2..4)]);
        assert_eq!(parts(2, 4, 6..8), [(3, 0..2, 2..4)]);
        assert_eq!(parts(2, 4, 8..8), []);
    }

    #[test]
    fn one_size_is_a_multiple_of_the_other() {
        for (device, host, are) in [(16, 16, true), (16, 1, true), (16, 64, true), (16, 24, false), (3, 2, false)] {
            assert_eq!(Sizes { device, host }.are_multiples(), are, "{device} and {host}");
        }
    }
}
