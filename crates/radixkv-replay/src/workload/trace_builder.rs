//! Builds the trace of a class.

use crate::request::{Segment, Trace};

/// A trace that is being built, and the number of hash ids used so far.
#[derive(Default)]
pub(super) struct TraceBuilder {
    trace: Trace,
    used_ids: u64,
}

impl TraceBuilder {
    pub(super) fn fresh_id(&mut self) -> u64 {
        self.used_ids += 1;
        self.used_ids
    }

    /// `len` unique tokens, which are shared only where the segment is used again.
    pub(super) fn fresh(&mut self, len: u32) -> Segment {
        Segment::Hashed { id: self.fresh_id(), len }
    }

    /// Adds a request with unique generated tokens.
    pub(super) fn request(&mut self, timestamp: f64, prompt: &[Segment], output_tokens: u32) {
        self.push(timestamp, prompt, None, output_tokens);
    }

    /// Adds a request whose answer later prompts may repeat.
    pub(super) fn answered(&mut self, timestamp: f64, prompt: &[Segment], answer: Segment) {
        self.push(timestamp, prompt, Some(answer), answer.len() as u32);
    }

    fn push(&mut self, timestamp: f64, prompt: &[Segment], answer: Option<Segment>, output_tokens: u32) {
        let length: usize = prompt.iter().map(|segment| segment.len()).sum();
        self.trace.push(timestamp, prompt.iter().copied(), length as u32, answer, output_tokens);
    }

    pub(super) fn build(self) -> Trace {
        self.trace
    }
}
