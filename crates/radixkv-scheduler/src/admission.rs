//! Admission: what the schedulers of one queue share. The waiting requests, the state of each request, and the pending
//! claims.
//!
//! One lock, held for as long as it takes to find, put or take a request; a scheduler that looks at all of them copies
//! the list and compares without the lock. And one *turn*: a scheduler that tries to admit a request has it until the
//! request is admitted, waits for a claim, or is refused. The request that is being tried stays in its place, so the
//! other schedulers wait for the turn and then find the same request first. A request that is put back has its place
//! again before another turn finds its blocks. So requests are admitted in the order in which one scheduler alone would
//! admit them.
//!
//! # Invariants
//!
//! - **D1** A request is in exactly one state: ready, waiting for a claim or for its namespace's quota, or served by one
//!   scheduler.
//! - **D2** A request that is not served holds no block, no lease and, but for the turn in which it is tried, no claim.
//! - **D3** A request whose abort was accepted ([`Aborted::Served`]) is reported as aborted to its scheduler once, when
//!   it leaves that scheduler; and nothing of it is published from then on ([`AbortState`]).
//!
//! Locks are taken in this order: the turn, this one. An [`AbortState`] is locked under neither.

use std::collections::{BTreeSet, HashMap};

use radixkv::{Namespace, PrefixCache};

use super::abort::{AbortState, Aborted};
use super::claims::{ClaimReply, PrefixClaims};
use super::config::QueueConfig;
use super::lines::Lines;
use super::ready::Ready;
use super::request::{Request, SequenceId, Ticket, Waiting};
use super::turn::{Turn, Turns};
use crate::sync::{Arc, Changes, Mutex};

/// How many requests have waited for half of the age bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The order leaves some requests to the last.
    Few,
    /// The queue is too long: in any order many requests wait.
    Many,
}

/// What the schedulers of one queue share.
pub(super) struct Admission {
    pub(super) cache: PrefixCache,
    pub(super) config: QueueConfig,
    /// Counts every change after which an idle scheduler may find something to do.
    pub(super) changes: Changes,
    turns: Turns,
    state: Mutex<AdmissionState>,
}

/// Identifies a scheduler among those of its queue.
pub(super) type SchedulerId = u64;

/// Where a request is (D1).
#[derive(Debug)]
enum RequestState {
    Ready,
    /// It waits for a claim.
    Waits(Arc<Waiting>),
    /// It waits in the line of its namespace, which is at its limit.
    InLine(Namespace),
    Served {
        by: SchedulerId,
        abort: Arc<AbortState>,
    },
}

#[derive(Debug)]
struct AdmissionState {
    /// Steps that schedulers have made.
    steps: u64,
    /// The step from which on an overdue request goes first.
    next_overdue: u64,
    /// The last step with room for another request.
    last_room: u64,
    /// Steps between that one and the step with room before it.
    room_interval: u64,
    /// The id of the next request.
    next_id: u64,
    /// Schedulers that were made: the id of the last one.
    schedulers: SchedulerId,
    ready: Ready,
    claims: PrefixClaims,
    /// Those that wait for their namespace's quota.
    lines: Lines,
    requests: HashMap<SequenceId, RequestState>,
    /// Requests that are `Served`.
    served: usize,
    /// Those of them that were aborted.
    aborted: BTreeSet<(SchedulerId, SequenceId)>,
    /// Aborted requests whose scheduler was dropped before a step of it could list them.
    unlisted: Vec<SequenceId>,
}

impl AdmissionState {
    fn make_ready(&mut self, waiting: Arc<Waiting>) {
        self.requests.insert(waiting.ticket.id, RequestState::Ready);
        self.ready.insert(waiting);
    }

    fn enter_line(&mut self, id: SequenceId) {
        if let Some(waiting) = self.ready.remove(id) {
            self.requests.insert(id, RequestState::InLine(waiting.ticket.namespace.clone()));
            self.lines.insert(waiting);
        }
    }

    fn is_ready(&self, id: SequenceId) -> bool {
        matches!(self.requests.get(&id), Some(RequestState::Ready))
    }

    /// Takes a request off the scheduler that serves it; false if it was aborted.
    #[must_use = "an aborted request is to be listed"]
    fn leave(&mut self, id: SequenceId) -> bool {
        let Some(RequestState::Served { by, .. }) = self.requests.remove(&id) else {
            unreachable!("a scheduler takes off what it serves");
        };
        self.served -= 1;
        !self.aborted.remove(&(by, id))
    }

    fn serve(&mut self, id: SequenceId, by: SchedulerId) -> Arc<AbortState> {
        let abort = Arc::new(AbortState::new());
        self.requests.insert(id, RequestState::Served { by, abort: Arc::clone(&abort) });
        self.served += 1;
        abort
    }
}

