//! The state that the schedulers of one queue share: the waiting requests, the state of each
//! request, and the pending claims. The waiting queue submits and aborts requests here; schedulers
//! admit them, put them back and end them.
//!
//! One lock guards the state and is held only to find, add or remove a request. A scheduler that
//! looks at all requests copies the list and compares them without the lock.
//!
//! A second lock, the *turn*, orders admissions, so that several schedulers admit requests in the
//! same order as one would. A scheduler holds it while it tries a request, until the request is
//! admitted, waits for a claim or a quota, or is refused. The request keeps its place in the order
//! meanwhile, so the next scheduler with the turn finds the same request first. Putting a request
//! back also needs the turn, so that it has its place again before another scheduler finds its
//! freed blocks.
//!
//! # Invariants
//!
//! - **D1** A request is in exactly one state: ready, waiting for a claim or for its namespace's
//!   quota, or served by one scheduler.
//! - **D2** A request that is not served holds no block, lease or claim, except in the turn in
//!   which it is tried.
//! - **D3** After an abort has returned [`Aborted::Served`], no more of the request's blocks are
//!   published ([`AbortState`]). The request is reported as aborted once, when it leaves its
//!   scheduler.
//!
//! Lock order: the turn, then the state. While either is held, no [`AbortState`] is locked.

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

/// Whether few or many requests are overdue, that is, have waited for half of the age bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The order puts some requests last.
    Few,
    /// The queue is too long: many requests would wait in any order.
    Many,
}

/// The state that the schedulers of one queue share.
pub(super) struct Admission {
    pub(super) cache: PrefixCache,
    pub(super) config: QueueConfig,
    /// Counts every change after which an idle scheduler may find work.
    pub(super) changes: Changes,
    turns: Turns,
    state: Mutex<AdmissionState>,
}

/// Identifies a scheduler among those of its queue.
pub(super) type SchedulerId = u64;

/// The state of a request (D1).
#[derive(Debug)]
enum RequestState {
    Ready,
    /// It waits for a claim.
    Waits(Arc<Waiting>),
    /// It waits in its namespace's line: the namespace has reached its quota.
    InLine(Namespace),
    Served {
        by: SchedulerId,
        abort: Arc<AbortState>,
    },
}

#[derive(Debug)]
struct AdmissionState {
    /// Number of non-empty steps of all schedulers.
    steps: u64,
    /// The step from which an overdue request goes first.
    next_overdue: u64,
    /// The last step with room for another request.
    last_room: u64,
    /// Number of steps between `last_room` and the step with room before it.
    room_interval: u64,
    /// The id of the next request.
    next_id: u64,
    /// Number of schedulers ever created; the id of the last one.
    schedulers: SchedulerId,
    ready: Ready,
    claims: PrefixClaims,
    /// The requests that wait for their namespace's quota.
    lines: Lines,
    requests: HashMap<SequenceId, RequestState>,
    /// Number of requests that are `Served`.
    served: usize,
    /// The served requests that were aborted.
    aborted: BTreeSet<(SchedulerId, SequenceId)>,
    /// Aborted requests whose scheduler was dropped before a step listed them.
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

    /// Removes a request from the scheduler that serves it; returns false if it was aborted.
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

    /// Returns an id for a new scheduler.
    pub(super) fn new_scheduler(&self) -> SchedulerId {
        let mut state = self.state.lock();
        state.schedulers += 1;
        state.schedulers
    }

