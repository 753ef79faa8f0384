//! The content of a cache at one moment, as a tree of runs.
//!
//! [`Save`](crate::Save) takes it from a snapshot, and looks up the uses of the runs in the cache.

use radixkv::{BlockId, CacheEvent, EventBatch, NamespaceName, PrefixCache, Token};

/// Marks a block that is in no run.
const NONE: u32 = u32::MAX;

/// The content of a cache at the moment of a snapshot.
#[derive(Debug)]
pub(crate) struct Cached<'a> {
    /// The namespaces; their indices are their numbers.
    pub(crate) namespaces: Vec<&'a NamespaceName>,
    /// The runs, each after its parent.
    pub(crate) runs: Vec<CachedBlocks<'a>>,
}

/// A run: consecutive blocks of one sequence.
#[derive(Debug)]
pub(crate) struct CachedBlocks<'a> {
    pub(crate) namespace: usize,
    /// The run with the block before the first one.
    pub(crate) parent: Option<usize>,
    /// Number of tokens before the first block.
    pub(crate) start: usize,
    /// The tokens of the blocks; for bigrams, also the one after them.
    pub(crate) tokens: &'a [Token],
    pub(crate) blocks: &'a [BlockId],
    /// As in [`radixkv::CachedRun`].
    pub(crate) last_used: u64,
    pub(crate) uses: u64,
}

impl<'a> Cached<'a> {
    /// Collects the `Stored` events of a snapshot whose namespaces `keep` accepts.
    pub(crate) fn of(cache: &PrefixCache, snapshot: &'a EventBatch, keep: impl Fn(&NamespaceName) -> bool) -> Self {
        let mut cached = Self { namespaces: Vec::new(), runs: Vec::new() };
        let mut run_of = vec![NONE; cache.capacity_blocks()];
        let (mut last, mut is_kept) = (None, false);
        for event in snapshot.events() {
            let CacheEvent::Stored { namespace, parent, start, tokens, blocks, .. } = event else { continue };
            // The events of one namespace are adjacent.
            if last.replace(namespace) != Some(namespace) {
                is_kept = keep(namespace);
                cached.namespaces.extend(is_kept.then_some(namespace));
            }
            let parent = parent.map(|block| run_of[block as usize]).filter(|&run| run != NONE);
            if is_kept && (parent.is_some() || start == 0) {
                blocks.iter().for_each(|&block| run_of[block as usize] = cached.runs.len() as u32);
                let (namespace, parent) = (cached.namespaces.len() - 1, parent.map(|run| run as usize));
                let (last_used, uses) = (0, 1);
                cached.runs.push(CachedBlocks { namespace, parent, start, tokens, blocks, last_used, uses });
            }
        }
        cached.note_uses(cache, &run_of);
        cached
    }

    /// Looks up the last use and the number of uses of runs. Skips runs that were inserted or
    /// removed since the snapshot.
    fn note_uses(&mut self, cache: &PrefixCache, run_of: &[u32]) {
        let Self { namespaces, runs } = self;
        for (namespace, name) in namespaces.iter().enumerate() {
            let parts: Vec<_> = name.parts().collect();
            cache.namespace(NamespaceName::new(&parts).with_keys(name.keys())).walk(|seen| {
                let first = seen.blocks.first();
                // The cache may have grown since: new blocks are beyond `run_of`.
                let number = first.and_then(|&block| run_of.get(block as usize));
                let run = number.and_then(|&run| runs.get_mut(run as usize));
                if let Some(run) = run.filter(|run| run.namespace == namespace && run.blocks.first() == first) {
                    (run.last_used, run.uses) = (seen.last_used, seen.uses);
                }
            });
        }
    }
}
