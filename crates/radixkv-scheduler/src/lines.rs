//! Queues ("lines") of requests that wait for their namespace's quota: one line per namespace, so
//! that none delays another. The lock of [`Admission`](super::admission::Admission) guards them.
//!
//! A request that the quota refuses moves from the ready requests to its namespace's line, as does
//! each later request of that namespace when it is tried. Each step releases the preferred request
//! of each of the next few lines, in rotation, so that the step has time for other requests. A
//! released request is ready again; when it is admitted or waits for a claim, the next one of its
//! line is released.

use std::collections::{HashMap, VecDeque};

use radixkv::Namespace;

use super::config::Order;
use super::ready::Ready;
use super::request::{SequenceId, Waiting};
use crate::sync::Arc;

#[derive(Debug)]
pub(super) struct Lines {
    order: Order,
    lines: HashMap<Namespace, Line>,
    /// The namespaces of all lines, in rotation: the next one is at the front.
    turns: VecDeque<Namespace>,
}

#[derive(Debug)]
struct Line {
    waiting: Ready,
    /// The released request, until it is admitted, waits again or is aborted.
    out: Option<SequenceId>,
}

impl Lines {
    pub(super) fn new(order: Order) -> Self {
        Self { order, lines: HashMap::new(), turns: VecDeque::new() }
    }

    /// Adds a request to its namespace's line.
    pub(super) fn insert(&mut self, waiting: Arc<Waiting>) {
        let namespace = &waiting.ticket.namespace;
        let line = self.lines.entry(namespace.clone()).or_insert_with(|| {
            self.turns.push_back(namespace.clone());
            Line { waiting: Ready::new(self.order), out: None }
        });
        line.out = line.out.filter(|out| *out != waiting.ticket.id);
        line.waiting.insert(waiting);
    }

    /// Whether a ready request must wait behind others of its namespace.
    pub(super) fn holds_back(&self, waiting: &Waiting) -> bool {
        self.lines.get(&waiting.ticket.namespace).is_some_and(|line| line.out != Some(waiting.ticket.id))
    }

    /// Removes an aborted request.
    pub(super) fn remove(&mut self, namespace: &Namespace, id: SequenceId) -> Option<Arc<Waiting>> {
        let removed = self.lines.get_mut(namespace)?.waiting.remove(id);
        self.close_if_empty(namespace);
        removed
    }

    /// Releases one request from each of the next `most` lines; they are now ready.
    pub(super) fn let_out(&mut self, most: usize) -> Vec<Arc<Waiting>> {
        let next = most.min(self.turns.len());
        self.turns.rotate_left(next);
        let turn = self.turns.iter().rev().take(next).rev();
        turn.filter_map(|namespace| self.lines.get_mut(namespace)?.next_out()).collect()
    }

    /// The number of lines.
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    /// Called when a request is no longer ready and does not return to its line. If it had been
    /// released and `goes_on`, because it was admitted or waits for a claim, releases and returns
    /// the next one of its line.
    pub(super) fn left(&mut self, waiting: &Waiting, goes_on: bool) -> Option<Arc<Waiting>> {
        let namespace = &waiting.ticket.namespace;
        let line = self.lines.get_mut(namespace)?;
        if line.out != Some(waiting.ticket.id) {
            return None;
        }
        line.out = None;
        let next = if goes_on { line.next_out() } else { None };
        self.close_if_empty(namespace);
        next
    }

    fn close_if_empty(&mut self, namespace: &Namespace) {
        if self.lines.get(namespace).is_some_and(|line| line.out.is_none() && line.waiting.first().is_none()) {
            self.lines.remove(namespace);
            self.turns.retain(|of| of != namespace);
        }
    }
}

impl Line {
    fn next_out(&mut self) -> Option<Arc<Waiting>> {
        if self.out.is_some() {
            return None;
        }
        let id = self.waiting.first()?.ticket.id;
        self.out = Some(id);
        self.waiting.remove(id)
    }
}
