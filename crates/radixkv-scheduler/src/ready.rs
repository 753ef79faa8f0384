//! The requests that are ready to be admitted, by arrival and in the queue's order.
//!
//! [`Admission`](super::admission::Admission) has one for all ready requests; each quota line has
//! its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::config::Order;
use super::prompts::Prompts;
use super::request::{SequenceId, Waiting};
use crate::sync::Arc;

/// Finds the request that the order prefers without visiting all of them.
#[derive(Debug)]
enum Index {
    /// Order of arrival, or an order that depends on the cache, which no index can follow.
    Arrival,
    /// By priority, then by arrival.
    Priority(BTreeSet<(Reverse<i32>, SequenceId)>),
    /// By tokens; the depth-first walk continues from `last`, the last admitted request.
    Prompts { tree: Prompts, last: Option<Arc<Waiting>> },
}

#[derive(Debug)]
pub(super) struct Ready {
    /// In order of arrival, which is the order of ids.
    by_id: BTreeMap<SequenceId, Arc<Waiting>>,
    index: Index,
}

impl Ready {
    pub(super) fn new(order: Order) -> Self {
        let index = match order {
            Order::Fcfs | Order::LongestPrefix => Index::Arrival,
            Order::Priority => Index::Priority(BTreeSet::new()),
            Order::DfsWeight => Index::Prompts { tree: Prompts::default(), last: None },
        };
        Self { by_id: BTreeMap::new(), index }
    }

    pub(super) fn insert(&mut self, waiting: Arc<Waiting>) {
        let id = waiting.ticket.id;
        match &mut self.index {
            Index::Arrival => {}
            Index::Priority(ranks) => drop(ranks.insert((Reverse(waiting.ticket.priority), id))),
            Index::Prompts { tree, .. } => tree.insert(id, &waiting, waiting.tokens.len()),
        }
        self.by_id.insert(id, waiting);
    }

    pub(super) fn remove(&mut self, id: SequenceId) -> Option<Arc<Waiting>> {
        let waiting = self.by_id.remove(&id)?;
        match &mut self.index {
            Index::Arrival => {}
            Index::Priority(ranks) => drop(ranks.remove(&(Reverse(waiting.ticket.priority), id))),
            Index::Prompts { tree, .. } => tree.remove(id),
        }
        Some(waiting)
    }

    /// Removes an admitted request; a depth-first walk continues from it.
    pub(super) fn admit(&mut self, id: SequenceId) -> Option<Arc<Waiting>> {
        let waiting = self.remove(id)?;
        if let Index::Prompts { last, .. } = &mut self.index {
            *last = Some(Arc::clone(&waiting));
        }
        Some(waiting)
    }

    pub(super) fn get(&self, id: SequenceId) -> Option<&Arc<Waiting>> {
        self.by_id.get(&id)
    }

    /// The oldest request.
    pub(super) fn oldest(&self) -> Option<&Arc<Waiting>> {
        self.by_id.first_key_value().map(|(_, waiting)| waiting)
    }

    /// The request that the order prefers, if the order depends only on the requests; else the
    /// oldest one.
    pub(super) fn first(&self) -> Option<&Arc<Waiting>> {
        match &self.index {
            Index::Arrival => self.oldest(),
            Index::Priority(ranks) => ranks.first().and_then(|&(_, id)| self.get(id)),
            Index::Prompts { tree, last } => tree.next(last.as_deref()).and_then(|id| self.get(id)),
        }
    }

    /// All requests, by arrival.
    pub(super) fn list(&self) -> Vec<Arc<Waiting>> {
        self.by_id.values().cloned().collect()
    }
}
