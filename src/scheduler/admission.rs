//! What the schedulers of one queue share: the waiting requests, where each request is, and the pending claims.
//!
//! One lock, held for as long as it takes to find, put or take a request; who looks at all of them copies the list and
//! compares without it. And one *turn*: a scheduler that tries to admit a request has it until the request is admitted,
//! stands aside or is refused. What is being tried stays where it is: the others wait for the turn, and then find the
//! same request first. A request that is put back has its place before another turn finds its blocks. So requests are
//! admitted in the order in which a scheduler alone would admit them.
//!
//! # Invariants
//!
//! - **D1** A request is in exactly one place: ready, waiting for a claim, or served by one scheduler.
//! - **D2** A request that is not served holds no block, no lease and, but for the turn in which it is tried, no claim.
//! - **D3** A request whose abort was accepted ([`Aborted::Served`]) is handed to its scheduler as such once, when it
//!   leaves that one's hands; and nothing of it is published from then on ([`Fate`]).
//!
//! Locks are taken in this order: the turn, this one. A request's fate is decided under neither.

use std::collections::{BTreeSet, HashMap};

use super::batch::SequenceId;
use super::claims::{Asked, PrefixClaims};
use super::fate::Fate;
use super::queue::{Aborted, QueueConfig};
use super::ready::Ready;
use super::request::{Request, Ticket, Waiting};
use super::turn::{Turn, Turns};
use crate::cache::PrefixCache;
use crate::sync::{Arc, Changes, Mutex};

/// How many have waited too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The order is unfair to some.
    Few,
    /// Too much is asked for: whoever is served, others wait.
    Many,
}

pub(super) struct Admission {
    pub(super) cache: PrefixCache,
    pub(super) config: QueueConfig,
    /// Counts whatever may let an idle scheduler find something to do.
    pub(super) changes: Changes,
    turns: Turns,
    state: Mutex<State>,
}

/// Names a scheduler among those of its queue.
pub(super) type SchedulerId = u64;

/// Where a request is.
#[derive(Debug)]
enum RequestState {
    Ready,
    /// For a claim.
    Waits(Arc<Waiting>),
    Served {
        by: SchedulerId,
        fate: Arc<Fate>,
    },
}

#[derive(Debug)]
struct State {
    /// Steps that schedulers have made.
    steps: u64,
    /// The step from which on one that has waited too long goes first.
    next_overdue: u64,
    /// The last step with room for another request, and how long after the one before it came.
    room: u64,
    rhythm: u64,
    /// The next request's name.
    next: u64,
    schedulers: SchedulerId,
    ready: Ready,
    claims: PrefixClaims,
    requests: HashMap<SequenceId, RequestState>,
    /// Places that are `Served`.
    served: usize,
    /// Those of them that were aborted.
    ending: BTreeSet<(SchedulerId, SequenceId)>,
    /// Aborted requests whose scheduler went before it could list them.
    unlisted: Vec<SequenceId>,
}

impl State {
    fn make_ready(&mut self, waiting: Arc<Waiting>) {
        self.requests.insert(waiting.ticket.id, RequestState::Ready);
        self.ready.insert(waiting);
    }

    fn is_ready(&self, id: SequenceId) -> bool {
        matches!(self.requests.get(&id), Some(RequestState::Ready))
    }

    /// Takes a request out of its scheduler's hands; false if it was aborted, and now is gone.
    #[must_use = "an aborted request is to be listed"]
    fn leave(&mut self, id: SequenceId) -> bool {
        let Some(RequestState::Served { by, .. }) = self.requests.remove(&id) else {
            unreachable!("a scheduler lets go what it serves");
        };
        self.served -= 1;
        !self.ending.remove(&(by, id))
    }

    fn serve(&mut self, id: SequenceId, by: SchedulerId) -> Arc<Fate> {
        let fate = Arc::new(Fate::new());
        self.requests.insert(id, RequestState::Served { by, fate: Arc::clone(&fate) });
        self.served += 1;
        fate
    }
}

