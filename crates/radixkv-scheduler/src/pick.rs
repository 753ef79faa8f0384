//! Chooses the request that a scheduler tries next.
//!
//! If an order depends only on the requests, [`Admission`] knows the preferred one. Under
//! [`Order::LongestPrefix`], one pass looks up the cached prefix of every ready request, without a
//! lock and before the turn. The pass builds a heap, from which candidates are popped one by one.
//! It also finds the overdue requests; under other orders a pass is needed only for these.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use radixkv::Session;

use super::admission::{Admission, Overdue};
use super::config::Order;
use super::request::{SequenceId, Waiting};
use crate::sync::Arc;

/// Up to this many overdue requests of low rank count as few, or a sixteenth of the queue if that
/// is more.
const FEW: usize = 8;

/// One request, as seen by a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RankedRequest {
    /// How much the order prefers the request.
    rank: i64,
    id: SequenceId,
    /// The queue's number of steps when the request was submitted.
    arrived: u64,
}

/// A scheduler's view of the queue in one pass.
#[derive(Debug, Default)]
pub(super) struct Pick {
    /// All ready requests, if the pass has looked at them.
    ranked: Option<Vec<RankedRequest>>,
    /// Rank and id of these requests, the best one on top.
    best: Option<BinaryHeap<(i64, Reverse<SequenceId>)>>,
    /// If an overdue request is due: the step up to which arrivals are overdue.
    latest: Option<u64>,
    /// If the last choice was an overdue request: whether few or many are overdue, and its arrival
    /// step.
    pub(super) overdue: Option<(Overdue, u64)>,
}

impl Pick {
    /// Begins a new pass: the results of the last one may be outdated.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// Looks at all ready requests, if the next choice needs it. Called before the turn, because
    /// this may take long.
    pub(super) fn look(&mut self, admission: &Admission, session: &Session) {
        let order = admission.config.order;
        if order == Order::Fcfs {
            return;
        }
        self.latest = admission.overdue();
        if self.ranked.is_none() && (self.latest.is_some() || order == Order::LongestPrefix) {
            let ranked = |waiting: Arc<Waiting>| RankedRequest {
                rank: rank(order, &waiting, session),
                id: waiting.ticket.id,
                arrived: waiting.ticket.arrived,
            };
            self.ranked = Some(admission.list().into_iter().map(ranked).collect());
        }
        if order == Order::LongestPrefix && self.best.is_none() {
            let ranked = self.ranked.iter().flatten();
            self.best = Some(ranked.map(|seen| (seen.rank, Reverse(seen.id))).collect::<Vec<_>>().into());
        }
    }

    /// The number of requests that the pass has looked at; 0 if no pass was needed.
    pub(super) fn looked_at(&self) -> usize {
        self.ranked.as_ref().map_or(0, Vec::len)
    }

    /// Returns the next request to try: an overdue one if one is due, else the one that the order
    /// prefers. The caller has the turn.
    pub(super) fn next(&mut self, admission: &Admission) -> Option<Arc<Waiting>> {
        self.overdue = None;
        // Another scheduler may have admitted an overdue request since.
        if let Some(latest) = self.latest.take().filter(|_| admission.overdue().is_some()) {
            if let Some(waiting) = self.last_in_order(admission, latest) {
                return Some(waiting);
            }
        }
        if admission.config.order == Order::LongestPrefix { self.first_in_order(admission) } else { admission.first() }
    }

    /// Returns the request, among those that arrived by step `latest`, that the order would admit
    /// last; among equals, the oldest one.
    fn last_in_order(&mut self, admission: &Admission, latest: u64) -> Option<Arc<Waiting>> {
        let ranked = self.ranked.as_ref()?;
        let ranks = || ranked.iter().map(|seen| seen.rank);
        // Half of the best rank, counted from 0, or from the lowest rank if that is negative.
        let (best, zero) = (ranks().max()?, ranks().min()?.min(0));
        let half = zero + (best - zero) / 2;
        let overdue = ranked.iter().filter(|seen| seen.arrived <= latest);
        let behind = overdue.clone().filter(|seen| seen.rank < half).count();
        let many = if behind > FEW.max(ranked.len() / 16) { Overdue::Many } else { Overdue::Few };
        let mut last: BinaryHeap<_> = overdue.map(|seen| Reverse((seen.rank, seen.id, seen.arrived))).collect();
        while let Some(Reverse((_, id, arrived))) = last.pop() {
            if let Some(waiting) = admission.find(id) {
                self.overdue = Some((many, arrived));
                return Some(waiting);
            }
        }
        None
    }

    /// Returns the ready request with the longest cached prefix.
    fn first_in_order(&mut self, admission: &Admission) -> Option<Arc<Waiting>> {
        while let Some((_, Reverse(id))) = self.best.as_mut()?.pop() {
            // Another scheduler may have admitted it since the pass.
            if let Some(waiting) = admission.find(id) {
                return Some(waiting);
            }
        }
        None
    }
}

/// How much an order prefers a request: its priority, or its cached tokens.
fn rank(order: Order, waiting: &Waiting, session: &Session) -> i64 {
    match order {
        Order::Priority => i64::from(waiting.ticket.priority),
        _ => session.peek(&waiting.ticket.namespace, waiting.matchable()) as i64,
    }
}