    /// Adds a request that has passed the checks of `WaitingQueue::submit`.
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
        // Requests that waited behind it may be admitted now.
        self.changes.announce();
        Aborted::Waiting { tokens: waiting.tokens.clone() }
    }

    /// The number of requests that are not served.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.requests.len() - state.served
    }

    /// The number of requests that have not ended.
    pub(super) fn unfinished(&self) -> usize {
        self.state.lock().requests.len()
    }

    /// Counts a non-empty step of a scheduler.
    pub(super) fn count_step(&self) {
        self.state.lock().steps += 1;
    }

    /// Aborted requests that a scheduler still serves, and must drop.
    pub(super) fn aborted(&self, by: SchedulerId) -> Vec<SequenceId> {
        let state = self.state.lock();
        let all = (by, SequenceId(0))..=(by, SequenceId(u64::MAX));
        state.aborted.range(all).map(|&(_, id)| id).collect()
    }

    /// Leaves aborted requests to other schedulers, which list them.
    pub(super) fn leave_unlisted(&self, aborted: &mut Vec<SequenceId>) {
        self.state.lock().unlisted.append(aborted);
    }

    /// Takes the aborted requests that dropped schedulers left unlisted.
    pub(super) fn take_unlisted(&self, aborted: &mut Vec<SequenceId>) {
        aborted.append(&mut self.state.lock().unlisted);
    }

    /// Waits for the turn, which is needed to try a request or to put one back. `None` if the
    /// calling thread already has it.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        self.turns.take()
    }

    /// Records that the current step has room for another request.
    pub(super) fn note_room(&self) {
        let mut state = self.state.lock();
        if state.steps > state.last_room {
            state.room_interval = state.steps - state.last_room;
            state.last_room = state.steps;
        }
    }

    /// Returns the step up to which arrivals are overdue, if one of them is due now or before there
    /// is room again.
    pub(super) fn overdue(&self) -> Option<u64> {
        let state = self.state.lock();
        let latest = state.steps.checked_sub(self.config.age_bound / 2)?;
        let soon = state.steps.saturating_add(state.room_interval.max(1)) > state.next_overdue;
        (soon && state.ready.oldest()?.ticket.arrived <= latest).then_some(latest)
    }

    /// Records that an overdue request, which arrived at step `arrived`, was admitted. The order
    /// decides again until the next one is due.
    ///
    /// If few requests are overdue, the next one is due a sixteenth of the bound after the latest
    /// of three steps: the one at which this request became overdue, the one at which it was due,
    /// and half a bound ago. So they catch up after a time without room. If many are overdue, the
    /// next one is due half a bound from now.
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

    /// The request that the order prefers, if the order depends only on the requests, else the
    /// oldest one. It stays ready.
    pub(super) fn first(&self) -> Option<Arc<Waiting>> {
        self.state.lock().ready.first().cloned()
    }

    /// Returns a request if it is still ready; it stays ready.
    pub(super) fn find(&self, id: SequenceId) -> Option<Arc<Waiting>> {
        self.state.lock().ready.get(id).cloned()
    }

    /// All ready requests, by arrival.
    pub(super) fn list(&self) -> Vec<Arc<Waiting>> {
        self.state.lock().ready.list()
    }

    /// Admits a ready request to a scheduler. `None` if it was aborted meanwhile.
    pub(super) fn admit(&self, id: SequenceId, by: SchedulerId) -> Option<Arc<AbortState>> {
        let mut state = self.state.lock();
        let admitted = state.ready.admit(id)?;
        let abort = state.serve(id, by);
        if let Some(next) = state.lines.left(&admitted, true) {
            state.make_ready(next);
            drop(state);
            // A pass that has listed the ready requests does not find it.
            self.changes.announce();
        }
        Some(abort)
    }

    /// Makes one request from each of the next `most` lines ready again.
    pub(super) fn let_out(&self, most: usize) {
        let mut state = self.state.lock();
        let out = state.lines.let_out(most);
        out.into_iter().for_each(|waiting| state.make_ready(waiting));
    }

    /// The number of quota lines.
    pub(super) fn lines(&self) -> usize {
        self.state.lock().lines.len()
    }

    /// Moves the tried request into its namespace's line if it must wait behind others there;
    /// returns whether it must.
    pub(super) fn join_line(&self, waiting: &Waiting) -> bool {
        let mut state = self.state.lock();
        let behind = state.lines.holds_back(waiting);
        if behind {
            state.enter_line(waiting.ticket.id);
        }
        behind
    }

    /// Moves the tried request into its namespace's line, unless it was aborted meanwhile.
    pub(super) fn hold_back(&self, waiting: &Waiting) {
        self.state.lock().enter_line(waiting.ticket.id);
    }

    /// Moves a request from its scheduler back to the ready ones. Returns false if it was aborted,
    /// and has therefore ended.
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

    /// Ends a request that a scheduler serves; returns false if it was aborted.
    #[must_use = "an aborted request is to be listed"]
    pub(super) fn end(&self, id: SequenceId) -> bool {
        let stays = self.state.lock().leave(id);
        self.changes.announce();
        stays
    }

    /// Creates `n` served requests, for forks.
    pub(super) fn serve_new(&self, n: usize, by: SchedulerId) -> Vec<(SequenceId, Arc<AbortState>)> {
        let mut state = self.state.lock();
        let first = state.next_id;
        state.next_id += n as u64;
        let ids = (first..state.next_id).map(SequenceId);
        ids.map(|id| (id, state.serve(id, by))).collect()
    }

    /// Claims the whole blocks of the tried request, whose first `cached` tokens are cached. `None`
    /// if the request now waits because another one computes more of these blocks, or if it was
    /// aborted.
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
                let next = state.lines.left(&waiting, true);
                state.requests.insert(id, RequestState::Waits(waiting));
                if let Some(next) = next {
                    state.make_ready(next);
                    drop(state);
                    // A pass that has listed the ready requests does not find it.
                    admission.changes.announce();
                }
                None
            }
        }
    }

    /// Applies `change` to the claims and makes the returned requests ready.
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

/// A granted claim. Dropping it, even in a panic, gives it up and wakes the requests that wait for
/// it.
pub(super) struct Claim {
    admission: Arc<Admission>,
    /// The request that owns it.
    id: SequenceId,
}

impl Claim {
    /// Records that the first `tokens` tokens of the prompt are published.
    pub(super) fn commit(&self, tokens: usize) {
        self.admission.wake(|claims| claims.commit(self.id, tokens));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.admission.wake(|claims| claims.give_up(self.id));
    }
}
