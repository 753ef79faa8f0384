//! Rows in which all threads match hot prefixes: many shared ones, or one per thread.

use crate::arena::{
    contender::Contender,
    row::{Entry, Round, Row},
    rows::{Prefixes, hot_prefixes, look_up_each},
    settings::Settings,
};

const MANY: Prefixes = Prefixes::Many(64);

/// The row `contention-64`. `entries` are measured by [`look_up_many`].
pub(crate) fn many(settings: &Settings, entries: Vec<Entry>) -> Row {
    hot_prefixes("contention-64", "64 hot prefixes, each thread all of them in turn", MANY, settings, entries)
}

/// The row `disjoint`. `entries` are measured by [`look_up_own`].
pub(crate) fn disjoint(settings: &Settings, entries: Vec<Entry>) -> Row {
    hot_prefixes("disjoint", "a hot prefix for each thread", Prefixes::Own, settings, entries)
}

pub(crate) fn look_up_many<C: Contender>(settings: &Settings) -> Round {
    look_up_each::<C>(settings, MANY)
}

pub(crate) fn look_up_own<C: Contender>(settings: &Settings) -> Round {
    look_up_each::<C>(settings, Prefixes::Own)
}
