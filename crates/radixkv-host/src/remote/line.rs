//! The queues of orders from the host tier's callers to the remote tiers' thread, bounded by the
//! buffers that orders need. `worker` takes the orders.

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

/// An order to store blocks of one sequence.
#[derive(Debug)]
pub(crate) struct PutOrder {
    pub(crate) name: RemoteName,
    /// The sequence up to the last of the blocks.
    pub(crate) tokens: Vec<Token>,
    /// The blocks in the order of the sequence: the number of each, and its bytes.
    pub(crate) blocks: Vec<(usize, Vec<u8>)>,
    /// When the blocks expire; `None`: never.
    pub(crate) expires: Option<Instant>,
}

/// An order to copy blocks of one sequence to the host.
#[derive(Debug)]
pub(crate) struct FetchOrder {
    pub(crate) name: RemoteName,
    pub(crate) namespace: NamespaceName,
    /// The sequence, whole blocks only.
    pub(crate) tokens: Vec<Token>,
    /// The number of the first requested block.
    pub(crate) first: usize,
    /// An offload that began with the request: blocks that were cleared since are not stored.
    pub(crate) offload: Offload,
    pub(crate) progress: Arc<Progress>,
}

#[derive(Debug)]
pub(super) enum Order {
    Put(PutOrder),
    Fetch(FetchOrder),
}

/// Shared by the threads that use the host tier and the thread that uses the remote tiers.
#[derive(Debug)]
pub(super) struct Line {
    state: Mutex<State>,
    /// Notified when the thread has to wake up.
    order_came: Condvar,
    /// Notified when no order is in progress.
    all_done: Condvar,
    most: usize,
    pub(super) counters: Counters,
}

#[derive(Debug)]
struct State {
    fetch_orders: VecDeque<FetchOrder>,
    put_orders: VecDeque<PutOrder>,
    /// Fetch orders that are queued or in progress.
    fetches: usize,
    /// Orders that are queued or in progress.
    under_way: usize,
    /// Blocks of the put orders that the thread has taken.
    begun_puts: usize,
    puts: Pool,
    gets: Pool,
    closed: bool,
}

/// The thread's next task.
pub(super) enum Next {
    Orders(Vec<Order>),
    /// No order arrived in time.
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
        // No code of other packages runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- threads that use the host tier

    /// Buffers for the first of these blocks to put, as many as the bound allows. `numbers` are the
    /// blocks' numbers in their sequences, smallest first. If no buffer is free, a queued block
    /// that is deeper in its sequence is displaced.
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

    /// Queues a fetch; false if the maximum number of fetches is in progress.
    pub(super) fn fetch(&self, order: FetchOrder) -> bool {
        let mut state = self.lock();
        let fits = state.fetches < self.most && !state.closed;
        if fits {
            state.fetches += 1;
            state.fetch_orders.push_back(order);
            self.came(state);
        } else {
            // Dropping the order takes the host tier's lock.
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

    /// Waits up to `wait` until no order is in progress. Returns whether none is.
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

    // --- the remote tiers' thread

    /// Takes the queued orders; waits for one, up to `wait`. While half of the buffers are with the
    /// tiers, further blocks to put stay queued, where blocks nearer the beginning of a sequence
    /// can displace them.
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

    /// Ends an order to put `blocks` blocks.
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
    /// Whether the thread may take an order, if it may have at most `most` blocks to put.
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

    /// Removes the deepest block that is queued to be put, if it is deeper than block `number`, and
    /// returns its buffer.
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
