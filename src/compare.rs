//! Comparing many token sequences at once: the prefixes that the prompts of a queue share, and whether restored blocks
//! hold the right tokens.
//!
//! On the processor, with vectors where it has them ([`key::common_prefix`]): one core compares 4,096 tokens in about
//! 0.15 us, so a GPU pays only from hundreds of thousands of tokens on. The feature `cuda` has `gpu::Compare`, which
//! answers the same questions and asks the device from there on.

use crate::key::{self, Token};

/// Lengths of the common prefixes of pairs, in their order.
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

/// The first pair whose two sides differ, and the position of the first difference. For restored blocks: compare each with
/// the tokens that it must hold.
///
/// Sides of different lengths differ where the shorter side ends.
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

/// The length of the common prefix of any two prompts of a queue.
///
/// The prompts are sorted, so those that share most are neighbours, and two prompts share the least of what the neighbours
/// between them share. So n prompts take O(n log n) comparisons and n - 1 lengths, not n * n of either.
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
    /// Prompts, sorted.
    order: Vec<u32>,
    /// Index of each prompt in `order`.
    place: Vec<u32>,
    /// Length of the common prefix of each prompt in `order` and the next.
    next: Vec<usize>,
    lengths: Vec<usize>,
}

impl SharedPrefixes {
    /// Compares prompts.
    ///
    /// # Panics
    ///
    /// If there are more than `u32::MAX` prompts.
    pub fn of(prompts: &[&[Token]]) -> Self {
        let count = u32::try_from(prompts.len()).expect("as many prompts as u32 counts");
        let mut order: Vec<u32> = (0..count).collect();
        order.sort_by(|a, b| key_order(prompts[*a as usize], prompts[*b as usize]).then(a.cmp(b)));
        let neighbours = order.windows(2).map(|pair| (prompts[pair[0] as usize], prompts[pair[1] as usize]));
        let next = prefix_lengths(neighbours);
        let mut place = vec![0; prompts.len()];
        (0..count).zip(&order).for_each(|(at, prompt)| place[*prompt as usize] = at);
        Self { order, place, next, lengths: prompts.iter().map(|prompt| prompt.len()).collect() }
    }

    /// Length of the common prefix of the prompts `a` and `b`, in tokens; the whole length if `a == b`.
    ///
    /// # Panics
    ///
    /// If `a` or `b` is not below the number of prompts.
    pub fn tokens(&self, a: usize, b: usize) -> usize {
        let (from, to) = (self.place[a].min(self.place[b]) as usize, self.place[a].max(self.place[b]) as usize);
        self.next[from..to].iter().copied().min().unwrap_or(self.lengths[a])
    }

    /// Indices of the prompts, sorted by their tokens: neighbours share most.
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

/// The order of slices, by one comparison with vectors.
fn key_order(a: &[Token], b: &[Token]) -> std::cmp::Ordering {
    let agreed = key::common_prefix(a, b);
    a.get(agreed).cmp(&b.get(agreed))
}

#[cfg(test)]
mod tests;
