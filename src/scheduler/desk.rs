//! What the schedulers of one queue share: the waiting requests, where each request is, and the pending claims.
//!
//! One lock, held for as long as it takes to find, put or take a request; who looks at all of them copies the list and
//! compares without it.
//!
//! # Invariants
//!
//! - **D1** A request is in exactly one place: ready, waiting for a claim, or served by one scheduler.
//! - **D2** A request that is not served holds no block, no lease and no claim.

use std::collections::{BTreeMap, HashMap};

use super::batch::SequenceId;
use super::claims::{Asked, Board};
use super::prompts::Prompts;
use super::queue::{Aborted, Order, QueueConfig};
use super::request::{Request, Ticket, Waiting};
use crate::cache::PrefixCache;
use crate::sync::{Arc, Changes, Mutex};

/// How many have waited too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// The order is unfair to some.
    Few,
    /// Too much is asked for: whoever is served, others wait.
    Many,
}

pub(super) struct Desk {
    pub(super) cache: PrefixCache,
    pub(super) config: QueueConfig,
    /// Counts whatever may let an idle scheduler find something to do.
    pub(super) changes: Changes,
    state: Mutex<State>,
}

/// Where a request is.
#[derive(Debug)]
enum Place {
    Ready(Arc<Waiting>),
    /// For a claim.
    Waits(Arc<Waiting>),
    Served,
    /// Its scheduler is to drop it.
    Ending,
}

#[derive(Debug, Default)]
struct State {
    /// Steps that schedulers have made.
    steps: u64,
    /// The step from which on one that has waited too long goes first.
    next_due: u64,
    /// The next request's name.
    next: u64,
    /// Changes of `ready`.
    version: u64,
    /// By name, which is the order of arrival.
    ready: BTreeMap<u64, Arc<Waiting>>,
    /// The same by tokens, for the order that asks for it.
    by_prompt: Option<Prompts>,
    board: Board,
    places: HashMap<SequenceId, Place>,
    /// Places that are `Served` or `Ending`.
    served: usize,
    ending: Vec<SequenceId>,
}

impl State {
    fn make_ready(&mut self, waiting: Arc<Waiting>) {
        let id = waiting.ticket.id;
        if let Some(by_prompt) = &mut self.by_prompt {
            by_prompt.insert(id.0, &waiting, waiting.tokens.len());
        }
        self.ready.insert(id.0, Arc::clone(&waiting));
        self.places.insert(id, Place::Ready(waiting));
        self.version += 1;
    }

    /// Takes a request out of those that are ready, into nobody's hands.
    fn take_out(&mut self, name: u64) -> Option<Arc<Waiting>> {
        let waiting = self.ready.remove(&name)?;
        if let Some(by_prompt) = &mut self.by_prompt {
            by_prompt.remove(name);
        }
        self.version += 1;
        Some(waiting)
    }

    /// The same, into a scheduler's.
    fn serve(&mut self, name: u64) -> Option<Arc<Waiting>> {
        let waiting = self.take_out(name)?;
        self.places.insert(waiting.ticket.id, Place::Served);
        self.served += 1;
        Some(waiting)
    }

    /// Takes a request out of its scheduler's hands; false if it was to end, and now is gone.
    fn leave(&mut self, id: SequenceId) -> bool {
        self.served -= 1;
        let ends = matches!(self.places.remove(&id), Some(Place::Ending));
        if ends {
            self.ending.retain(|&other| other != id);
        }
        !ends
    }

    /// A request that waits for a claim leaves its scheduler's hands, and the board too if it is to end.
    fn stand_aside(&mut self, waiting: &Arc<Waiting>) {
        let id = waiting.ticket.id;
        if self.leave(id) {
            self.places.insert(id, Place::Waits(Arc::clone(waiting)));
        } else {
            self.board.forget(waiting);
        }
    }

    fn wake(&mut self, woken: Vec<Arc<Waiting>>) {
        woken.into_iter().for_each(|waiting| self.make_ready(waiting));
    }
}

impl Desk {
    pub(super) fn new(cache: &PrefixCache, config: QueueConfig) -> Self {
        let by_prompt = (config.order == Order::DfsWeight).then(Prompts::default);
        let state = Mutex::new(State { by_prompt, ..State::default() });
        Self { cache: cache.clone(), config, changes: Changes::new(), state }
    }

    pub(super) fn take_in(&self, request: Request) -> SequenceId {
        let mut state = self.state.lock();
        let id = SequenceId(state.next);
        state.next += 1;
        let ticket = Ticket {
            id,
            prompt_len: request.tokens.len(),
            limit: request.limit(),
            namespace: request.namespace,
            priority: request.priority,
            publish: request.publish,
            arrived: state.steps,
            cached: None,
            computed: 0,
        };
        state.make_ready(Arc::new(Waiting { ticket, tokens: request.tokens }));
        drop(state);
        self.changes.announce();
        id
    }

