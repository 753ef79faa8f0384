//! Counting lookups, their hits, and the reasons of their misses: in total and for each namespace.

use super::ghost_table::Seen;
use super::lookup_stats::{Found, LookupStats, NamespaceLookups};
use crate::block::BlockLayout;
use crate::cache::inner::Inner;
use crate::cache::leases::lease::Lease;
use crate::cache::namespaces::namespace::Namespace;
use crate::key::Token;
use crate::reclaim::{Guard, RowId};
use crate::tree::NamespaceAccount;

/// A lookup to count: the sequence, and the namespace's row of counters.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct Query<'a> {
    pub(in crate::cache) row: RowId,
    pub(in crate::cache) layout: BlockLayout,
    pub(in crate::cache) tokens: &'a [Token],
}

impl Namespace {
    /// A lookup of `tokens` in it.
    #[inline]
    pub(in crate::cache) fn query<'a>(&self, tokens: &'a [Token]) -> Query<'a> {
        Query { row: self.0.row, layout: self.0.layout, tokens }
    }
}

impl Inner {
    /// Counts a lookup with the result `lease`, whose walk ended at `reached`.
    #[inline]
    pub(in crate::cache) fn count_lookup(&self, query: Query<'_>, lease: &Lease, reached: usize, guard: &Guard<'_>) {
        let (asked, found) = (query.tokens.len(), lease.len_tokens());
        let counts = [(Found::Lookups, 1), (Found::QueryTokens, asked), (Found::HitTokens, found)];
        count_in(query.row, counts, guard);
        if asked - found >= query.layout.tokens() + query.layout.offset() as usize {
            self.count_missed(query, lease, reached, guard);
        }
    }

    /// Counts the whole blocks that a lookup missed, under the reason for the first of them.
    #[cold]
    fn count_missed(&self, query: Query<'_>, lease: &Lease, reached: usize, guard: &Guard<'_>) {
        let Query { row, layout, tokens } = query;
        let next = layout.end_of(layout.blocks(layout.depth_of(lease.len_tokens())) + 1);
        let reason = match self.seen.look(row.serial, &tokens[..next], layout) {
            Seen::Here => Found::MissedEvicted,
            // The walk found the whole block, which could not be leased any more.
            _ if reached >= next => Found::MissedEvicted,
            _ if layout.filled(reached) > lease.len_tokens() => Found::MissedDiverged,
            Seen::Elsewhere => Found::MissedElsewhere,
            Seen::Nowhere => Found::MissedNew,
        };
        let missed = layout.filled(layout.boundary(tokens.len())) - lease.len_tokens();
        count_in(row, [(reason, missed)], guard);
    }

    /// The lookups of each namespace with its own counters, and of all other namespaces together.
    pub(in crate::cache) fn lookups_by_namespace(&self) -> Vec<NamespaceLookups> {
        let all = self.namespaces.all();
        let counted = all.iter().filter_map(|state| {
            let lookups = self.lookups_of(&state.account)?;
            Some(NamespaceLookups { namespace: Some(state.account.name.clone()), lookups })
        });
        let mut each: Vec<_> = counted.collect();
        let own = each.iter().fold(LookupStats::default(), |sum, of| sum.combine(&of.lookups, u64::wrapping_add));
        // Read last, so that the total is not less than the sum of its parts.
        let lookups = self.all_lookups().combine(&own, u64::saturating_sub);
        each.push(NamespaceLookups { namespace: None, lookups });
        each
    }

    /// The lookups of all namespaces.
    pub(in crate::cache) fn all_lookups(&self) -> LookupStats {
        LookupStats::of(self.domain.records().sum_of_rows())
    }

    /// The lookups of one namespace, if it has its own counters.
    pub(in crate::cache) fn lookups_of(&self, account: &NamespaceAccount) -> Option<LookupStats> {
        let row = &account.row;
        row.id().is_own().then(|| LookupStats::of(self.domain.records().counted_in(row)))
    }
}

/// Counts tokens that a resume found beyond its lease.
#[inline]
pub(in crate::cache) fn count_resumed(row: RowId, tokens: usize, guard: &Guard<'_>) {
    count_in(row, [(Found::ResumedTokens, tokens)], guard);
}

#[inline]
fn count_in<const N: usize>(row: RowId, amounts: [(Found, usize); N], guard: &Guard<'_>) {
    guard.record().add_in(row, amounts.map(|(found, amount)| (found as usize, amount as u64)));
}

#[cfg(all(test, not(any(radixkv_loom, radixkv_shuttle))))]
mod tests;
