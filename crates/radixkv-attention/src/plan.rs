//! What the sequences of a batch share: the plan of cascade decode, from block ids alone.
//!
//! Sequences that came out of one cache begin with the same block ids where they begin with the same tokens. Sorted by
//! their tables, those that share lie side by side, and the lengths of their common prefixes make a tree of nested
//! spans. A sequence reads one shared prefix, so the question is which spans to make groups of: a group costs one
//! reading of its prefix and a little more, and saves every sequence that reading whose innermost group it is. The best
//! choice is found from the leaves of the tree up, for each span under each of those that enclose it.

use super::{ShapeError, Tables};
use radixkv::BlockId;

/// What a group costs, and where a shared prefix may end. A backend gives its own:
/// [`Backend::rule`](super::Backend::rule).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Shared prefixes end at a multiple of so many tokens; at least 1.
    pub grain_tokens: usize,
    /// What a group costs beside reading its prefix once, as tokens that one sequence could read meanwhile.
    pub group_cost_tokens: usize,
}

/// Sequences that read their first tokens together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Indices into the batch, at least one, ascending.
    pub sequences: Vec<u32>,
    /// Tokens that all of them begin with, in the same blocks; 0 in a group of one.
    pub shared_tokens: usize,
}

/// A batch's sequences in groups, each sequence in exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// The groups that share something, then every other sequence in a group of its own.
    pub groups: Vec<Group>,
}

impl Group {
    /// Tokens that are not read again.
    pub fn saved_tokens(&self) -> usize {
        (self.sequences.len() - 1) * self.shared_tokens
    }
}

impl Sharing {
    /// Tokens that are not read again, over all groups.
    pub fn saved_tokens(&self) -> usize {
        self.groups.iter().map(Group::saved_tokens).sum()
    }

    /// Whether it is a plan for these sequences: each in one group, whose sequences begin with the same blocks.
    ///
    /// # Errors
    ///
    /// The first sequence or group that is not as it should be.
    pub fn check(&self, tables: Tables<'_>, contexts: &[u32], block_size: usize) -> Result<(), ShapeError> {
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
            tables.of(*sequence as usize).get(..blocks).filter(|_| fits)
        };
        let first = self.sequences.first().and_then(begins);
        first.is_some() && self.sequences.iter().all(|sequence| begins(sequence) == first)
    }
}

/// Finds the groups that save the most reading.
///
/// `contexts` are the tokens of each sequence; only their whole blocks are shared. Exact: no other choice of groups
/// saves more tokens after what the groups cost. O(n log n) comparisons of tables, then at worst O(n^2) for prefixes
/// nested n deep.
///
/// # Panics
///
/// If there are not as many tables as contexts, or a table's offsets lie outside its blocks: check the batch first.
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
        let table = tables.of(sequence as usize);
        &table[..table.len().min(contexts[sequence as usize] as usize / block_size)]
    };
    let mut sorted: Vec<u32> = (0..contexts.len() as u32).collect();
    sorted.sort_by(|a, b| whole(*a).cmp(whole(*b)).then(a.cmp(b)));
    let common = |pair: &[u32]| common_blocks(whole(pair[0]), whole(pair[1])) * block_size;
    let grain = rule.grain_tokens.max(1);
    let shared: Vec<usize> = sorted.windows(2).map(|pair| common(pair) / grain * grain).collect();

    let spans = nest(&shared);
    let chosen = choose(&spans, rule.group_cost_tokens);
    let mut group_of = vec![None; sorted.len()];
    // From the outside in: the innermost group has the last word.
    for (index, span) in spans.iter().enumerate().rev().filter(|(index, _)| chosen[*index]) {
        sorted[span.first..span.end].iter().for_each(|sequence| group_of[*sequence as usize] = Some(index));
    }
    into_groups(&group_of, &spans)
}

