//! Plans cascade decode: finds the prefixes that the sequences of a batch share, from their block
//! ids.
//!
//! An engine calls [`share`] once a step, and passes the result to
//! [`Backend::prepare_cascade`](crate::Backend::prepare_cascade).
//!
//! Sequences of one cache that begin with the same tokens begin with the same block ids. Sorted by
//! their block tables, sequences that share a prefix are neighbours, and the lengths of their
//! common prefixes form a tree of nested spans. A sequence reads at most one shared prefix: the
//! prefix of its innermost group. So [`share`] decides which spans become groups. A group costs one
//! reading of its prefix and a little more; it saves that reading for every sequence whose
//! innermost group it is. The best choice is computed from the leaves of the tree upwards: for each
//! span, once for each enclosing span that may be the innermost group around it.

use crate::batch::Tables;
use crate::shape::ShapeError;
use radixkv::BlockId;

/// A backend's rule for sharing: the cost of a group, and where a shared prefix may end.
/// [`Backend::rule`](crate::Backend::rule) returns it.
///
/// A plain struct: a caller may plan with other costs, and then gives both numbers.
///
/// ```
/// use radixkv_attention::cpu::{Cpu, RANGE_TOKENS};
/// use radixkv_attention::{Backend, Dtype, Layout, Order, plan::Rule};
///
/// let (dtype, order) = (Dtype::F32, Order::Nhd);
/// let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
/// assert_eq!(Cpu.rule(&layout), Rule { grain_tokens: RANGE_TOKENS, group_cost_tokens: 0 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// A shared prefix ends at a multiple of this many tokens; 0 is taken as 1.
    pub grain_tokens: usize,
    /// The cost of a group in addition to reading its prefix once, as the number of tokens that one
    /// sequence could read in the same time.
    pub group_cost_tokens: usize,
}

/// Sequences of a batch that read a shared prefix together.
///
/// A plain struct: a caller may make its own plan, and then gives both fields.
///
/// ```
/// use radixkv_attention::plan::Group;
///
/// // The prefix is read once instead of three times.
/// let group = Group { sequences: vec![0, 1, 4], shared_tokens: 64 };
/// assert_eq!(group.saved_tokens(), 128);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Indices into the batch, at least one, ascending.
    pub sequences: Vec<u32>,
    /// Tokens of the prefix that all of them have in the same blocks; 0 in a group of one.
    pub shared_tokens: usize,
}

/// The sequences of a batch in groups, each sequence in exactly one group. [`share`] makes it.
///
/// A plain struct: a caller may make its own plan. [`check`](Self::check) says whether it is valid.
///
/// ```
/// use radixkv_attention::Tables;
/// use radixkv_attention::plan::{Rule, share};
///
/// let tables = Tables { blocks: &[7, 1, 7, 2], offsets: &[0, 2, 4] };
/// let sharing = share(tables, &[20, 20], 16, Rule { grain_tokens: 16, group_cost_tokens: 0 });
/// assert_eq!((sharing.groups.len(), sharing.saved_tokens()), (1, 16));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// The groups that share a prefix, then each other sequence as a separate group.
    pub groups: Vec<Group>,
}

impl Group {
    /// Tokens that need not be read again, capped at the largest `usize`.
    pub fn saved_tokens(&self) -> usize {
        self.sequences.len().saturating_sub(1).saturating_mul(self.shared_tokens)
    }
}

impl Sharing {
    /// Tokens that need not be read again, over all groups.
    pub fn saved_tokens(&self) -> usize {
        self.groups.iter().map(Group::saved_tokens).fold(0, usize::saturating_add)
    }

