//! Counts the distinct blocks of a trace: its working set. A capacity in percent is a share of it.
//!
//! Two blocks are equal if they and all blocks before them are equal: the working set counts
//! distinct prefixes of whole blocks. When prompts are sorted by their tokens, no earlier prompt
//! shares a longer prefix with a prompt than its predecessor does, so the blocks beyond that prefix
//! are new. No block is hashed, and tokens are made only where two prompts diverge.

use std::collections::TryReserveError;

use super::request::{Request, Trace};

impl Trace {
    /// Number of distinct full blocks of all prompts; generated tokens do not count.
    ///
    /// # Panics
    ///
    /// Panics if `block_size` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::Trace;
    ///
    /// let rows = "{\"timestamp\": 0, \"input_tok_ids\": [1, 2, 3, 4]}\n{\"timestamp\": 1, \"input_tok_ids\": [1, 2, 5, 6]}";
    /// let trace = Trace::from_reader(rows.as_bytes(), "rows", None)?;
    /// assert_eq!(trace.working_set_blocks(2), 3); // 1 2, 3 4 and 5 6
    /// # Ok::<_, radixkv_replay::TraceError>(())
    /// ```
    #[must_use]
    pub fn working_set_blocks(&self, block_size: usize) -> usize {
        self.distinct_blocks(self.requests.iter().collect(), block_size)
    }

    /// As [`working_set_blocks`](Self::working_set_blocks), but fails if memory is short.
    pub(super) fn try_working_set_blocks(&self, block_size: usize) -> Result<usize, TryReserveError> {
        let mut requests = Vec::new();
        requests.try_reserve_exact(self.requests.len())?;
        requests.extend(&self.requests);
        Ok(self.distinct_blocks(requests, block_size))
    }

    /// Number of distinct full blocks of the prompts of these requests.
    fn distinct_blocks(&self, mut sorted: Vec<&Request>, block_size: usize) -> usize {
        sorted.sort_unstable_by(|a, b| self.compare(a, b, false).1);
        let blocks: usize = sorted.iter().map(|r| r.prompt_tokens() / block_size).sum();
        let shared: usize = sorted.windows(2).map(|pair| self.compare(pair[0], pair[1], false).0 / block_size).sum();
        blocks - shared
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::request::Segment;

    fn hashed(id: u64, len: u32) -> Segment {
        Segment::Hashed { id, len }
    }

    fn counted_one_by_one(trace: &Trace, block_size: usize) -> usize {
        let mut prefixes = HashSet::new();
        for request in trace.requests() {
            let mut tokens = vec![0; request.prompt_tokens()];
            trace.fill(request, &mut tokens);
            for end in (block_size..=tokens.len()).step_by(block_size) {
                prefixes.insert(tokens[..end].to_vec());
            }
        }
        prefixes.len()
    }

    #[test]
    fn equals_counting_prefixes_one_by_one() {
        let mut trace = Trace::default();
        let spelled = trace.literal(&[7, 8, 9, 10, 11]);
        trace.push(0.0, [hashed(1, 10), hashed(2, 10)], 25, None, 3);
        trace.push(0.0, [hashed(1, 10), hashed(2, 4)], 14, None, 3);
        trace.push(0.0, [hashed(1, 10), hashed(2, 4), hashed(3, 9)], 23, None, 3);
        trace.push(0.0, [hashed(1, 4), hashed(1, 10)], 14, None, 3);
        trace.push(0.0, [hashed(1 + (1 << 32), 10)], 10, None, 3);
        trace.push(0.0, [hashed(1, 1), hashed(2, 1), spelled], 12, None, 0);
        trace.push(0.0, [spelled], 5, None, 0);
        trace.push(0.0, [hashed(7, 1), spelled], 6, None, 0);
        trace.push(0.0, [], 0, None, 0);
        trace.push(0.0, [hashed(1, 10), hashed(2, 10)], 25, None, 3);
        for block_size in 1..=12 {
            assert_eq!(
                trace.working_set_blocks(block_size),
                counted_one_by_one(&trace, block_size),
                "blocks of {block_size}"
            );
        }
    }
}
