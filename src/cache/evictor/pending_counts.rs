//! Changes of the namespaces' counts of cached blocks that turns of one shard have made and not
//! written to the accounts yet.
//!
//! Writing an account fetches its cache line from the thread that wrote it last. Most turns remove
//! as many blocks of a namespace as they add, so a shard keeps the difference for the first
//! [`NAMESPACES`] namespaces that it meets, and the next turn of all writes it. Until then
//! [`Namespace::stats`](crate::Namespace::stats) shows the count of the last turn of all. No
//! decision depends on it: with a limit on cached blocks there are no turns of one.

use crate::sync::Arc;
use crate::tree::NamespaceAccount;

/// The most namespaces of which a shard keeps changes.
const NAMESPACES: usize = 8;

/// The changes that one shard keeps.
#[derive(Debug, Default)]
pub(super) struct PendingCounts(Vec<(Arc<NamespaceAccount>, isize)>);

impl PendingCounts {
    /// Keeps a change, or writes it if the changes of other namespaces are kept.
    pub(super) fn change(&mut self, account: &Arc<NamespaceAccount>, blocks: isize) {
        if let Some((_, kept)) = self.0.iter_mut().find(|(of, _)| Arc::ptr_eq(of, account)) {
            *kept += blocks;
        } else if self.0.len() < NAMESPACES {
            self.0.push((Arc::clone(account), blocks));
        } else {
            account.change_cached(blocks);
        }
    }

    /// Writes the changes to the accounts.
    pub(super) fn write(&mut self) {
        self.0.drain(..).for_each(|(account, blocks)| account.change_cached(blocks));
    }
}
