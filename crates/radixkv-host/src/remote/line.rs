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
    /// The number of each block in the sequence, in their order, and its bytes.
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
    fetch_orders: VecDeque<FetchOrder>,
    put_orders: VecDeque<PutOrder>,
    /// Orders to fetch that were taken or wait.
    fetches: usize,
    /// Orders that were taken or wait.
    under_way: usize,
    /// Blocks that the thread has taken to put.
    begun_puts: usize,
    puts: Pool,
    gets: Pool,
    closed: bool,
}

/// What the thread is to do next.
pub(super) enum Next {
    Orders(Vec<Order>),
    /// Nothing came in the time.
    Nothing,
    Closed,
}

impl Line {
    pub(super) fn new(block_bytes: usize, most: usize) -> Self {
        let pool = || Pool::new(block_bytes, most);
        let (puts, gets) = (pool(), pool());
        let (fetch_orders, put_orders) = (VecDeque::new(), VecDeque::new());
        let state =
            State { fetch_orders, put_orders, fetches: 0, under_way: 0, begun_puts: 0, puts, gets, closed: false };
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

    /// Buffers for the first of these blocks to put, given by their numbers in their sequences, the smallest first: as many as may
    /// be on their way. A block that waits to be put and is deeper in its sequence makes room for one that is not so deep.
    pub(super) fn put_buffers(&self, numbers: &[usize]) -> Vec<Vec<u8>> {
        let mut state = self.lock();
        let taken = state.puts.take(numbers.len());
        let lacking = &numbers[taken.count()..];
        self.counters.full_puts.add(lacking.len());
        let displaced: Vec<_> = lacking.iter().map_while(|&number| state.displace_deeper(number)).collect();
        let is_idle = state.under_way == 0;
        drop(state);
        if is_idle {
            self.all_done.notify_all();
        }
        let mut buffers = taken.buffers();
        buffers.extend(displaced);
        buffers
    }

    pub(super) fn put(&self, order: PutOrder) {
        if !order.blocks.is_empty() {
            let mut state = self.lock();
            state.put_orders.push_back(order);
            self.came(state);
        }
    }

    /// Asks for blocks; false if so many orders are under way that it is not taken.
    pub(super) fn fetch(&self, order: FetchOrder) -> bool {
        let mut state = self.lock();
        let fits = state.fetches < self.most && !state.closed;
        if fits {
            state.fetches += 1;
            state.fetch_orders.push_back(order);
            self.came(state);
        } else {
            // What the order holds takes the tier's lock.
            drop(state);
            self.counters.full_fetches.add(1);
        }
        fits
    }

    fn came(&self, mut state: MutexGuard<'_, State>) {
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

    /// The orders that came; waits for one, up to `wait`. While half of all buffers are with the tiers, further blocks to put
    /// stay here, where those of a sequence's beginning displace others.
    pub(super) fn next(&self, wait: Duration) -> Next {
        let most = self.most.div_ceil(2);
        let mut state = self.lock();
        if !state.has_next(most) && !state.closed {
            state = self.order_came.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
        match () {
            () if state.closed => Next::Closed,
            () if state.has_next(most) => Next::Orders(state.take_next(most)),
            () => Next::Nothing,
        }
    }

    pub(super) fn ended_fetch(&self) {
        let mut state = self.lock();
        state.fetches -= 1;
        self.ended(state);
    }

    /// An order to put so many blocks has ended.
    pub(super) fn ended_put(&self, blocks: usize) {
        let mut state = self.lock();
        state.begun_puts -= blocks;
        self.ended(state);
    }

    fn ended(&self, mut state: MutexGuard<'_, State>) {
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

impl State {
    /// Whether there is an order that the thread may take, if it may have `most` blocks to put.
    fn has_next(&self, most: usize) -> bool {
        !self.fetch_orders.is_empty() || (self.begun_puts < most && !self.put_orders.is_empty())
    }

    fn take_next(&mut self, most: usize) -> Vec<Order> {
        let mut orders: Vec<_> = self.fetch_orders.drain(..).map(Order::Fetch).collect();
        while self.begun_puts < most {
            let Some(put) = self.put_orders.pop_front() else { break };
            self.begun_puts += put.blocks.len();
            orders.push(Order::Put(put));
        }
        orders
    }

    /// Takes the buffer of the deepest block that waits to be put, if that is deeper than block `number`.
    fn displace_deeper(&mut self, number: usize) -> Option<Vec<u8>> {
        let deepest = |order: &PutOrder| order.blocks.last().map_or(0, |&(number, _)| number);
        let (at, order) = self.put_orders.iter_mut().enumerate().max_by_key(|(_, order)| deepest(order))?;
        if deepest(order) <= number {
            return None;
        }
        let (_, buffer) = order.blocks.pop()?;
        if order.blocks.is_empty() {
            self.put_orders.remove(at);
            self.under_way -= 1;
        }
        Some(buffer)
    }
}