impl Admission {
    pub(super) fn new(cache: &PrefixCache, config: QueueConfig) -> Self {
        let state = AdmissionState {
            steps: 0,
            next_overdue: 0,
            last_room: 0,
            room_interval: 0,
            next_id: 0,
            schedulers: 0,
            ready: Ready::new(config.order),
            claims: PrefixClaims::default(),
            lines: Lines::new(config.order),
            requests: HashMap::new(),
            served: 0,
            aborted: BTreeSet::new(),
            unlisted: Vec::new(),
        };
        let state = Mutex::new(state);
        Self { cache: cache.clone(), config, changes: Changes::new(), turns: Turns::new(), state }
    }

    /// An id for one more scheduler.
    pub(super) fn new_scheduler(&self) -> SchedulerId {
        let mut state = self.state.lock();
        state.schedulers += 1;
        state.schedulers
    }

    /// Takes in a request that has passed the checks of `WaitingQueue::submit`.
    pub(super) fn submit(&self, request: Request) -> SequenceId {
        let mut state = self.state.lock();
        let id = SequenceId(state.next_id);
        state.next_id += 1;
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
            Some(RequestState::Served { by, abort }) => {
                let (by, abort) = (*by, Arc::clone(abort));
                state.aborted.insert((by, id));
                drop(state);
                abort.abort();
                self.changes.announce();
                return Aborted::Served;
            }
            Some(RequestState::Ready) => {
                let waiting = state.ready.remove(id).expect("a ready request is listed as ready");
                state.lines.left(&waiting, false);
                waiting
            }
            Some(RequestState::Waits(waiting)) => {
                let waiting = Arc::clone(waiting);
                state.claims.forget(id);
                waiting
            }
            Some(RequestState::InLine(namespace)) => {
                let namespace = namespace.clone();
                state.lines.remove(&namespace, id).expect("it is in the line of its namespace")
            }
        };
        state.requests.remove(&id);
        drop(state);
        // What waited behind it may be admitted now.
        self.changes.announce();
        Aborted::Waiting { tokens: waiting.tokens.clone() }
    }

    /// Requests that are not served.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.requests.len() - state.served
    }

    /// Requests that have not ended.
    pub(super) fn unfinished(&self) -> usize {
        self.state.lock().requests.len()
    }

    /// Counts a step of a scheduler.
    pub(super) fn count_step(&self) {
        self.state.lock().steps += 1;
    }

    /// Aborted requests that a scheduler still serves, and is to drop.
    pub(super) fn aborted(&self, by: SchedulerId) -> Vec<SequenceId> {
        let state = self.state.lock();
        let all = (by, SequenceId(0))..=(by, SequenceId(u64::MAX));
        state.aborted.range(all).map(|&(_, id)| id).collect()
    }

    /// Leaves aborted requests for another scheduler to list.
    pub(super) fn leave_unlisted(&self, aborted: &mut Vec<SequenceId>) {
        self.state.lock().unlisted.append(aborted);
    }

    /// Takes over the aborted requests that dropped schedulers left to be listed.
    pub(super) fn take_unlisted(&self, aborted: &mut Vec<SequenceId>) {
        aborted.append(&mut self.state.lock().unlisted);
    }

    /// Waits for the turn, in which a request is tried or put back. `None` if the calling thread has the turn already:
    /// no other thread has it then either.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        self.turns.take()
    }

    /// A step has room for another request.
    pub(super) fn note_room(&self) {
        let mut state = self.state.lock();
        if state.steps > state.last_room {
            state.room_interval = state.steps - state.last_room;
            state.last_room = state.steps;
        }
    }

    /// Whether it is time for an overdue request, or will be before there is room again: then the last step with which
    /// a request may have come and be overdue.
    pub(super) fn overdue(&self) -> Option<u64> {
        let state = self.state.lock();
        let latest = state.steps.checked_sub(self.config.age_bound / 2)?;
        let soon = state.steps.saturating_add(state.room_interval.max(1)) > state.next_overdue;
        (soon && state.ready.oldest()?.ticket.arrived <= latest).then_some(latest)
    }

    /// An overdue request was admitted, which came with step `arrived`: for a while the order decides again.
    ///
    /// The sixteenth of the bound counts from when the request became overdue, or from the end of the sixteenth before:
    /// if there was no room for a while, the next overdue requests catch up.
    pub(super) fn overdue_was_served(&self, overdue: Overdue, arrived: u64) {
        let half = self.config.age_bound / 2;
        let mut state = self.state.lock();
        let (from, share) = match overdue {
            Overdue::Few => {
                let from = state.next_overdue.max(arrived.saturating_add(half)).max(state.steps.saturating_sub(half));
                (from, self.config.age_bound / 16)
            }
            Overdue::Many => (state.steps + state.room_interval.saturating_sub(1), half),
        };
        state.next_overdue = from.saturating_add(share.max(1));
    }

    /// The request that the order prefers, where that depends on the requests alone; it stays ready.
    pub(super) fn first(&self) -> Option<Arc<Waiting>> {
        self.state.lock().ready.first().cloned()
    }

    /// A request, if it is still ready; it stays so.
    pub(super) fn find(&self, id: SequenceId) -> Option<Arc<Waiting>> {
        self.state.lock().ready.get(id).cloned()
    }

    /// All ready requests, by arrival.
    pub(super) fn list(&self) -> Vec<Arc<Waiting>> {
        self.state.lock().ready.list()
    }

    /// Admits a ready request to a scheduler, unless it was aborted meanwhile.
    pub(super) fn admit(&self, id: SequenceId, by: SchedulerId) -> Option<Arc<AbortState>> {
        let mut state = self.state.lock();
        let admitted = state.ready.admit(id)?;
        if let Some(next) = state.lines.left(&admitted, true) {
            state.make_ready(next);
        }
        Some(state.serve(id, by))
    }

    /// Makes one request of each of the next `most` lines ready again.
    pub(super) fn let_out(&self, most: usize) {
        let mut state = self.state.lock();
        let out = state.lines.let_out(most);
        out.into_iter().for_each(|waiting| state.make_ready(waiting));
    }

    /// Whether a request that is tried must wait behind others of its namespace: then it is in their line now.
    pub(super) fn join_line(&self, waiting: &Waiting) -> bool {
        let mut state = self.state.lock();
        let behind = state.lines.holds_back(waiting);
        if behind {
            state.enter_line(waiting.ticket.id);
        }
        behind
    }

    /// A request that is tried waits for its namespace's quota from now on, unless it was aborted meanwhile.
    pub(super) fn hold_back(&self, waiting: &Waiting) {
        self.state.lock().enter_line(waiting.ticket.id);
    }

    /// A request leaves its scheduler and waits again; false if it was aborted, and so has ended.
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

    /// A request that a scheduler serves ends; false if it was aborted.
    #[must_use = "an aborted request is to be listed"]
    pub(super) fn end(&self, id: SequenceId) -> bool {
        let stays = self.state.lock().leave(id);
        self.changes.announce();
        stays
    }

    /// Ids for `n` new requests that are served from the start: forks.
    pub(super) fn serve_new(&self, n: usize, by: SchedulerId) -> Vec<(SequenceId, Arc<AbortState>)> {
        let mut state = self.state.lock();
        let first = state.next_id;
        state.next_id += n as u64;
        let ids = (first..state.next_id).map(SequenceId);
        ids.map(|id| (id, state.serve(id, by))).collect()
    }

    /// Claims the whole blocks of a request that is tried, of which the first `cached` tokens are cached. `None` if the
    /// request now waits, because another one computes more of them, or if it was aborted meanwhile.
    pub(super) fn claim(admission: &Arc<Self>, waiting: &Arc<Waiting>, cached: usize) -> Option<Claim> {
        let id = waiting.ticket.id;
        let mut state = admission.state.lock();
        if !state.is_ready(id) {
            return None;
        }
        match state.claims.claim(id, waiting, cached, admission.cache.block_size()) {
            ClaimReply::Granted => Some(Claim { admission: Arc::clone(admission), id }),
            ClaimReply::Waits => {
                let waiting = state.ready.remove(id).expect("a ready request is listed as ready");
                state.lines.left(&waiting, false);
                state.requests.insert(id, RequestState::Waits(waiting));
                None
            }
        }
    }

    /// Changes the claims, and makes the requests ready that need not wait any more.
    fn wake(&self, change: impl FnOnce(&mut PrefixClaims) -> Vec<Arc<Waiting>>) {
        let mut state = self.state.lock();
        let woken = change(&mut state.claims);
        if !woken.is_empty() {
            woken.into_iter().for_each(|waiting| state.make_ready(waiting));
            drop(state);
            self.changes.announce();
        }
    }
}

/// A granted claim. Dropping it, in a panic too, gives it up and wakes the requests that wait for it.
pub(super) struct Claim {
    admission: Arc<Admission>,
    /// The request that has it.
    id: SequenceId,
}

impl Claim {
    /// The first `tokens` of the prompt are published.
    pub(super) fn commit(&self, tokens: usize) {
        self.admission.wake(|claims| claims.commit(self.id, tokens));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.admission.wake(|claims| claims.give_up(self.id));
    }
}
