//! What a cache holds at one moment, as runs that follow one another.

use radixkv::{BlockId, CacheEvent, EventBatch, NamespaceName, PrefixCache, Token};

/// No run has the block.
const NONE: u32 = u32::MAX;

/// What was cached at the moment of a snapshot.
#[derive(Debug)]
pub(crate) struct Cached<'a> {
    /// Namespaces, by number.
    pub(crate) namespaces: Vec<&'a NamespaceName>,
    /// Runs, each after the one that it follows.
    pub(crate) runs: Vec<CachedBlocks<'a>>,
}

/// Blocks that follow one another.
#[derive(Debug)]
pub(crate) struct CachedBlocks<'a> {
    pub(crate) namespace: usize,
    /// The run that has the block before the first of them.
    pub(crate) parent: Option<usize>,
    /// Tokens before them.
    pub(crate) start: usize,
    /// Theirs; of bigrams, the one behind them too.
    pub(crate) tokens: &'a [Token],
    pub(crate) blocks: &'a [BlockId],
    /// As [`radixkv::CachedRun`] has it.
    pub(crate) last_used: u64,
    pub(crate) uses: u64,
}

impl<'a> Cached<'a> {
    /// The stores of a snapshot in the namespaces that `keep` keeps.
    pub(crate) fn of(cache: &PrefixCache, snapshot: &'a EventBatch, keep: impl Fn(&NamespaceName) -> bool) -> Self {
        let mut cached = Self { namespaces: Vec::new(), runs: Vec::new() };
        let mut run_of = vec![NONE; cache.capacity_blocks()];
        let (mut last, mut is_kept) = (None, false);
        for event in snapshot.events() {
            let CacheEvent::Stored { namespace, parent, start, tokens, blocks, .. } = event else { continue };
            // The stores of a namespace come together.
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

    /// Asks when runs were used. What came or went since the snapshot is passed over.
    fn note_uses(&mut self, cache: &PrefixCache, run_of: &[u32]) {
        let Self { namespaces, runs } = self;
        for (number, name) in namespaces.iter().enumerate() {
            let parts: Vec<_> = name.parts().collect();
            cache.namespace(NamespaceName::new(&parts).with_keys(name.keys())).walk(|seen| {
                let first = seen.blocks.first();
                let run = first.and_then(|&block| runs.get_mut(run_of[block as usize] as usize));
                if let Some(run) = run.filter(|run| run.namespace == number && run.blocks.first() == first) {
                    (run.last_used, run.uses) = (seen.last_used, seen.uses);
                }
            });
        }
    }
}