    pub(super) fn abort(&self, id: SequenceId) -> Aborted {
        let mut state = self.state.lock();
        let waiting = match state.places.remove(&id) {
            None => return Aborted::Unknown,
            Some(Place::Ready(waiting)) => {
                state.take_out(id.0);
                waiting
            }
            Some(Place::Waits(waiting)) => {
                state.board.forget(&waiting);
                waiting
            }
            Some(served) => {
                if matches!(served, Place::Served) {
                    state.ending.push(id);
                }
                state.places.insert(id, Place::Ending);
                drop(state);
                self.changes.announce();
                return Aborted::Served;
            }
        };
        drop(state);
        Aborted::Waiting { tokens: waiting.tokens.clone() }
    }

    pub(super) fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.places.len() - state.served
    }

    pub(super) fn unfinished(&self) -> usize {
        self.state.lock().places.len()
    }

    /// Counts a step of a scheduler.
    pub(super) fn count_step(&self) {
        self.state.lock().steps += 1;
    }

    /// Names of requests that are to end at whoever serves them.
    pub(super) fn ending(&self) -> Vec<SequenceId> {
        self.state.lock().ending.clone()
    }

    /// Takes the request that has waited longest.
    pub(super) fn serve_oldest(&self) -> Option<Arc<Waiting>> {
        let mut state = self.state.lock();
        let (&name, _) = state.ready.first_key_value()?;
        state.serve(name)
    }

    /// If it is time for one of those that have waited for half the bound: by when such a one came.
    pub(super) fn due(&self) -> Option<u64> {
        let state = self.state.lock();
        let (_, oldest) = state.ready.first_key_value()?;
        let latest = state.steps.checked_sub(self.config.age_bound / 2)?;
        (state.steps >= state.next_due && oldest.ticket.arrived <= latest).then_some(latest)
    }

    /// One of those was admitted: for a while the order decides again.
    pub(super) fn due_was_served(&self, due: Due) {
        let share = match due {
            Due::Few => 16,
            Due::Many => 2,
        };
        let mut state = self.state.lock();
        state.next_due = state.steps + (self.config.age_bound / share).max(1);
    }

    /// Takes a request, if it is ready still.
    pub(super) fn serve(&self, name: u64) -> Option<Arc<Waiting>> {
        self.state.lock().serve(name)
    }

    /// Copies the list of what is ready, unless it has not changed since the version given.
    pub(super) fn list(&self, list: &mut Vec<Arc<Waiting>>, version: &mut Option<u64>) {
        let state = self.state.lock();
        if *version != Some(state.version) {
            *version = Some(state.version);
            list.clear();
            list.extend(state.ready.values().cloned());
        }
    }

    /// Up to `most` names of what is ready, depth first from where the cursor leads.
    pub(super) fn depth_first(&self, cursor: Option<&Waiting>, most: usize) -> Vec<u64> {
        let state = self.state.lock();
        state.by_prompt.as_ref().map_or_else(Vec::new, |by_prompt| by_prompt.depth_first(cursor, most))
    }

    /// A scheduler does not serve the request for now.
    pub(super) fn put_back(&self, waiting: Arc<Waiting>) {
        let mut state = self.state.lock();
        if state.leave(waiting.ticket.id) {
            state.make_ready(waiting);
        }
        drop(state);
        self.changes.announce();
    }

    /// A scheduler is done with a request.
    pub(super) fn end(&self, id: SequenceId) {
        self.state.lock().leave(id);
        self.changes.announce();
    }

    /// Names `n` new requests that are served already.
    pub(super) fn name_served(&self, n: usize) -> Vec<SequenceId> {
        let mut state = self.state.lock();
        let first = state.next;
        state.next += n as u64;
        state.served += n;
        let ids = (first..state.next).map(SequenceId);
        ids.inspect(|&id| drop(state.places.insert(id, Place::Served))).collect()
    }

    /// Claims a request's whole blocks for whoever serves it, or has it wait if somebody else computes more of them
    /// than what the first `cached` tokens have.
    pub(super) fn claim(desk: &Arc<Self>, waiting: &Arc<Waiting>, cached: usize) -> Option<Claim> {
        let name = waiting.ticket.id.0;
        let mut state = desk.state.lock();
        match state.board.claim(name, waiting, cached, desk.cache.block_size()) {
            Asked::Granted => Some(Claim { desk: Arc::clone(desk), name }),
            Asked::Waits => {
                state.stand_aside(waiting);
                None
            }
        }
    }

    fn wake(&self, choose: impl FnOnce(&mut Board) -> Vec<Arc<Waiting>>) {
        let mut state = self.state.lock();
        let woken = choose(&mut state.board);
        if !woken.is_empty() {
            state.wake(woken);
            drop(state);
            self.changes.announce();
        }
    }
}

/// A claim that its owner holds. Dropping it gives it up and wakes whoever waits, in a panic too.
pub(super) struct Claim {
    desk: Arc<Desk>,
    name: u64,
}

impl Claim {
    /// The first `tokens` of the prompt are published.
    pub(super) fn commit(&self, tokens: usize) {
        self.desk.wake(|board| board.commit(self.name, tokens));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.desk.wake(|board| board.give_up(self.name));
    }
}