    /// Checks that this is a plan for these sequences: each sequence is in exactly one group, and
    /// the sequences of a group have their shared tokens in the same blocks.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Group`] or [`ShapeError::Shared`], with the first sequence or group that is
    /// wrong; [`ShapeError::Zero`] for a block size of 0.
    ///
    /// # Panics
    ///
    /// As [`share`].
    ///
    /// ```
    /// use radixkv_attention::plan::{Group, Sharing};
    /// use radixkv_attention::{ShapeError, Tables};
    ///
    /// let tables = Tables { blocks: &[7, 8, 7, 9], offsets: &[0, 2, 4] };
    /// let sharing = |shared_tokens| Sharing { groups: vec![Group { sequences: vec![0, 1], shared_tokens }] };
    /// assert_eq!(sharing(16).check(tables, &[32, 32], 16), Ok(()));
    /// assert_eq!(sharing(32).check(tables, &[32, 32], 16), Err(ShapeError::Shared { group: 0, tokens: 32 }));
    /// ```
    pub fn check(&self, tables: Tables<'_>, contexts: &[u32], block_size: usize) -> Result<(), ShapeError> {
        if block_size == 0 {
            return Err(ShapeError::Zero { what: "block_size" });
        }
        let mut seen = vec![false; contexts.len()];
        for (index, group) in self.groups.iter().enumerate() {
            for &sequence in &group.sequences {
                let sequence = sequence as usize;
                match seen.get_mut(sequence) {
                    Some(seen) if !*seen => *seen = true,
                    _ => return Err(ShapeError::Group { sequence }),
                }
            }
            if !group.is_shared(tables, contexts, block_size) {
                return Err(ShapeError::Shared { group: index, tokens: group.shared_tokens });
            }
        }
        match seen.iter().position(|seen| !seen) {
            Some(sequence) => Err(ShapeError::Group { sequence }),
            None => Ok(()),
        }
    }
}

impl Group {
    fn is_shared(&self, tables: Tables<'_>, contexts: &[u32], block_size: usize) -> bool {
        let blocks = self.shared_tokens.div_ceil(block_size);
        let begins = |sequence: &u32| {
            let fits = contexts[*sequence as usize] as usize >= self.shared_tokens;
            tables.blocks_of(*sequence as usize).get(..blocks).filter(|_| fits)
        };
        let first = self.sequences.first().and_then(begins);
        first.is_some() && self.sequences.iter().all(|sequence| begins(sequence) == first)
    }
}

/// Finds the groups that save the most reading.
///
/// `contexts` are the token counts of the sequences. Only whole blocks are shared, and none if the
/// block size is 0. The result is optimal: no other choice of groups saves more tokens after the
/// groups' costs are subtracted. Takes O(n log n) comparisons of tables, then at worst O(n^2) time
/// for prefixes nested n deep. Allocates.
///
/// # Panics
///
/// If there are fewer tables than contexts, or offsets are outside the blocks: call
/// [`Batch::check`](crate::Batch::check) first.
///
/// ```
/// use radixkv_attention::Tables;
/// use radixkv_attention::plan::{Rule, share};
///
/// let tables = Tables { blocks: &[7, 8, 1, 7, 8, 2, 9], offsets: &[0, 3, 6, 7] };
/// let sharing = share(tables, &[40, 45, 10], 16, Rule { grain_tokens: 16, group_cost_tokens: 0 });
/// assert_eq!((sharing.groups[0].sequences.as_slice(), sharing.groups[0].shared_tokens), (&[0, 1][..], 32));
/// assert_eq!(sharing.groups[1].sequences, [2]);
/// ```
pub fn share(tables: Tables<'_>, contexts: &[u32], block_size: usize, rule: Rule) -> Sharing {
    let whole = |sequence: u32| {
        let table = tables.blocks_of(sequence as usize);
        let blocks = (contexts[sequence as usize] as usize).checked_div(block_size).unwrap_or(0);
        &table[..table.len().min(blocks)]
    };
    let mut sorted: Vec<u32> = (0..contexts.len() as u32).collect();
    sorted.sort_by(|a, b| whole(*a).cmp(whole(*b)).then(a.cmp(b)));
    let common = |pair: &[u32]| common_blocks(whole(pair[0]), whole(pair[1])) * block_size;
    let grain = rule.grain_tokens.max(1);
    let shared: Vec<usize> = sorted.windows(2).map(|pair| common(pair) / grain * grain).collect();

    let spans = nest(&shared);
    let chosen = choose(&spans, rule.group_cost_tokens);
    let mut group_of = vec![None; sorted.len()];
    // Outer spans come first, so the innermost group of a sequence is written last.
    for (index, span) in spans.iter().enumerate().rev().filter(|(index, _)| chosen[*index]) {
        sorted[span.first..span.end].iter().for_each(|sequence| group_of[*sequence as usize] = Some(index));
    }
    into_groups(&group_of, &spans)
}

