//! Who is admitted next.
//!
//! One pass looks at every waiting request: under [`Order::LongestPrefix`] it compares each prompt with what is cached
//! for it, under no lock. The pass sorts nothing: candidates lie in a heap and leave it one by one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::desk::{Desk, Due};
use super::queue::Order;
use super::request::Waiting;
use crate::cache::Session;
use crate::sync::Arc;

/// Requests far behind the best in an order's eyes: so many, or a sixteenth of all, are few.
const FEW: usize = 8;

/// A scheduler's view of the queue.
#[derive(Debug, Default)]
pub(super) struct Pick {
    /// What was ready at `version`.
    list: Vec<Arc<Waiting>>,
    version: Option<u64>,
    /// The present pass's candidates: rank and name, the best on top.
    ranked: Option<BinaryHeap<(i64, Reverse<u64>)>>,
    /// The same for depth first, the best in front.
    branch: VecDeque<u64>,
    /// The last choice was one that had waited too long, of so many.
    pub(super) due: Option<Due>,
    /// There was such a choice in this pass: one is enough, it takes a look at all.
    overruled: bool,
    /// Whoever was admitted last: depth first goes on from there.
    pub(super) last: Option<Arc<Waiting>>,
}

impl Pick {
    /// Candidates that depth first looks up at once.
    const BRANCH: usize = 32;

    /// A new pass: what the last one found may have changed.
    pub(super) fn begin(&mut self) {
        self.ranked = None;
        self.branch.clear();
        self.overruled = false;
    }

    /// Takes the next request out of the queue: one that has waited too long if it is time for it, else the order's
    /// choice.
    pub(super) fn next(&mut self, desk: &Desk, session: &Session) -> Option<Arc<Waiting>> {
        let order = desk.config.order;
        if order == Order::Fcfs {
            return desk.serve_oldest();
        }
        loop {
            self.due = None;
            let latest = if self.overruled { None } else { desk.due() };
            let name = if let Some(latest) = latest {
                self.overruled = true;
                self.last_in_order(desk, latest, |waiting| rank(order, waiting, session))?
            } else if order == Order::DfsWeight {
                self.next_of_branch(desk)?
            } else {
                self.first_in_order(desk, |waiting| rank(order, waiting, session))?
            };
            // Another scheduler may have been faster.
            if let Some(waiting) = desk.serve(name) {
                return Some(waiting);
            }
        }
    }

    /// Who came by `latest` and would be served last of all; of equals, whoever came first.
    fn last_in_order(&mut self, desk: &Desk, latest: u64, rank: impl Fn(&Waiting) -> i64) -> Option<u64> {
        desk.list(&mut self.list, &mut self.version);
        let ranks: Vec<i64> = self.list.iter().map(|waiting| rank(waiting)).collect();
        let half = ranks.iter().max()? / 2;
        let due = self.list.iter().zip(ranks).filter(|(waiting, _)| waiting.ticket.arrived <= latest);
        let behind = due.clone().filter(|&(_, rank)| rank < half).count();
        self.due = Some(if behind > FEW.max(self.list.len() / 16) { Due::Many } else { Due::Few });
        due.map(|(waiting, rank)| (rank, waiting.ticket.id.0)).min().map(|(_, name)| name)
    }

    fn first_in_order(&mut self, desk: &Desk, rank: impl Fn(&Waiting) -> i64) -> Option<u64> {
        let Self { list, version, ranked, .. } = self;
        let ranked = ranked.get_or_insert_with(|| {
            desk.list(list, version);
            list.iter().map(|waiting| (rank(waiting), Reverse(waiting.ticket.id.0))).collect::<Vec<_>>().into()
        });
        ranked.pop().map(|(_, Reverse(name))| name)
    }

    fn next_of_branch(&mut self, desk: &Desk) -> Option<u64> {
        if self.branch.is_empty() {
            self.branch = desk.depth_first(self.last.as_deref(), Self::BRANCH).into();
        }
        self.branch.pop_front()
    }
}

/// What an order prefers, as far as it is a matter of the request alone.
fn rank(order: Order, waiting: &Waiting, session: &Session) -> i64 {
    match order {
        Order::Priority => i64::from(waiting.ticket.priority),
        _ => session.peek(&waiting.ticket.namespace, waiting.matchable()) as i64,
    }
}
