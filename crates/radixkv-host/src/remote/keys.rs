//! The keys of sequences in remote tiers, with a cache of the last sequence's keys.

use radixkv::{Token, key::common_prefix};
use radixkv_tiers::{Block, KeyChain, Layout};

use super::name::RemoteName;

/// Computes keys, and caches those of the last sequence. The keys of its prefixes need no hashing;
/// those of a longer sequence only need the rest hashed.
#[derive(Debug)]
pub(super) struct Keys {
    layout: Layout,
    last: Option<Sequence>,
}

#[derive(Debug)]
struct Sequence {
    name: RemoteName,
    tokens: Vec<Token>,
    blocks: Vec<Block>,
    chain: KeyChain,
}

impl Keys {
    pub(super) fn new(layout: Layout) -> Self {
        Self { layout, last: None }
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        self.layout.block_bytes()
    }

    /// The keys of the whole blocks of a sequence.
    pub(super) fn blocks(&mut self, name: &RemoteName, tokens: &[Token]) -> &[Block] {
        let size = self.layout.block_size();
        let whole = &tokens[..tokens.len() / size * size];
        let shared = |last: &Sequence| if last.name == *name { common_prefix(&last.tokens, whole) } else { 0 };
        let last = match self.last.take().map(|last| (shared(&last), last)) {
            Some((shared, last)) if shared == whole.len() || shared == last.tokens.len() => last,
            _ => {
                let chain = self.layout.chain(name.bytes());
                Sequence { name: name.clone(), tokens: Vec::new(), blocks: Vec::new(), chain }
            }
        };
        let last = self.last.insert(last);
        if last.tokens.len() < whole.len() {
            let more = &whole[last.tokens.len()..];
            last.blocks.extend(last.chain.extend(more));
            last.tokens.extend_from_slice(more);
        }
        &last.blocks[..whole.len() / size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Generations;

    #[test]
    fn keys_are_those_of_the_layout_whatever_was_asked_for_before() {
        let cache = radixkv::PrefixCache::builder(1, 1).build().expect("a cache");
        let layout = Layout::new("m", "bf16", 2, 8).expect("a layout");
        let mut generations = Generations::new();
        let names = ["one", "two"].map(|name| generations.name(&cache.namespace(&[name]).name()));
        let (mut keys, mut rng) = (Keys::new(layout.clone()), fastrand::Rng::with_seed(3));
        for _ in 0..300 {
            let name = rng.choice(&names).expect("two");
            let tokens: Vec<Token> = (0..rng.u32(0..12)).map(|at| at + u32::from(rng.u32(0..9) == 0)).collect();
            assert_eq!(keys.blocks(name, &tokens), layout.blocks(name.bytes(), &tokens));
        }
    }
}
