//! Which request is tried next.
//!
//! Where an order is a matter of the requests alone, the desk knows its first. Under [`Order::LongestPrefix`] one pass
//! compares every waiting request with what is cached for it, under no lock and before the turn. The pass sorts nothing:
//! candidates lie in a heap and leave it one by one. The same look at all finds one that has waited too long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::admission::{Admission, Overdue};
use super::queue::Order;
use super::request::Waiting;
use crate::cache::Session;
use crate::sync::Arc;

/// Requests far behind the best in an order's eyes: so many, or a sixteenth of all, are few.
const FEW: usize = 8;

/// One request as a pass saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ranked {
    /// How much the order prefers it.
    rank: i64,
    name: u64,
    /// Steps of the queue when it was submitted.
    arrived: u64,
}

/// A scheduler's view of the queue in one pass.
#[derive(Debug, Default)]
pub(super) struct Pick {
    /// What was ready when the pass looked at all.
    ranked: Option<Vec<Ranked>>,
    /// Rank and name of the same, the best on top.
    best: Option<BinaryHeap<(i64, Reverse<u64>)>>,
    /// It was time for one that had come by then.
    latest: Option<u64>,
    /// The last choice was one that had waited too long, of so many, since then.
    pub(super) overdue: Option<(Overdue, u64)>,
}

impl Pick {
    /// A new pass: what the last one found may have changed.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// Looks at all that wait, if the next choice needs it; before the turn, for it may take long.
    pub(super) fn look(&mut self, admission: &Admission, session: &Session) {
        let order = admission.config.order;
        if order == Order::Fcfs {
            return;
        }
        self.latest = admission.overdue();
        if self.ranked.is_none() && (self.latest.is_some() || order == Order::LongestPrefix) {
            let ranked = |waiting: Arc<Waiting>| Ranked {
                rank: rank(order, &waiting, session),
                name: waiting.ticket.id.0,
                arrived: waiting.ticket.arrived,
            };
            self.ranked = Some(admission.list().into_iter().map(ranked).collect());
        }
        if order == Order::LongestPrefix && self.best.is_none() {
            let ranked = self.ranked.iter().flatten();
            self.best = Some(ranked.map(|seen| (seen.rank, Reverse(seen.name))).collect::<Vec<_>>().into());
        }
    }

    /// Requests that the pass has looked at, all at once.
    pub(super) fn looked_at(&self) -> usize {
        self.ranked.as_ref().map_or(0, Vec::len)
    }

    /// The next request to try, in the caller's turn: one that has waited too long if it is time for it, else the
    /// order's choice.
    pub(super) fn next(&mut self, admission: &Admission) -> Option<Arc<Waiting>> {
        self.overdue = None;
        // Another scheduler may have served one in a turn between.
        if let Some(latest) = self.latest.take().filter(|_| admission.overdue().is_some()) {
            if let Some(waiting) = self.last_in_order(admission, latest) {
                return Some(waiting);
            }
        }
        if admission.config.order == Order::LongestPrefix { self.first_in_order(admission) } else { admission.first() }
    }

    /// Who came by `latest` and would be served last of all; of equals, whoever came first.
    fn last_in_order(&mut self, admission: &Admission, latest: u64) -> Option<Arc<Waiting>> {
        let ranked = self.ranked.as_ref()?;
        let ranks = || ranked.iter().map(|seen| seen.rank);
        // Half as good as the best, counted from what is worth nothing.
        let (best, nothing) = (ranks().max()?, ranks().min()?.min(0));
        let half = nothing + (best - nothing) / 2;
        let due = ranked.iter().filter(|seen| seen.arrived <= latest);
        let behind = due.clone().filter(|seen| seen.rank < half).count();
        let many = if behind > FEW.max(ranked.len() / 16) { Overdue::Many } else { Overdue::Few };
        let mut last: BinaryHeap<_> = due.map(|seen| Reverse((seen.rank, seen.name, seen.arrived))).collect();
        while let Some(Reverse((_, name, arrived))) = last.pop() {
            if let Some(waiting) = admission.find(name) {
                self.overdue = Some((many, arrived));
                return Some(waiting);
            }
        }
        None
    }

    fn first_in_order(&mut self, admission: &Admission) -> Option<Arc<Waiting>> {
        while let Some((_, Reverse(name))) = self.best.as_mut()?.pop() {
            // Another scheduler may have been faster.
            if let Some(waiting) = admission.find(name) {
                return Some(waiting);
            }
        }
        None
    }
}

/// What an order prefers, as far as it is a matter of the request alone.
fn rank(order: Order, waiting: &Waiting, session: &Session) -> i64 {
    match order {
        Order::Priority => i64::from(waiting.ticket.priority),
        _ => session.peek(&waiting.ticket.namespace, waiting.matchable()) as i64,
    }
}
