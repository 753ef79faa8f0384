//! The requests that are ready, by arrival and as their order prefers them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::prompts::Prompts;
use super::queue::Order;
use super::request::Waiting;
use crate::sync::Arc;

/// What finds the order's first without looking at all.
#[derive(Debug)]
enum Index {
    /// It is the one that came first, or a matter of what is cached for each.
    Arrival,
    /// By rank and name.
    Priority(BTreeSet<(Reverse<i32>, u64)>),
    /// By tokens; depth first goes on from where the last one was admitted.
    Prompts { tree: Prompts, last: Option<Arc<Waiting>> },
}

#[derive(Debug)]
pub(super) struct Ready {
    /// By name, which is the order of arrival.
    by_name: BTreeMap<u64, Arc<Waiting>>,
    index: Index,
}

impl Ready {
    pub(super) fn new(order: Order) -> Self {
        let index = match order {
            Order::Fcfs | Order::LongestPrefix => Index::Arrival,
            Order::Priority => Index::Priority(BTreeSet::new()),
            Order::DfsWeight => Index::Prompts { tree: Prompts::default(), last: None },
        };
        Self { by_name: BTreeMap::new(), index }
    }

    pub(super) fn insert(&mut self, waiting: Arc<Waiting>) {
        let name = waiting.ticket.id.0;
        match &mut self.index {
            Index::Arrival => {}
            Index::Priority(ranks) => drop(ranks.insert((Reverse(waiting.ticket.priority), name))),
            Index::Prompts { tree, .. } => tree.insert(name, &waiting, waiting.tokens.len()),
        }
        self.by_name.insert(name, waiting);
    }

    pub(super) fn remove(&mut self, name: u64) -> Option<Arc<Waiting>> {
        let waiting = self.by_name.remove(&name)?;
        match &mut self.index {
            Index::Arrival => {}
            Index::Priority(ranks) => drop(ranks.remove(&(Reverse(waiting.ticket.priority), name))),
            Index::Prompts { tree, .. } => tree.remove(name),
        }
        Some(waiting)
    }

    /// Takes out a request that is admitted.
    pub(super) fn admit(&mut self, name: u64) -> Option<Arc<Waiting>> {
        let waiting = self.remove(name)?;
        if let Index::Prompts { last, .. } = &mut self.index {
            *last = Some(Arc::clone(&waiting));
        }
        Some(waiting)
    }

    pub(super) fn get(&self, name: u64) -> Option<&Arc<Waiting>> {
        self.by_name.get(&name)
    }

    /// The one that came first.
    pub(super) fn oldest(&self) -> Option<&Arc<Waiting>> {
        self.by_name.first_key_value().map(|(_, waiting)| waiting)
    }

    /// The order's first, as far as it is a matter of the requests alone; else the one that came first.
    pub(super) fn first(&self) -> Option<&Arc<Waiting>> {
        match &self.index {
            Index::Arrival => self.oldest(),
            Index::Priority(ranks) => ranks.first().and_then(|&(_, name)| self.get(name)),
            Index::Prompts { tree, last } => tree.next(last.as_deref()).and_then(|name| self.get(name)),
        }
    }

    /// All of them, by arrival.
    pub(super) fn list(&self) -> Vec<Arc<Waiting>> {
        self.by_name.values().cloned().collect()
    }
}