impl Admission {
    pub(super) fn new(cache: &PrefixCache, config: QueueConfig) -> Self {
        let state = State {
            steps: 0,
            next_overdue: 0,
            room: 0,
            rhythm: 0,
            next: 0,
            schedulers: 0,
            ready: Ready::new(config.order),
            claims: PrefixClaims::default(),
            requests: HashMap::new(),
            served: 0,
            ending: BTreeSet::new(),
            unlisted: Vec::new(),
        };
        let state = Mutex::new(state);
        Self { cache: cache.clone(), config, changes: Changes::new(), turns: Turns::new(), state }
    }

    /// A name for one more scheduler.
    pub(super) fn enter(&self) -> SchedulerId {
        let mut state = self.state.lock();
        state.schedulers += 1;
        state.schedulers
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
        let waiting = match state.requests.get(&id) {
            None => return Aborted::Unknown,
            Some(RequestState::Served { by, fate }) => {
                let (by, fate) = (*by, Arc::clone(fate));
                state.ending.insert((by, id));
                drop(state);
                fate.abort();
                self.changes.announce();
                return Aborted::Served;
            }
            Some(RequestState::Ready) => state.ready.remove(id.0).expect("what is ready is there"),
            Some(RequestState::Waits(waiting)) => {
                let waiting = Arc::clone(waiting);
                state.claims.forget(id.0);
                waiting
            }
        };
        state.requests.remove(&id);
        drop(state);
        // What waited behind it may be admitted now.
        self.changes.announce();
        Aborted::Waiting { tokens: waiting.tokens.clone() }
    }

