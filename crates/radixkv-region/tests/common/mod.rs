//! Blocks whose bytes follow from their tokens, so that a wrong byte is seen.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use radixkv_region::{Get, Key, Layout, Memory, Put, Region, Token};

/// Tokens of a block.
pub const BLOCK_SIZE: usize = 4;
/// Bytes of a block: no whole words.
pub const BLOCK_BYTES: usize = 1021;

/// The layout of the tests.
pub fn layout(capacity: usize) -> Layout {
    Layout::new(BLOCK_SIZE as u32, BLOCK_BYTES, capacity as u32).model("a model").dtype("bf16").shard("tp 0 of 1")
}

/// A region that only this process has.
pub fn region(capacity: usize) -> Region {
    let layout = layout(capacity);
    let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
    Region::format(memory, &layout).expect("formatted")
}

/// Blocks, each the first of its sequence.
#[derive(Debug, Clone)]
pub struct Blocks {
    keys: Vec<Key>,
    tokens: Vec<[Token; BLOCK_SIZE]>,
    contents: Vec<Vec<u8>>,
}

impl Blocks {
    pub fn new(blocks: usize) -> Self {
        let tokens: Vec<_> = (0..blocks as u32).map(|block| [block, !block, block.wrapping_mul(77), 5]).collect();
        let layout = layout(1);
        let keys = tokens.iter().map(|tokens| layout.chain(b"tests").next(tokens)).collect();
        Self { keys, contents: tokens.iter().map(content).collect(), tokens }
    }

    pub fn key(&self, block: usize) -> Key {
        self.keys[block]
    }

    pub fn tokens(&self, block: usize) -> &[Token] {
        &self.tokens[block]
    }

    pub fn content(&self, block: usize) -> &[u8] {
        &self.contents[block]
    }

    pub fn bytes(&self) -> usize {
        BLOCK_BYTES
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn put(&self, region: &Region, block: usize) -> Put {
        region.put(&self.keys[block], &self.tokens[block], &self.contents[block]).expect("room, and of its size")
    }

    /// Looks for a block; a hit has every byte right.
    pub fn get(&self, region: &Region, block: usize) -> Get {
        let mut bytes = vec![0; BLOCK_BYTES];
        let got = region.get_into(&self.keys[block], &self.tokens[block], &mut bytes).expect("of its size");
        assert!(!got.is_hit() || bytes == self.contents[block], "wrong bytes of block {block}");
        got
    }

    pub fn is_there(&self, region: &Region, block: usize) -> bool {
        region.contains(&self.keys[block], &self.tokens[block])
    }
}

/// Bytes that differ from those of any other block in every word.
fn content(tokens: &[Token; BLOCK_SIZE]) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::from(tokens[0]) << 32 | u64::from(tokens[2]));
    (0..BLOCK_BYTES).map(|_| random.u8(..)).collect()
}

/// A path of a test's own, in memory where there is such a folder. What is there goes with it.
#[derive(Debug)]
pub struct Place(PathBuf);

impl Place {
    pub fn new(test: &str) -> Self {
        let shm = Path::new("/dev/shm");
        let folder = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let place = Self(folder.join(format!("radixkv-region-{test}-{}", std::process::id())));
        let _ = std::fs::remove_file(&place.0);
        place
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
