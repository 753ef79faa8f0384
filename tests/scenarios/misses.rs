//! Why a lookup misses: marks of blocks that were there, of runs and pieces that went whole and of
//! parts of them.

use radixkv::{Keys, Lease, Namespace, NamespaceName, PrefixCache, Session, Token};

struct Marked {
    cache: PrefixCache,
    session: Session,
    space: Namespace,
}

impl Marked {
    fn new(block_size: usize, capacity: usize, keys: Keys) -> Self {
        let cache = PrefixCache::builder(block_size, capacity).build().expect("valid");
        Self {
            session: cache.session(),
            space: cache.namespace(NamespaceName::new(&["marked"]).with_keys(keys)),
            cache,
        }
    }

    /// Caches the whole blocks of `tokens`.
    fn put(&self, tokens: &[Token]) -> Lease {
        let size = self.cache.block_size();
        let hit = self.session.match_prefix(&self.space, tokens).into_lease();
        let needed = (tokens.len() - usize::from(self.space.keys() == Keys::Bigrams)) / size - hit.len_tokens() / size;
        let blocks = self.session.reserve(needed).expect("room");
        self.session.insert(&hit, tokens, blocks).expect("it fits").lease
    }

    /// What a match of `tokens` misses: tokens that were evicted, and new ones.
    fn missed(&self, tokens: &[Token]) -> [u64; 2] {
        let before = self.cache.stats();
        drop(self.session.match_prefix(&self.space, tokens));
        let counted = self.cache.stats().delta(&before);
        [counted.missed_evicted_tokens, counted.missed_new_tokens]
    }
}

// Holds: NU4.
#[test]
fn pairs_that_were_evicted_are_known_again() {
    let marked = Marked::new(2, 64, Keys::Bigrams);
    let tokens = [1, 2, 3, 4, 5];
    assert_eq!(marked.missed(&tokens), [0, 4]);
    drop(marked.put(&tokens));
    marked.cache.evict(usize::MAX);
    assert_eq!(marked.missed(&tokens), [4, 0]);
}

// Holds: NU4.
#[test]
fn a_run_that_begins_inside_a_block_is_known_again() {
    let marked = Marked::new(4, 64, Keys::Tokens);
    drop(marked.put(&[1, 1, 3, 3, 5, 5, 5, 5]));
    drop(marked.put(&[1, 1, 2, 2, 6, 6, 6, 6]));
    marked.cache.evict(usize::MAX);
    assert_eq!(marked.missed(&[1, 1, 2, 2]), [4, 0]);
}

/// Others have taken the places of its first marks: the evictor leaves one anew, by what the run
/// knows of its first block.
// Holds: NU4.
#[test]
fn runs_of_long_ago_are_known_again() {
    for keys in [Keys::Tokens, Keys::Bigrams] {
        for tokens in [[1, 1, 3, 3, 5], [1, 1, 2, 2, 6]] {
            let marked = Marked::new(4, 8, keys);
            let held = [marked.put(&[1, 1, 3, 3, 5]), marked.put(&tokens)];
            (0..2_000).for_each(|other| drop(marked.put(&[100 + other, 7, 7, 7, 7])));
            drop(held);
            marked.cache.evict(usize::MAX);
            assert_eq!(marked.missed(&tokens), [4, 0], "{keys:?} {tokens:?}");
        }
    }
}

// Holds: NU4.
#[test]
fn what_a_trim_took_of_a_branch_is_known_again() {
    let marked = Marked::new(4, 64, Keys::Tokens);
    let branch = [1, 1, 1, 1, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5];
    let held = marked.put(&[1, 1, 1, 1, 2, 2, 2, 2]);
    drop(marked.put(&branch));
    assert_eq!(marked.cache.evict(1), 1);
    assert_eq!(marked.missed(&branch), [4, 0]);
    drop(held);
}

// Holds: NU4.
#[test]
fn a_piece_that_was_appended_and_evicted_is_known_again() {
    let marked = Marked::new(4, 64, Keys::Tokens);
    let all: Vec<Token> = (0..24).map(|at| 1 + at / 4).collect();
    let mut lease = marked.put(&all[..4]);
    for end in [8, 12, 16, 20, 24] {
        let blocks = marked.session.reserve((end - lease.len_tokens()) / 4).expect("room");
        lease = marked.session.insert(&lease, &all[..end], blocks).expect("it fits").lease;
    }
    drop(lease);
    marked.cache.settle();
    for left in [20, 16, 12] {
        assert_eq!(marked.cache.evict(1), 1);
        assert_eq!(marked.missed(&all[..left + 4]), [4, 0], "{left} tokens are left");
    }
}
