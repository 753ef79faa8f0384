//! Puts of several batches that are in progress at once: a tier of files keeps their order.

mod common;

use std::{
    path::Path,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, ThreadId},
};

use common::{PATIENCE, bytes_of, layout};
use radixkv_tiers::{Block, FileTier, Get, Layout, NotGot, Outcome, Put, RemoteTier, Tier};

/// A buffer; the tier's thread that reads it may have to wait.
struct Gated {
    bytes: Vec<u8>,
    /// The caller's thread, which does not wait; the channel on which the tier's thread reports that
    /// it reads, and the one on which it then waits.
    gate: Option<(ThreadId, Sender<()>, Mutex<Receiver<()>>)>,
}

impl AsRef<[u8]> for Gated {
    fn as_ref(&self) -> &[u8] {
        if let Some((caller, reached, open)) = &self.gate {
            if thread::current().id() != *caller {
                reached.send(()).unwrap();
                // Open at the latest when the test has dropped the sender.
                let _ = open.lock().unwrap().recv();
            }
        }
        &self.bytes
    }
}

impl AsMut<[u8]> for Gated {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// A tier with two threads, and what tests do with it.
struct TwoThreads {
    tier: Tier<Gated>,
    layout: Layout,
}

impl TwoThreads {
    fn open(folder: &Path, files: u64) -> Self {
        let layout = layout(16, 64);
        let tier = FileTier::new(folder, layout.clone(), files * 4096).threads(2).open().unwrap();
        Self { tier, layout }
    }

    fn submit(&self, block: &Block, gate: Option<(ThreadId, Sender<()>, Mutex<Receiver<()>>)>) {
        let buffer = Gated { bytes: bytes_of(block.key(), self.layout.block_bytes()), gate };
        let put = Put { block: block.clone(), buffer, time_to_live: None };
        self.tier.put_from(vec![put]).map_err(|refused| refused.reason).unwrap();
    }

    /// Puts a block in a batch of its own, up to the moment when a thread has taken it. Dropping
    /// the returned sender lets that thread go on.
    fn begin(&self, block: &Block) -> Sender<()> {
        let ((reach, reached), (open, opened)) = (channel(), channel());
        self.submit(block, Some((thread::current().id(), reach, Mutex::new(opened))));
        reached.recv_timeout(PATIENCE).unwrap();
        open
    }

    /// The result of one item.
    fn next(&self) -> Outcome<Gated> {
        let mut done = Vec::new();
        assert_eq!(self.tier.poll(&mut done, PATIENCE), 1);
        done.remove(0).outcome
    }

    fn end(&self) {
        assert!(matches!(self.next(), Outcome::Put(_, Ok(()))));
    }

    /// Puts blocks, each in a batch of its own.
    fn put(&self, blocks: &[Block]) {
        for block in blocks {
            self.submit(block, None);
            self.end();
        }
    }

    fn get(&self, block: &Block) -> Result<(), NotGot> {
        let buffer = Gated { bytes: vec![0; self.layout.block_bytes()], gate: None };
        self.tier.get_into(vec![Get { block: block.clone(), buffer }]).map_err(|refused| refused.reason).unwrap();
        match self.next() {
            Outcome::Got(_, got) => got,
            _ => panic!("no result of a get"),
        }
    }

    fn contains(&self, block: &Block) -> bool {
        self.tier.contains(vec![block.key()]).unwrap();
        matches!(self.next(), Outcome::Contained(_, Ok(true)))
    }

    fn sequence(&self, name: &str, blocks: u32) -> Vec<Block> {
        self.layout.blocks(name, &(0..16 * blocks).collect::<Vec<_>>())
    }

    /// Blocks of sequences of one block each.
    fn others<const COUNT: usize>(&self) -> [Block; COUNT] {
        let mut names = 0..;
        [(); COUNT].map(|()| self.sequence(&names.next().unwrap_or(0).to_string(), 1).remove(0))
    }
}

// Holds: HT21.
#[test]
fn a_block_that_is_being_put_again_is_not_missing_to_a_later_batch() {
    let folder = tempfile::tempdir().unwrap();
    let tier = TwoThreads::open(folder.path(), 2);
    let all = tier.sequence("n", 2);
    tier.put(&all);
    // Both are evicted.
    tier.put(&tier.others::<2>());
    assert!(!all.iter().any(|block| tier.contains(block)));
    let first = tier.begin(&all[0]);
    tier.put(&all[1..]);
    drop(first);
    tier.end();
    assert!(all.iter().all(|block| tier.contains(block)));
}

// Holds: HT21.
#[test]
fn a_block_that_follows_one_that_is_being_put_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let tier = TwoThreads::open(folder.path(), 2);
    let all = tier.sequence("n", 2);
    let first = tier.begin(&all[0]);
    tier.put(&tier.others::<2>());
    tier.put(&all[1..]);
    drop(first);
    tier.end();
    assert!(all.iter().all(|block| tier.contains(block)));
}

// Holds: RT5.
#[test]
fn an_earlier_put_that_ends_later_keeps_the_uses_since_it_began() {
    let folder = tempfile::tempdir().unwrap();
    let tier = TwoThreads::open(folder.path(), 3);
    let [read, unread, third, fourth] = tier.others();
    tier.put(std::slice::from_ref(&read));
    let again = tier.begin(&read);
    tier.put(std::slice::from_ref(&unread));
    assert_eq!(tier.get(&read), Ok(()));
    drop(again);
    tier.end();
    tier.put(&[third, fourth]);
    assert!(tier.contains(&read) && !tier.contains(&unread));
}

/// A put that fails before it is written: the block counts as missing again.
#[test]
fn a_block_whose_put_failed_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let tier = TwoThreads::open(folder.path(), 2);
    let all = tier.sequence("n", 2);
    tier.put(&all);
    let others = tier.others::<2>();
    tier.put(&others);
    // The receiver is dropped: reading this buffer panics.
    let (reach, (_open, opened)) = (channel().0, channel());
    tier.submit(&all[0], Some((thread::current().id(), reach, Mutex::new(opened))));
    assert!(matches!(tier.next(), Outcome::Put(_, Err(radixkv_tiers::Failure::Buffer))));
    tier.put(&all[1..]);
    assert!(!tier.contains(&all[1]));
    assert!(others.iter().all(|block| tier.contains(block)));
}
