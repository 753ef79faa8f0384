//! A cache with memory whose bytes say which tokens they are of.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use radixkv::{BlockId, BlockRequest, Keys, Namespace, NamespaceName, PrefixCache, Session, Token};
use radixkv_save::{BlockBytes, Layout};

pub(crate) const BYTES: usize = 48;

/// Blocks that threads write and read; a test that does both at once to one block finds wrong
/// bytes.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Vec<Mutex<[u8; BYTES]>>>);

impl Memory {
    pub(crate) fn new(blocks: usize) -> Self {
        Self(Arc::new((0..blocks).map(|_| Mutex::new([0xA5; BYTES])).collect()))
    }

    pub(crate) fn get(&self, block: BlockId) -> [u8; BYTES] {
        *self.0[block as usize].lock().unwrap()
    }

    pub(crate) fn set(&self, block: BlockId, bytes: [u8; BYTES]) {
        *self.0[block as usize].lock().unwrap() = bytes;
    }
}

impl BlockBytes for Memory {
    fn block_bytes(&self) -> usize {
        BYTES
    }

    fn read(&mut self, block: BlockId, bytes: &mut [u8]) -> bool {
        bytes.copy_from_slice(&self.get(block));
        true
    }

    fn write(&mut self, block: BlockId, bytes: &[u8]) -> bool {
        self.set(block, bytes.try_into().unwrap());
        true
    }
}

/// What a block holds whose sequence has these tokens up to its end.
pub(crate) fn bytes_of(name: &NamespaceName, tokens: &[Token]) -> [u8; BYTES] {
    let text = format!("{:?}", name);
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let mut hash = text.bytes().fold(1, |hash, byte| mix(hash, byte.into()));
    hash = tokens.iter().fold(hash, |hash, &token| mix(hash, token.into()));
    let mut bytes = [0; BYTES];
    for chunk in bytes.chunks_mut(8) {
        hash = mix(hash, 7);
        chunk.copy_from_slice(&hash.to_le_bytes());
    }
    bytes
}

pub(crate) fn layout(block_size: usize) -> Layout {
    Layout::new("model", "bf16", block_size, BYTES).unwrap()
}

fn extra(space: &Namespace) -> usize {
    usize::from(space.keys() == Keys::Bigrams)
}

/// Serves a request: what is missing is reserved, filled and inserted. False if no blocks were
/// left.
pub(crate) fn serve(
    cache: &PrefixCache,
    session: &Session,
    space: &Namespace,
    memory: &Memory,
    tokens: &[Token],
) -> bool {
    let (size, extra, name) = (cache.block_size(), extra(space), space.name());
    let whole = tokens.len().saturating_sub(extra) / size;
    let hit = session.match_prefix(space, tokens);
    let cached = hit.blocks().len();
    for (index, &block) in hit.blocks().iter().enumerate() {
        assert!(memory.get(block) == bytes_of(&name, &tokens[..(index + 1) * size + extra]), "wrong bytes in a hit");
    }
    let Ok(blocks) = session.reserve(BlockRequest::new(whole - cached).paid_by(space)) else { return false };
    for (index, &block) in blocks.blocks().iter().enumerate() {
        memory.set(block, bytes_of(&name, &tokens[..(cached + index + 1) * size + extra]));
    }
    drop(session.insert(hit.lease(), tokens, blocks).unwrap());
    true
}

/// Cached blocks by namespace, each by the tokens of its sequence up to its end.
pub(crate) type Contents = BTreeMap<NamespaceName, BTreeSet<Vec<Token>>>;

/// The blocks that are cached in namespaces, with all bytes compared.
pub(crate) fn contents(cache: &PrefixCache, memory: Option<&Memory>, names: &[NamespaceName]) -> Contents {
    let mut all = BTreeMap::new();
    for name in names {
        let parts: Vec<_> = name.parts().collect();
        let (space, size) = (cache.namespace(NamespaceName::new(&parts).with_keys(name.keys())), cache.block_size());
        let (mut sequences, mut blocks) = (Vec::<Vec<Token>>::new(), BTreeSet::new());
        space.walk(|run| {
            let mut sequence = run.parent.map_or(Vec::new(), |parent| sequences[parent][..run.start].to_vec());
            sequence.extend(run.tokens);
            let end = sequence.len().saturating_sub(extra(&space)) / size;
            for (index, &block) in run.blocks.iter().enumerate() {
                let tokens = &sequence[..(end - run.blocks.len() + index + 1) * size + extra(&space)];
                if let Some(memory) = memory {
                    assert!(memory.get(block) == bytes_of(name, tokens), "wrong bytes");
                }
                assert!(blocks.insert(tokens.to_vec()), "a block is cached once");
            }
            sequences.push(sequence);
        });
        if !blocks.is_empty() {
            all.insert(name.clone(), blocks);
        }
    }
    all
}

/// How many blocks these are.
pub(crate) fn count(contents: &Contents) -> usize {
    contents.values().map(BTreeSet::len).sum()
}

/// The names of some namespaces, one of them of pairs.
pub(crate) fn names(cache: &PrefixCache) -> Vec<NamespaceName> {
    let named = [&[][..], &["a"], &["b"], &["a", "b"], &["ab", ""]].map(|parts: &[&str]| cache.namespace(parts).name());
    let pairs = [cache.namespace(NamespaceName::new(&["a"]).with_keys(Keys::Bigrams)).name()];
    named.into_iter().chain(pairs).collect()
}

/// Prompts that share beginnings.
pub(crate) fn prompt(random: &mut fastrand::Rng, longest: usize) -> Vec<Token> {
    let (kind, length) = (random.u32(..4), random.usize(1..=longest));
    let branch = random.usize(..length);
    (0..length).map(|at| if at < branch { kind } else { random.u32(..3) }).collect()
}

/// Serves random requests in random namespaces.
pub(crate) fn load(cache: &PrefixCache, memory: &Memory, random: &mut fastrand::Rng, requests: usize, longest: usize) {
    let session = cache.session();
    let spaces: Vec<_> = names(cache)
        .iter()
        .map(|name| cache.namespace(NamespaceName::new(&name.parts().collect::<Vec<_>>()).with_keys(name.keys())))
        .collect();
    for _ in 0..requests {
        let (space, tokens) = (random.choice(&spaces).unwrap(), prompt(random, longest));
        serve(cache, &session, space, memory, &tokens);
    }
}

/// A file system in memory, or nothing where this process may not mount one.
pub(crate) struct Mounted(tempfile::TempDir);

impl Mounted {
    pub(crate) fn new(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        if !mounted {
            println!("skipped: no tmpfs can be mounted here");
        }
        mounted.then_some(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}
