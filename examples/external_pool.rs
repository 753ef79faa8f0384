//! 3. An engine with its own block allocator: it passes ids to the cache and takes evicted ids
//!    back.
//!
//! `cargo run --example external_pool`

use std::error::Error;

use radixkv::{PrefixCache, Token};

const BLOCK_SIZE: usize = 16;
const BLOCKS: usize = 96;
const REQUESTS: u32 = 200;

/// The engine's block allocator: a stack of free ids.
struct Allocator {
    free: Vec<u32>,
    /// Number of ids that were taken back from the cache.
    returned: usize,
}

impl Allocator {
    /// Allocates `n` ids, and evicts the missing ones from the cache; `None` if these are too few.
    fn allocate(&mut self, cache: &PrefixCache, n: usize) -> Option<Vec<u32>> {
        if self.free.len() < n {
            cache.evict(n - self.free.len());
            self.returned += cache.external().expect("an external pool").take_evicted(&mut self.free);
        }
        let left = self.free.len().checked_sub(n)?;
        Some(self.free.split_off(left))
    }
}

/// One of four documents of 200 tokens, and a question of 40.
fn prompt(request: u32) -> Vec<Token> {
    let (document, question) = (request * 7 % 4, request % 31);
    (0..200).map(|i| document << 16 | i).chain((0..40).map(|i| (100 + question) << 16 | i)).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let cache = PrefixCache::builder(BLOCK_SIZE, BLOCKS).external().build()?;
    let session = cache.session();
    let space = cache.default_namespace();
    let mut allocator = Allocator { free: (0..BLOCKS as u32).collect(), returned: 0 };
    let (mut tokens, mut cached) = (0, 0);
    for request in 0..REQUESTS {
        let prompt = prompt(request);
        let hit = session.match_prefix(&space, &prompt[..prompt.len() - 1]);
        let ids = allocator.allocate(&cache, prompt.len() / BLOCK_SIZE - hit.blocks().len()).ok_or("too few blocks")?;
        // ... compute the missing blocks into `ids`, and decode ...
        let inserted =
            session.insert(hit.lease(), &prompt, cache.external().expect("an external pool").adopt(&ids)?)?;
        // Blocks whose tokens another request had cached meanwhile return to the engine.
        allocator.free.extend(inserted.duplicates.into_blocks());
        tokens += prompt.len();
        cached += hit.len_tokens();
    }
    cache.settle();
    let stats = cache.stats();
    println!("{tokens} prompt tokens, {cached} of them cached");
    println!("{} ids with the engine, {} cached", allocator.free.len(), stats.evictable_blocks);
    println!("{} ids evicted, {} of them taken back", stats.evicted_blocks, allocator.returned);
    Ok(())
}