    pub(super) fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.requests.len() - state.served
    }

    pub(super) fn unfinished(&self) -> usize {
        self.state.lock().requests.len()
    }

    /// Counts a step of a scheduler.
    pub(super) fn count_step(&self) {
        self.state.lock().steps += 1;
    }

    /// Names of requests that a scheduler is to drop.
    pub(super) fn ending(&self, by: SchedulerId) -> Vec<SequenceId> {
        let state = self.state.lock();
        let all = (by, SequenceId(0))..=(by, SequenceId(u64::MAX));
        state.ending.range(all).map(|&(_, id)| id).collect()
    }

    /// Leaves aborted requests for another scheduler to list.
    pub(super) fn leave_unlisted(&self, aborted: &mut Vec<SequenceId>) {
        self.state.lock().unlisted.append(aborted);
    }

    /// Takes over what schedulers have left unlisted when they went.
    pub(super) fn take_unlisted(&self, aborted: &mut Vec<SequenceId>) {
        aborted.append(&mut self.state.lock().unlisted);
    }

    /// Lets the caller try to admit a request, or put one back, alone; nothing where it does so in a turn of its thread's
    /// already: no other thread has one then either.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        self.turns.take()
    }

    /// A step has room for another request.
    pub(super) fn note_room(&self) {
        let mut state = self.state.lock();
        if state.steps > state.room {
            state.rhythm = state.steps - state.room;
            state.room = state.steps;
        }
    }

    /// If it is time for one of those that have waited for half the bound, or will be before there is room again: by
    /// when such a one came.
    pub(super) fn overdue(&self) -> Option<u64> {
        let state = self.state.lock();
        let latest = state.steps.checked_sub(self.config.age_bound / 2)?;
        let soon = state.steps.saturating_add(state.rhythm.max(1)) > state.next_overdue;
        (soon && state.ready.oldest()?.ticket.arrived <= latest).then_some(latest)
    }

    /// One of those was admitted, that came with step `arrived`: for a while the order decides again.
    ///
    /// The sixteenths of the bound count from when it became due, or from when the last one's was over: if there was no
    /// room for a while, the next ones make up for it.
    pub(super) fn overdue_was_served(&self, overdue: Overdue, arrived: u64) {
        let half = self.config.age_bound / 2;
        let mut state = self.state.lock();
        let (from, share) = match overdue {
            Overdue::Few => {
                let from = state.next_overdue.max(arrived.saturating_add(half)).max(state.steps.saturating_sub(half));
                (from, self.config.age_bound / 16)
            }
            Overdue::Many => (state.steps + state.rhythm.saturating_sub(1), half),
        };
        state.next_overdue = from.saturating_add(share.max(1));
    }

    /// The order's first, as far as it is a matter of the requests alone; it stays where it is.
    pub(super) fn first(&self) -> Option<Arc<Waiting>> {
        self.state.lock().ready.first().cloned()
    }

    /// A request, if it is ready still; it stays where it is.
    pub(super) fn find(&self, name: u64) -> Option<Arc<Waiting>> {
        self.state.lock().ready.get(name).cloned()
    }

    /// All that is ready, by arrival.
    pub(super) fn list(&self) -> Vec<Arc<Waiting>> {
        self.state.lock().ready.list()
    }

    /// Takes a request that was tried into a scheduler's hands, unless it was aborted meanwhile.
    pub(super) fn admit(&self, id: SequenceId, by: SchedulerId) -> Option<Arc<Fate>> {
        let mut state = self.state.lock();
        state.ready.admit(id.0)?;
        Some(state.serve(id, by))
    }

    /// A scheduler does not serve the request for now; false if it was aborted, and now is gone.
    #[must_use = "an aborted request is to be listed"]
    pub(super) fn put_back(&self, waiting: Arc<Waiting>) -> bool {
        let mut state = self.state.lock();
        let stays = state.leave(waiting.ticket.id);
        if stays {
            state.make_ready(waiting);
        }
        drop(state);
        self.changes.announce();
        stays
    }

    /// A scheduler is done with a request; false if it was aborted.
    #[must_use = "an aborted request is to be listed"]
    pub(super) fn end(&self, id: SequenceId) -> bool {
        let stays = self.state.lock().leave(id);
        self.changes.announce();
        stays
    }

    /// Names `n` new requests that are served already.
    pub(super) fn name_served(&self, n: usize, by: SchedulerId) -> Vec<(SequenceId, Arc<Fate>)> {
        let mut state = self.state.lock();
        let first = state.next;
        state.next += n as u64;
        let ids = (first..state.next).map(SequenceId);
        ids.map(|id| (id, state.serve(id, by))).collect()
    }

    /// Claims a request's whole blocks for the turn's scheduler, or has it wait if another request computes more of
    /// them than what the first `cached` tokens have. Nothing either if it was aborted meanwhile.
    pub(super) fn claim(admission: &Arc<Self>, waiting: &Arc<Waiting>, cached: usize) -> Option<Claim> {
        let id = waiting.ticket.id;
        let mut state = admission.state.lock();
        if !state.is_ready(id) {
            return None;
        }
        match state.claims.claim(id.0, waiting, cached, admission.cache.block_size()) {
            Asked::Granted => Some(Claim { admission: Arc::clone(admission), name: id.0 }),
            Asked::Waits => {
                let waiting = state.ready.remove(id.0).expect("what is ready is there");
                state.requests.insert(id, RequestState::Waits(waiting));
                None
            }
        }
    }

    fn wake(&self, choose: impl FnOnce(&mut PrefixClaims) -> Vec<Arc<Waiting>>) {
        let mut state = self.state.lock();
        let woken = choose(&mut state.claims);
        if !woken.is_empty() {
            woken.into_iter().for_each(|waiting| state.make_ready(waiting));
            drop(state);
            self.changes.announce();
        }
    }
}

/// A claim that its owner holds. Dropping it gives it up and wakes whoever waits, in a panic too.
pub(super) struct Claim {
    admission: Arc<Admission>,
    name: u64,
}

impl Claim {
    /// The first `tokens` of the prompt are published.
    pub(super) fn commit(&self, tokens: usize) {
        self.admission.wake(|claims| claims.commit(self.name, tokens));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.admission.wake(|claims| claims.give_up(self.name));
    }
}
