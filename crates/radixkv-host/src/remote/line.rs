//! What the threads that use the tier ask the remote tiers' thread for: orders, bounded by the buffers that they need.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use radixkv::{NamespaceName, Token};

use super::{
    name::RemoteName,
    pool::Pool,
    progress::{FOREVER, Progress},
    stats::{Counters, RemoteStats},
};
use crate::offload::Offload;

/// Blocks of one sequence to store.
#[derive(Debug)]
pub(crate) struct PutOrder {
    pub(crate) name: RemoteName,
    /// The sequence up to the last of the blocks.
    pub(crate) tokens: Vec<Token>,
    /// The number of each block in the sequence, and its bytes.
    pub(crate) blocks: Vec<(usize, Vec<u8>)>,
    /// How long they may be found.
    pub(crate) time_to_live: Option<Duration>,
}

/// Blocks of one sequence to bring to the host.
#[derive(Debug)]
pub(crate) struct FetchOrder {
    pub(crate) name: RemoteName,
    pub(crate) namespace: NamespaceName,
    /// The sequence, in whole blocks.
    pub(crate) tokens: Vec<Token>,
    /// The number of the first block that is asked for.
    pub(crate) first: usize,
    /// Begun when it was asked for: what a clear since then makes wrong does not come in.
    pub(crate) offload: Offload,
    pub(crate) progress: Arc<Progress>,
}

#[derive(Debug)]
pub(super) enum Order {
    Put(PutOrder),
    Fetch(FetchOrder),
}

/// Between the threads that use the tier and the one that uses the remote tiers.
#[derive(Debug)]
pub(super) struct Line {
    state: Mutex<State>,
    /// Rung for the thread.
    order_came: Condvar,
    /// Rung when nothing is under way.
    all_done: Condvar,
    most: usize,
    pub(super) counters: Counters,
}

#[derive(Debug)]
struct State {
    orders: VecDeque<Order>,
    /// Orders to fetch that were taken or wait.
    fetches: usize,
    /// Orders that the thread has taken and not ended.
    under_way: usize,
    puts: Pool,
    gets: Pool,
    closed: bool,
}

/// What the thread is to do next.
pub(super) enum Next {
    Orders(VecDeque<Order>),
    /// Nothing came in the time.
    Nothing,
    Closed,
}

impl Line {
    pub(super) fn new(block_bytes: usize, most: usize) -> Self {
        let pool = || Pool::new(block_bytes, most);
        let (puts, gets) = (pool(), pool());
        let state = State { orders: VecDeque::new(), fetches: 0, under_way: 0, puts, gets, closed: false };
        Self {
            state: Mutex::new(state),
            order_came: Condvar::new(),
            all_done: Condvar::new(),
            most,
            counters: Counters::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing of another package runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- threads that use the tier

    /// Buffers for blocks to put, as many as there are.
    pub(super) fn put_buffers(&self, blocks: usize) -> Vec<Vec<u8>> {
        let taken = self.lock().puts.take(blocks);
        let buffers = taken.buffers();
        self.counters.full_puts.add(blocks - buffers.len());
        buffers
    }

    pub(super) fn put(&self, order: PutOrder) {
        if !order.blocks.is_empty() {
            self.push(self.lock(), Order::Put(order));
        }
    }

    /// Asks for blocks; false if so many orders are under way that it is not taken.
    pub(super) fn fetch(&self, order: FetchOrder) -> bool {
        let mut state = self.lock();
        let fits = state.fetches < self.most && !state.closed;
        if fits {
            state.fetches += 1;
            self.push(state, Order::Fetch(order));
        } else {
            // What the order holds takes the tier's lock.
            drop(state);
            self.counters.full_fetches.add(1);
        }
        fits
    }

    fn push(&self, mut state: MutexGuard<'_, State>, order: Order) {
        state.orders.push_back(order);
        state.under_way += 1;
        drop(state);
        self.order_came.notify_one();
    }

    /// Waits until nothing is under way; whether that is so.
    pub(super) fn settle(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait.min(FOREVER);
        let mut state = self.lock();
        while state.under_way > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.all_done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    pub(super) fn stats(&self) -> RemoteStats {
        let state = self.lock();
        self.counters.read(state.puts.taken() as u64, state.gets.taken() as u64)
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.order_came.notify_all();
    }

    // --- the thread

    /// The orders that came; waits for one, up to `wait`.
    pub(super) fn next(&self, wait: Duration) -> Next {
        let mut state = self.lock();
        if state.orders.is_empty() && !state.closed {
            state = self.order_came.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        match () {
            () if state.closed => Next::Closed,
            () if state.orders.is_empty() => Next::Nothing,
            () => Next::Orders(std::mem::take(&mut state.orders)),
        }
    }

    /// An order has ended.
    pub(super) fn ended(&self, is_fetch: bool) {
        let mut state = self.lock();
        state.fetches -= usize::from(is_fetch);
        state.under_way -= 1;
        if state.under_way == 0 {
            self.all_done.notify_all();
        }
    }

    pub(super) fn get_buffers(&self, blocks: usize) -> Vec<Vec<u8>> {
        let taken = self.lock().gets.take(blocks);
        taken.buffers()
    }

    pub(super) fn give_put(&self, buffer: Vec<u8>) {
        let left = self.lock().puts.give(buffer);
        drop(left);
    }

    pub(super) fn give_get(&self, buffer: Vec<u8>) {
        let left = self.lock().gets.give(buffer);
        drop(left);
    }

    pub(super) fn lose_puts(&self, buffers: usize) {
        self.lock().puts.lose(buffers);
    }

    pub(super) fn lose_gets(&self, buffers: usize) {
        self.lock().gets.lose(buffers);
    }
}
