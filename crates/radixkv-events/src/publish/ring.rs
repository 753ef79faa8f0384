//! The last batches, kept for replays to subscribers that missed some.

use std::collections::VecDeque;

use bytes::Bytes;

/// The last payloads with their numbers, limited by count and by bytes.
#[derive(Debug)]
pub(super) struct Ring {
    payloads: VecDeque<(u64, Bytes)>,
    bytes: usize,
    max_payloads: usize,
    max_bytes: usize,
}

impl Ring {
    pub(super) fn new(max_payloads: usize, max_bytes: usize) -> Self {
        Self { payloads: VecDeque::new(), bytes: 0, max_payloads, max_bytes }
    }

    /// Adds a payload, and removes the oldest ones beyond the limits.
    pub(super) fn push(&mut self, seq: u64, payload: Bytes) {
        self.bytes += payload.len();
        self.payloads.push_back((seq, payload));
        while self.payloads.len() > self.max_payloads || self.bytes > self.max_bytes {
            let Some((_, oldest)) = self.payloads.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }

    /// The payloads from number `seq` on.
    pub(super) fn from(&self, seq: u64) -> Vec<(u64, Bytes)> {
        let start = self.payloads.partition_point(|(number, _)| *number < seq);
        self.payloads.range(start..).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(ring: &Ring, seq: u64) -> Vec<u64> {
        ring.from(seq).into_iter().map(|(seq, _)| seq).collect()
    }

    #[test]
    fn the_oldest_go_by_number_and_by_bytes() {
        let mut ring = Ring::new(3, 10);
        (0..5).for_each(|seq| ring.push(seq, Bytes::from_static(b"ab")));
        assert_eq!((numbers(&ring, 0), numbers(&ring, 4), numbers(&ring, 9)), (vec![2, 3, 4], vec![4], vec![]));
        ring.push(7, Bytes::from_static(b"abcdefg"));
        assert_eq!(numbers(&ring, 0), [4, 7]);
        ring.push(8, Bytes::from_static(b"more bytes than it may have"));
        assert_eq!(numbers(&ring, 0), [0_u64; 0]);
    }
}