fn common_blocks(a: &[BlockId], b: &[BlockId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The neighbours `first..end` among the sorted sequences, and how many tokens all of them share.
struct SharedSpan {
    first: usize,
    end: usize,
    tokens: usize,
    /// Indices of the spans directly inside this one.
    inner: Vec<usize>,
}

/// Builds the tree of spans, in which inner spans precede those that enclose them; `shared[i]` is
/// how many tokens the sorted sequences `i` and `i + 1` share.
///
/// Spans whose end is not yet known are on a stack, longer prefixes above shorter ones; a span ends
/// before the first neighbour that shares less.
fn nest(shared: &[usize]) -> Vec<SharedSpan> {
    let mut spans: Vec<SharedSpan> = Vec::new();
    let mut open: Vec<SharedSpan> = Vec::new();
    for (last, tokens) in shared.iter().copied().chain([0]).enumerate() {
        let mut next = SharedSpan { first: last, end: 0, tokens, inner: Vec::new() };
        while open.last().is_some_and(|span| span.tokens > tokens) {
            let Some(span) = open.pop() else { break };
            let (first, index) = (span.first, spans.len());
            spans.push(SharedSpan { end: last + 1, ..span });
            match open.last_mut() {
                Some(outer) if outer.tokens >= tokens => outer.inner.push(index),
                _ => next = SharedSpan { first, inner: vec![index], ..next },
            }
        }
        if tokens > 0 && open.last().is_none_or(|span| span.tokens < tokens) {
            open.push(next);
        }
    }
    spans
}

/// Decides for each span whether it becomes a group.
///
/// Level `k` of a span is the `k`-th span around it, counted from the outermost and from 1; level 0
/// is no span. The best choice for a span is computed for each level that could be the innermost
/// group around it.
fn choose(spans: &[SharedSpan], cost: usize) -> Vec<bool> {
    // More than any number of tokens, and far from overflow.
    let cost = cost.min(isize::MAX as usize / 2) as isize;
    let mut outer = vec![None; spans.len()];
    // The tokens of each level: what a sequence saves if that level is its innermost group.
    let mut levels: Vec<Vec<usize>> = vec![vec![0]; spans.len()];
    for (index, span) in spans.iter().enumerate().rev() {
        for inner in &span.inner {
            outer[*inner] = Some(index);
            levels[*inner] = levels[index].iter().copied().chain([span.tokens]).collect();
        }
    }
    // The best saving inside each span, with each of its levels, or the span itself, as the
    // innermost group.
    let mut inside: Vec<Vec<isize>> = levels.iter().map(|levels| vec![0; levels.len() + 1]).collect();
    let mut pays: Vec<Vec<bool>> = Vec::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        let own = span.end - span.first - span.inner.iter().map(|i| spans[*i].end - spans[*i].first).sum::<usize>();
        let as_group = inside[index][levels[index].len()] + (own * span.tokens) as isize - span.tokens as isize - cost;
        let without = levels[index].iter().zip(&inside[index]).map(|(tokens, inside)| inside + (own * tokens) as isize);
        let without: Vec<isize> = without.collect();
        pays.push(without.iter().map(|without| as_group > *without).collect());
        if let Some(outer) = outer[index] {
            inside[outer].iter_mut().zip(without).for_each(|(sum, without)| *sum += without.max(as_group));
        }
    }
    let mut level = vec![0; spans.len()];
    let mut chosen = vec![false; spans.len()];
    for (index, span) in spans.iter().enumerate().rev() {
        chosen[index] = pays[index][level[index]];
        let innermost = if chosen[index] { levels[index].len() } else { level[index] };
        span.inner.iter().for_each(|inner| level[*inner] = innermost);
    }
    chosen
}

/// The groups in the order of their first sequence, then a group for each sequence that is in none.
fn into_groups(group_of: &[Option<usize>], spans: &[SharedSpan]) -> Sharing {
    let mut group_at = vec![None; spans.len()];
    let mut groups: Vec<Group> = Vec::new();
    for (sequence, span) in group_of.iter().enumerate() {
        let Some(span) = *span else { continue };
        let at = *group_at[span].get_or_insert_with(|| {
            groups.push(Group { sequences: Vec::new(), shared_tokens: spans[span].tokens });
            groups.len() - 1
        });
        groups[at].sequences.push(sequence as u32);
    }
    let alone = group_of.iter().enumerate().filter(|(_, group)| group.is_none());
    groups.extend(alone.map(|(sequence, _)| Group { sequences: vec![sequence as u32], shared_tokens: 0 }));
    Sharing { groups }
}

#[cfg(test)]
mod tests;
