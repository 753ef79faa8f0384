//! Room for blocks: which entry is taken for the next one, and what killed processes held.

use super::{Region, count};
use crate::{
    entry::{Claimed, Entry},
    geometry::SLOTS,
    state::{Kind, State},
    sync::{Relaxed, gauge},
};

/// Entries of which the one is evicted that was not used for the longest time.
const SAMPLE: usize = 16;
/// Entries that are looked at before a put gives up.
const LOOKS: usize = 1024;

impl Region {
    /// Gives back what killed processes held: their entries and their process slots. Returns how many entries.
    ///
    /// [`open`](Self::open) does so, and a put that finds no room. One thread of a `Region` does it at a time; the others
    /// return at once. In a forked child nothing is done.
    pub fn recover(&self) -> usize {
        if self.is_own() { (0..SLOTS).map(|slot| self.recover_slot(slot)).sum() } else { 0 }
    }

    /// Drops all blocks of a namespace that were put before the call. Returns how many.
    ///
    /// Nothing in a forked child.
    pub fn clear_namespace(&self, namespace: &[u8]) -> usize {
        let namespace = self.layout.chain(namespace).namespace();
        self.discard_all(|entry| entry.is_of(namespace))
    }

    /// Drops all blocks that were put before the call. Returns how many. Nothing in a forked child.
    pub fn clear(&self) -> usize {
        self.discard_all(|_| true)
    }

    /// Gives back what the process of a slot held, if it is dead.
    pub(super) fn recover_slot(&self, slot: usize) -> usize {
        // One thread that recovers is enough; what it does not get to, the next one does.
        let Ok(_one) = self.recovering.try_lock() else { return 0 };
        if slot >= SLOTS || !self.slots().take_over(slot, self.own) {
            return 0;
        }
        let entries = self.take_back(slot);
        self.slots().free(slot);
        self.counts.recovered.fetch_add(entries as u64, gauge::Relaxed);
        entries
    }

    /// Gives back the entries of a slot that is this process's.
    pub(super) fn take_back(&self, slot: usize) -> usize {
        let held = (0..self.geometry.entries).filter_map(|entry| self.entry(entry).held_by(slot));
        held.map(|claimed| self.empty(claimed)).count()
    }

    /// Claims an entry for a block: a free one, or the one of a few that was not used for the longest time.
    pub(super) fn make_room(&self) -> Option<Claimed<'_>> {
        self.sweep().or_else(|| if self.recover() > 0 { self.sweep() } else { None })
    }

    /// Drops a block, if it is still in this state.
    pub(super) fn discard(&self, entry: Entry<'_>, seen: State) -> bool {
        let claimed = if self.is_own() { entry.claim(seen, self.slot) } else { None };
        claimed.map(|claimed| self.empty(claimed)).is_some()
    }

    /// Gives a claimed entry back, and its cell.
    pub(super) fn empty(&self, claimed: Claimed<'_>) {
        let entry = claimed.entry();
        self.index().remove(entry.hash(), entry.number());
        claimed.give_back();
    }

    fn discard_all(&self, is_meant: impl Fn(&Entry<'_>) -> bool) -> usize {
        let entries = (0..self.geometry.entries).map(|entry| self.entry(entry));
        let discarded = entries.filter(|entry| {
            let state = entry.look();
            state.kind() == Kind::Ready && is_meant(entry) && self.discard(*entry, state)
        });
        discarded.count()
    }

    /// Goes over entries from where the clock stands.
    fn sweep(&self) -> Option<Claimed<'_>> {
        let entries = self.geometry.entries;
        // Relaxed, here and below: the clock says where to look, no more.
        let now = self.clock().fetch_add(1, Relaxed);
        let mut oldest: Option<(Entry<'_>, State, u64)> = None;
        // Twice, because what was looked at early may be given back meanwhile.
        for looked in 0..LOOKS.min(2 * entries) {
            if looked > 0 {
                self.clock().fetch_add(1, Relaxed);
            }
            let entry = self.entry((now.wrapping_add(looked as u64) % entries as u64) as usize);
            let state = entry.look();
            match state.kind() {
                Kind::Writing => {}
                Kind::Ready if entry.has_expired() => {
                    if let Some(claimed) = self.displace(entry, state) {
                        count(&self.counts.expired);
                        return Some(claimed);
                    }
                }
                Kind::Ready => {
                    let age = now.wrapping_sub(entry.used());
                    if oldest.is_none_or(|(_, _, oldest)| oldest < age) {
                        oldest = Some((entry, state, age));
                    }
                }
                Kind::Free | Kind::Unknown => {
                    if let Some(claimed) = self.displace(entry, state) {
                        return Some(claimed);
                    }
                }
            }
            if looked + 1 >= SAMPLE.min(entries)
                && let Some((entry, state, _)) = oldest.take()
                && let Some(claimed) = self.displace(entry, state)
            {
                count(&self.counts.evicted);
                return Some(claimed);
            }
        }
        None
    }

    /// Claims an entry, whatever it holds, and takes its cell away.
    fn displace<'r>(&'r self, entry: Entry<'r>, seen: State) -> Option<Claimed<'r>> {
        let claimed = entry.claim(seen, self.slot)?;
        if matches!(seen.kind(), Kind::Ready | Kind::Unknown) {
            self.index().remove(entry.hash(), entry.number());
        }
        Some(claimed)
    }
}
