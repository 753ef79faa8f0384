//! Compares many token sequences at once, to find the prefixes that queued prompts share, or to
//! check that restored blocks have the right tokens.
//!
//! It runs on the CPU, with vector instructions if available ([`key::common_prefix`]). One core
//! compares 4,096 tokens in about 0.15 us, so a GPU is worth while only from hundreds of thousands
//! of tokens on. `Compare` of the package `radixkv-cuda` answers the same questions and uses the
//! GPU from that size on.

use crate::key::{self, Token};

/// Returns the length of the common prefix of each pair, in order.
///
/// # Examples
///
/// ```
/// use radixkv::compare::prefix_lengths;
///
/// let (a, b) = ([1, 2, 3, 4], [1, 2, 9]);
/// assert_eq!(prefix_lengths([(&a[..], &b[..]), (&a, &a), (&b, &[])]), [2, 4, 0]);
/// ```
pub fn prefix_lengths<'a>(pairs: impl IntoIterator<Item = (&'a [Token], &'a [Token])>) -> Vec<usize> {
    pairs.into_iter().map(|(a, b)| key::common_prefix(a, b)).collect()
}

/// Returns the index of the first pair whose two sides differ, and the position of the first
/// difference. To check restored blocks, pair each with its expected tokens.
///
/// If one side is a prefix of the other, they differ where the shorter one ends.
///
/// # Examples
///
/// ```
/// use radixkv::compare::first_difference;
///
/// let (held, restored) = ([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 3, 4], [5, 6, 0, 8]]);
/// let pairs = held.iter().zip(&restored).map(|(held, restored)| (&held[..], &restored[..]));
/// assert_eq!(first_difference(pairs), Some((1, 2)));
/// ```
pub fn first_difference<'a>(pairs: impl IntoIterator<Item = (&'a [Token], &'a [Token])>) -> Option<(usize, usize)> {
    let differs = |(index, (a, b)): (usize, (&[Token], &[Token]))| {
        let agreed = key::common_prefix(a, b);
        (agreed < a.len().max(b.len())).then_some((index, agreed))
    };
    pairs.into_iter().enumerate().find_map(differs)
}

/// The length of the common prefix of any two prompts in a queue.
///
/// The prompts are sorted, so prompts that share most are neighbours. The common prefix of two
/// prompts is the shortest common prefix of the neighbours between them. So n prompts take O(n log
/// n) comparisons and n - 1 lengths, instead of n * n of each.
///
/// # Examples
///
/// ```
/// use radixkv::compare::SharedPrefixes;
///
/// let prompts = [&[1, 2, 3][..], &[7], &[1, 2, 4, 5], &[1]];
/// let shared = SharedPrefixes::of(&prompts);
/// assert_eq!((shared.tokens(0, 2), shared.tokens(2, 3), shared.tokens(0, 1)), (2, 1, 0));
/// // Prompts with two tokens or more in common should run together, so that their common prefix is read once.
/// assert_eq!(shared.groups(2), [vec![0, 2]]);
/// ```
#[derive(Debug, Clone)]
pub struct SharedPrefixes {
    /// Indices of the prompts, in sorted order.
    order: Vec<u32>,
    /// Index of each prompt in `order`.
    place: Vec<u32>,
    /// Length of the common prefix of each prompt in `order` and the next one.
    next: Vec<usize>,
    lengths: Vec<usize>,
}

impl SharedPrefixes {
    /// Sorts and compares the prompts.
    ///
    /// # Panics
    ///
    /// If there are more than `u32::MAX` prompts.
    pub fn of(prompts: &[&[Token]]) -> Self {
        let count = u32::try_from(prompts.len()).expect("at most u32::MAX prompts");
        let mut order: Vec<u32> = (0..count).collect();
        order.sort_by(|a, b| key_order(prompts[*a as usize], prompts[*b as usize]).then(a.cmp(b)));
        let neighbours = order.windows(2).map(|pair| (prompts[pair[0] as usize], prompts[pair[1] as usize]));
        let next = prefix_lengths(neighbours);
        let mut place = vec![0; prompts.len()];
        (0..count).zip(&order).for_each(|(at, prompt)| place[*prompt as usize] = at);
        Self { order, place, next, lengths: prompts.iter().map(|prompt| prompt.len()).collect() }
    }

    /// Length of the common prefix of the prompts `a` and `b`, in tokens; the whole length if
    /// `a == b`.
    ///
    /// # Panics
    ///
    /// If `a` or `b` is not below the number of prompts.
    pub fn tokens(&self, a: usize, b: usize) -> usize {
        let (from, to) = (self.place[a].min(self.place[b]) as usize, self.place[a].max(self.place[b]) as usize);
        self.next[from..to].iter().copied().min().unwrap_or(self.lengths[a])
    }

    /// Indices of the prompts, sorted by their tokens, so that neighbours share most.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::compare::SharedPrefixes;
    /// assert_eq!(SharedPrefixes::of(&[&[5, 1][..], &[3], &[5]]).order(), [1, 2, 0]);
    /// ```
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Groups of at least two prompts that all share `tokens` tokens or more, as indices.
    ///
    /// # Examples
    ///
    /// ```
    /// # use radixkv::compare::SharedPrefixes;
    /// let shared = SharedPrefixes::of(&[&[5, 1][..], &[3], &[5, 2]]);
    /// assert_eq!(shared.groups(1), [[0, 2]]);
    /// assert!(shared.groups(2).is_empty());
    /// ```
    pub fn groups(&self, tokens: usize) -> Vec<Vec<u32>> {
        let mut groups: Vec<Vec<u32>> = Vec::new();
        let mut open = false;
        for (pair, shared) in self.order.windows(2).zip(&self.next) {
            let sharing = *shared >= tokens;
            match groups.last_mut() {
                Some(group) if sharing && open => group.push(pair[1]),
                _ if sharing => groups.push(pair.to_vec()),
                _ => {}
            }
            open = sharing;
        }
        groups
    }
}

/// The lexicographic order of slices, with one vector comparison.
fn key_order(a: &[Token], b: &[Token]) -> std::cmp::Ordering {
    let agreed = key::common_prefix(a, b);
    a.get(agreed).cmp(&b.get(agreed))
}

#[cfg(test)]
mod tests;
