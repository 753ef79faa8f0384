//! A simulated remote tier: it stores only the names of blocks, and is deterministic for a trace.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use radixkv_host::radixkv_tiers::{
    BlockKey, Completion, Get, Layout, LayoutError, Miss, NotGot, Outcome, Put, Refused, RemoteTier, Stats, Ticket,
};

/// The names of the blocks that the remote tier holds; it evicts the least recently used first.
///
/// The timing of the replay's threads determines whether two batches of one request arrive in one
/// step or in two. So that nothing else depends on it, blocks are evicted only between requests
/// ([`keep_to`](Self::keep_to)), and a put counts as a use only if its block has not yet been used
/// in the current request.
#[derive(Debug)]
pub(super) struct Names {
    layout: Layout,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: HashMap<BlockKey, u64>,
    /// The blocks, keyed by the time of their last use.
    order: BTreeMap<u64, BlockKey>,
    now: u64,
    /// The time when the current request began.
    began: u64,
    evicted: u64,
    tickets: u64,
    done: Vec<Completion<Vec<u8>>>,
    stats: Stats,
}

impl Names {
    /// A tier for blocks of `block_size` tokens, which have `block_bytes` bytes in the host tier
    /// above.
    pub(super) fn new(block_size: usize, block_bytes: usize) -> Result<Self, LayoutError> {
        Ok(Self { layout: Layout::new("replay", "none", block_size, block_bytes)?, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a request: evicts what exceeds the capacity of `blocks` blocks.
    pub(super) fn keep_to(&self, blocks: usize) {
        let mut state = self.lock();
        while state.held.len() > blocks {
            let Some((_, key)) = state.order.pop_first() else { break };
            state.held.remove(&key);
            state.evicted += 1;
        }
        state.began = state.now;
    }

    pub(super) fn blocks(&self) -> usize {
        self.lock().held.len()
    }

    pub(super) fn evicted_blocks(&self) -> u64 {
        self.lock().evicted
    }
}

impl State {
    fn uses(&mut self, key: BlockKey) {
        self.now += 1;
        if let Some(before) = self.held.insert(key, self.now) {
            self.order.remove(&before);
        }
        self.order.insert(self.now, key);
    }

    /// In a batch the deepest block is used first, so that it is evicted first.
    fn get(&mut self, gets: &[Get<Vec<u8>>]) {
        for get in gets.iter().rev() {
            if self.held.contains_key(&get.block.key()) {
                self.uses(get.block.key());
            }
        }
    }

    /// Batches from the host already have the deepest block first.
    fn put(&mut self, puts: &[Put<Vec<u8>>]) {
        for put in puts {
            if self.held.get(&put.block.key()).is_none_or(|&used| used <= self.began) {
                self.uses(put.block.key());
            }
        }
    }

    fn complete(&mut self, outcomes: impl Iterator<Item = Outcome<Vec<u8>>>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket::new(self.tickets);
        let completions = outcomes.enumerate().map(|(index, outcome)| Completion { ticket, index, outcome });
        self.done.extend(completions);
        ticket
    }
}

impl RemoteTier<Vec<u8>> for Names {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn contains(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        let mut state = self.lock();
        let has: Vec<bool> = keys.iter().map(|key| state.held.contains_key(key)).collect();
        Ok(state.complete(keys.into_iter().zip(has).map(|(key, has)| Outcome::Contained(key, Ok(has)))))
    }

    fn get_into(&self, gets: Vec<Get<Vec<u8>>>) -> Result<Ticket, Refused<Vec<Get<Vec<u8>>>>> {
        let mut state = self.lock();
        state.get(&gets);
        let has: Vec<bool> = gets.iter().map(|get| state.held.contains_key(&get.block.key())).collect();
        let got = |has| if has { Ok(()) } else { Err(NotGot::Miss(Miss::Absent)) };
        Ok(state.complete(gets.into_iter().zip(has).map(|(get, has)| Outcome::Got(get, got(has)))))
    }

    fn put_from(&self, puts: Vec<Put<Vec<u8>>>) -> Result<Ticket, Refused<Vec<Put<Vec<u8>>>>> {
        let mut state = self.lock();
        state.put(&puts);
        Ok(state.complete(puts.into_iter().map(|put| Outcome::Put(put, Ok(())))))
    }

    fn remove(&self, keys: Vec<BlockKey>) -> Result<Ticket, Refused<Vec<BlockKey>>> {
        let mut state = self.lock();
        for key in &keys {
            if let Some(used) = state.held.remove(key) {
                state.order.remove(&used);
            }
        }
        Ok(state.complete(keys.into_iter().map(|key| Outcome::Removed(key, Ok(())))))
    }

    fn poll(&self, done: &mut Vec<Completion<Vec<u8>>>, _wait: Duration) -> usize {
        let ready = mem::take(&mut self.lock().done);
        let count = ready.len();
        done.extend(ready);
        count
    }

    fn stats(&self) -> Stats {
        self.lock().stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> (Names, Vec<BlockKey>) {
        let names = Names::new(2, 1).expect("a layout");
        let keys = names.layout.blocks("", &[1, 2, 3, 4, 5, 6]).iter().map(|block| block.key()).collect();
        (names, keys)
    }

    fn put(names: &Names, numbers: &[usize]) {
        let blocks = names.layout.blocks("", &[1, 2, 3, 4, 5, 6]);
        let put = |&at: &usize| Put { block: blocks[at].clone(), buffer: vec![0], time_to_live: None };
        names.put_from(numbers.iter().map(put).collect()).expect("it takes all");
    }

    fn held(names: &Names, keys: &[BlockKey]) -> Vec<bool> {
        names.contains(keys.to_vec()).expect("it takes all");
        let mut done = Vec::new();
        names.poll(&mut done, Duration::ZERO);
        let has = |completion: Completion<Vec<u8>>| match completion.outcome {
            Outcome::Contained(_, has) => Some(has == Ok(true)),
            _ => None,
        };
        done.into_iter().filter_map(has).collect()
    }

    #[test]
    fn what_was_used_the_longest_time_ago_goes_when_a_request_ends() {
        let (names, keys) = names();
        put(&names, &[2, 1, 0]);
        assert_eq!(held(&names, &keys), [true; 3], "nothing goes meanwhile");
        names.keep_to(2);
        assert_eq!((held(&names, &keys), names.evicted_blocks()), (vec![true, true, false], 1));
        let blocks = names.layout.blocks("", &[1, 2, 3, 4]);
        names.get_into(vec![Get { block: blocks[1].clone(), buffer: vec![0] }]).expect("it takes all");
        names.keep_to(1);
        assert_eq!(held(&names, &keys), [false, true, false]);
    }

    #[test]
    fn of_one_request_the_first_put_counts() {
        let (names, keys) = names();
        put(&names, &[1]);
        put(&names, &[0]);
        put(&names, &[1]);
        names.keep_to(1);
        assert_eq!(held(&names, &keys), [true, false, false]);
    }
}