fn common_blocks(a: &[BlockId], b: &[BlockId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Neighbours among the sorted sequences, `first..end`, and what they all have in common.
struct Span {
    first: usize,
    end: usize,
    tokens: usize,
    /// Spans right inside it.
    inner: Vec<usize>,
}

/// The tree of spans, inner ones before those that enclose them; `shared[i]` is what the sorted sequences `i` and `i +
/// 1` have in common.
///
/// Spans whose end was not seen lie on a stack, the longer prefix above the shorter; one ends where a neighbour shares
/// less.
fn nest(shared: &[usize]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut open: Vec<Span> = Vec::new();
    for (last, tokens) in shared.iter().copied().chain([0]).enumerate() {
        let mut next = Span { first: last, end: 0, tokens, inner: Vec::new() };
        while open.last().is_some_and(|span| span.tokens > tokens) {
            let Some(span) = open.pop() else { break };
            let (first, index) = (span.first, spans.len());
            spans.push(Span { end: last + 1, ..span });
            match open.last_mut() {
                Some(outer) if outer.tokens >= tokens => outer.inner.push(index),
                _ => next = Span { first, inner: vec![index], ..next },
            }
        }
        if tokens > 0 && open.last().is_none_or(|span| span.tokens < tokens) {
            open.push(next);
        }
    }
    spans
}

/// Which spans to make groups of.
///
/// Level `k` of a span is the `k`-th span around it counted from outside, from 1 on; level 0 is none. What is best for
/// a span is found for each level that could be the innermost group around it.
fn choose(spans: &[Span], cost: usize) -> Vec<bool> {
    let mut outer = vec![None; spans.len()];
    // The tokens of each level: what a sequence saves whose innermost group it is.
    let mut levels: Vec<Vec<usize>> = vec![vec![0]; spans.len()];
    for (index, span) in spans.iter().enumerate().rev() {
        for inner in &span.inner {
            outer[*inner] = Some(index);
            levels[*inner] = levels[index].iter().copied().chain([span.tokens]).collect();
        }
    }
    // Best saving inside a span for each of its levels, and itself.
    let mut inside: Vec<Vec<isize>> = levels.iter().map(|levels| vec![0; levels.len() + 1]).collect();
    let mut pays: Vec<Vec<bool>> = Vec::with_capacity(spans.len());
    for (index, span) in spans.iter().enumerate() {
        let own = span.end - span.first - span.inner.iter().map(|i| spans[*i].end - spans[*i].first).sum::<usize>();
        let as_group =
            inside[index][levels[index].len()] + (own * span.tokens) as isize - (span.tokens + cost) as isize;
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

/// The groups in the order of their first sequence, then the sequences that are in none.
fn into_groups(group_of: &[Option<usize>], spans: &[Span]) -> Sharing {
    let mut place = vec![None; spans.len()];
    let mut groups: Vec<Group> = Vec::new();
    for (sequence, span) in group_of.iter().enumerate() {
        let Some(span) = *span else { continue };
        let at = *place[span].get_or_insert_with(|| {
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
mod tests {
    use super::*;

    const EVERY: Rule = Rule { grain_tokens: 1, group_cost_tokens: 0 };

    /// Tables as arrays of their own.
    struct Given {
        blocks: Vec<BlockId>,
        offsets: Vec<u32>,
        contexts: Vec<u32>,
    }

    impl Given {
        fn new(tables: &[&[BlockId]], block_size: usize) -> Self {
            let mut offsets = vec![0];
            offsets.extend(tables.iter().scan(0, |end, table| {
                *end += table.len() as u32;
                Some(*end)
            }));
            let contexts = tables.iter().map(|table| (table.len() * block_size) as u32).collect();
            Self { blocks: tables.concat(), offsets, contexts }
        }

        fn tables(&self) -> Tables<'_> {
            Tables { blocks: &self.blocks, offsets: &self.offsets }
        }

        fn share(&self, block_size: usize, rule: Rule) -> Sharing {
            let sharing = share(self.tables(), &self.contexts, block_size, rule);
            assert_eq!(sharing.check(self.tables(), &self.contexts, block_size), Ok(()));
            sharing
        }
    }

    fn shared(sharing: &Sharing) -> Vec<(&[u32], usize)> {
        let groups = sharing.groups.iter().filter(|group| group.sequences.len() > 1);
        groups.map(|group| (group.sequences.as_slice(), group.shared_tokens)).collect()
    }

    #[test]
    fn groups_are_the_common_prefixes() {
        let given = Given::new(&[&[1, 2, 3, 9], &[5, 6], &[1, 2, 4], &[5, 7], &[8], &[1, 2, 3, 4]], 16);
        let sharing = given.share(16, EVERY);
        assert_eq!(shared(&sharing), [(&[0, 2, 5][..], 32), (&[1, 3][..], 16)]);
        assert_eq!(sharing.saved_tokens(), 80);
        assert_eq!(sharing.groups.last().map(|group| group.sequences.as_slice()), Some(&[4][..]));
    }

    #[test]
    fn the_inner_groups_win_where_they_save_more() {
        // All begin with block 1; two pairs go on together for three more.
        let given = Given::new(&[&[1, 2, 3, 4], &[1, 2, 3, 4], &[1, 5, 6, 7], &[1, 5, 6, 7]], 1);
        assert_eq!(shared(&given.share(1, EVERY)), [(&[0, 1][..], 4), (&[2, 3][..], 4)]);
        let given = Given::new(&[&[1, 2], &[1, 2], &[1, 3], &[1, 4], &[1, 5]], 1);
        assert_eq!(shared(&given.share(1, EVERY)), [(&[0, 1, 2, 3, 4][..], 1)]);
    }

    #[test]
    fn a_prefix_ends_at_the_grain_and_must_pay() {
        let given = Given::new(&[&[1, 2, 3, 4, 5, 6, 9], &[1, 2, 3, 4, 5, 6, 8], &[1, 2, 3, 4, 5, 6, 7]], 16);
        let rule = Rule { grain_tokens: 64, group_cost_tokens: 127 };
        assert_eq!(shared(&given.share(16, rule)), [(&[0, 1, 2][..], 64)]);
        assert_eq!(shared(&given.share(16, Rule { group_cost_tokens: 128, ..rule })), []);
    }

    #[test]
    fn the_last_block_counts_when_it_is_whole() {
        let mut given = Given::new(&[&[1, 2], &[1, 2]], 16);
        assert_eq!(shared(&given.share(16, EVERY)), [(&[0, 1][..], 32)]);
        given.contexts = vec![31, 32];
        assert_eq!(shared(&given.share(16, EVERY)), [(&[0, 1][..], 16)]);
    }

    #[test]
    fn no_choice_of_groups_saves_more() {
        // All partitions of small batches into groups, tried one by one.
        fn best(tables: &[Vec<BlockId>], cost: isize, from: usize, groups: &mut Vec<Vec<usize>>) -> isize {
            if from == tables.len() {
                let saved = |group: &Vec<usize>| {
                    let first = &tables[group[0]];
                    let common = group.iter().map(|other| common_blocks(first, &tables[*other])).min().unwrap_or(0);
                    if group.len() > 1 { ((group.len() - 1) * common) as isize - cost } else { 0 }
                };
                return groups.iter().map(saved).sum();
            }
            let mut most = 0;
            for at in 0..groups.len() {
                groups[at].push(from);
                most = most.max(best(tables, cost, from + 1, groups));
                groups[at].pop();
            }
            groups.push(vec![from]);
            most = most.max(best(tables, cost, from + 1, groups));
            groups.pop();
            most
        }
        let mut dice = fastrand::Rng::with_seed(1);
        for round in 0..400 {
            let mut table = || (0..dice.u32(..6)).map(|depth| depth * 2 + u32::from(dice.u8(..4) == 0)).collect();
            let tables: Vec<Vec<BlockId>> = (0..1 + round % 6).map(|_| table()).collect();
            let slices: Vec<&[BlockId]> = tables.iter().map(Vec::as_slice).collect();
            let cost = dice.usize(..4);
            let sharing = Given::new(&slices, 1).share(1, Rule { group_cost_tokens: cost, ..EVERY });
            let saved = sharing.saved_tokens() as isize - (shared(&sharing).len() * cost) as isize;
            assert_eq!(saved, best(&tables, cost as isize, 0, &mut Vec::new()), "round {round}: {tables:?}");
        }
    }

    #[test]
    fn a_plan_of_other_sequences_is_refused() {
        let given = Given::new(&[&[1, 2], &[1, 3]], 16);
        let check = |groups| Sharing { groups }.check(given.tables(), &given.contexts, 16);
        let group = |sequences: &[u32], shared_tokens| Group { sequences: sequences.to_vec(), shared_tokens };
        assert_eq!(check(vec![group(&[0, 1], 16)]), Ok(()));
        assert_eq!(check(vec![group(&[0], 0)]), Err(ShapeError::Group { sequence: 1 }));
        assert_eq!(check(vec![group(&[0, 1], 0), group(&[1], 0)]), Err(ShapeError::Group { sequence: 1 }));
        assert_eq!(check(vec![group(&[0, 1, 2], 0)]), Err(ShapeError::Group { sequence: 2 }));
        assert_eq!(check(vec![group(&[0, 1], 17)]), Err(ShapeError::Shared { group: 0, tokens: 17 }));
        assert_eq!(check(vec![group(&[0, 1], 33)]), Err(ShapeError::Shared { group: 0, tokens: 33 }));
    }
}
