//! Room for blocks: which entry a put claims, and how entries of killed processes are recovered.
//! Used by the verbs of `region` and `digest`.

use super::{Region, count};
use crate::{
    digest::Kept,
    entry::{Claimed, Entry},
    geometry::SLOTS,
    process::ProcessId,
    state::{Kind, State},
    sync::{AtomicU64, Relaxed, gauge, model_size},
};

/// A put evicts the least recently used of this many entries.
const SAMPLE: usize = model_size(16, 1);
/// Entries that are checked before a put gives up.
const LOOKS: usize = 1024;

/// Chooses the blocks that a sweep may evict.
type IsMeant<'a> = &'a dyn Fn(&Entry<'_>) -> bool;

impl Region {
    /// Recovers the entries and process slots of killed processes. Returns how many entries.
    ///
    /// [`open`](Self::open) calls it, and so does a put that finds no room. Only one thread of a
    /// `Region` recovers at a time; the others return at once. Does nothing in a forked child.
    pub fn recover(&self) -> usize {
        if self.is_own() { (0..SLOTS).map(|slot| self.recover_slot(slot)).sum() } else { 0 }
    }

    /// Removes all blocks of a namespace that were stored before the call. Returns how many.
    ///
    /// Does nothing in a forked child.
    pub fn clear_namespace(&self, namespace: &[u8]) -> usize {
        let namespace = self.layout.chain(namespace).namespace();
        self.discard_all(|entry| entry.is_of(namespace))
    }

    /// Removes all blocks that were stored before the call. Returns how many. Does nothing in a
    /// forked child.
    pub fn clear(&self) -> usize {
        self.discard_all(|_| true)
    }

    /// Recovers the entries of a slot's owner, if it is dead. Returns how many.
    pub(super) fn recover_slot(&self, slot: usize) -> usize {
        // One recovering thread is enough; the next call handles what it misses.
        let Ok(_one) = self.recovering.try_lock() else { return 0 };
        if slot >= SLOTS || slot == self.slot || !self.slots().take_over(slot, self.own) {
            return 0;
        }
        let entries = self.take_back(slot);
        // Before the slot is free: if this process is killed here, the next one does it again.
        self.show_free();
        self.recount();
        self.slots().free(slot);
        self.counts.recovered.fetch_add(entries as u64, gauge::Relaxed);
        entries
    }

    /// The pid of the process that owns a slot, and whether it is dead.
    pub(crate) fn owner_of(&self, slot: usize) -> Option<(u32, bool)> {
        // Locks do not tell the threads of a process apart, nor a forked child and its parent: a
        // thread must not try them while another one recovers. An observer holds none.
        let one = self.recovering.try_lock();
        let may_lock = one.is_ok() && slot != self.slot && (self.is_own() || self.own == ProcessId::NONE);
        self.slots().owner(slot, self.own, may_lock)
    }

    /// Gives back the entries of a slot that this process owns.
    pub(super) fn take_back(&self, slot: usize) -> usize {
        let held = (0..self.geometry.entries).filter_map(|entry| self.entry(entry).held_by(slot));
        held.map(|claimed| self.empty(claimed)).count()
    }

    /// Clears the bits that hide free entries, which a killed process may have left set.
    pub(super) fn show_free(&self) {
        let taken = self.taken();
        for entry in 0..self.geometry.entries {
            // The owner of one that is being given back may have cleared its bit already.
            if self.entry(entry).look().kind() != Kind::Ready && taken.is_hidden(entry) {
                taken.clear(entry);
            }
        }
    }

    /// Claims an entry for a block: a free or expired one, or the least recently used of a sample.
    /// Recovers killed processes if it finds none.
    pub(super) fn make_room(&self) -> Option<Claimed<'_>> {
        self.sweep().or_else(|| if self.recover() > 0 { self.sweep() } else { None })
    }

    /// Removes a block, if its entry is still in this state.
    pub(crate) fn discard(&self, entry: Entry<'_>, seen: State) -> bool {
        let claimed = if self.is_own() { entry.claim(seen, self.slot) } else { None };
        claimed.map(|claimed| self.empty(claimed)).is_some()
    }

    /// Removes a claimed entry's cell, and gives the entry back.
    pub(crate) fn empty(&self, claimed: Claimed<'_>) {
        let entry = claimed.entry();
        self.uncharge(&claimed, Kept::default());
        self.index().remove(entry.hash(), entry.number());
        self.release(claimed);
    }

    /// Gives back a claimed entry that has no cell.
    pub(crate) fn release(&self, claimed: Claimed<'_>) {
        self.taken().clear(claimed.entry().number());
        claimed.give_back();
    }

    pub(crate) fn discard_all(&self, is_meant: impl Fn(&Entry<'_>) -> bool) -> usize {
        let entries = (0..self.geometry.entries).map(|entry| self.entry(entry));
        let discarded = entries.filter(|entry| {
            let state = entry.look();
            state.kind() == Kind::Ready && is_meant(entry) && self.discard(*entry, state)
        });
        discarded.count()
    }

    /// Claims a free entry; if there is none, an expired one, or the least recently used of a sample
    /// that begins at the clock's position.
    pub(crate) fn sweep(&self) -> Option<Claimed<'_>> {
        // Relaxed: the clock only says where to begin.
        let now = self.clock().fetch_add(1, Relaxed);
        self.claim_free(now).or_else(|| self.sweep_from(now, now, self.clock(), None))
    }

    /// Claims a free entry, beginning at the clock's position.
    fn claim_free(&self, now: u64) -> Option<Claimed<'_>> {
        let (taken, start) = (self.taken(), (now % self.geometry.entries as u64) as usize);
        let (mut from, mut is_again) = (start, false);
        for _ in 0..self.looks() {
            let Some(number) = taken.next_free(from).filter(|number| !is_again || *number < start) else {
                if is_again || start == 0 {
                    return None;
                }
                (from, is_again) = (0, true);
                continue;
            };
            let entry = self.entry(number);
            let state = entry.look();
            match state.kind() {
                Kind::Writing => {}
                Kind::Ready => {
                    // Its bit is clear for no reason, unless it was given back meanwhile.
                    taken.set(number);
                    if entry.look().kind() != Kind::Ready {
                        taken.clear(number);
                    }
                }
                Kind::Free | Kind::Unknown => {
                    if let Some(claimed) = self.displace(entry, state, Kept::default()) {
                        return Some(claimed);
                    }
                }
            }
            from = number + 1;
        }
        None
    }

    /// Claims the least recently used of a sample of blocks that satisfy `is_meant`, or an expired
    /// one, beginning at the position of `hand`. The caller takes over the charges in `kept`.
    pub(crate) fn sweep_blocks(&self, hand: &AtomicU64, is_meant: IsMeant<'_>, kept: Kept) -> Option<Claimed<'_>> {
        // Relaxed: as above.
        let (from, now) = (hand.fetch_add(1, Relaxed), self.clock().load(Relaxed));
        self.sweep_from(from, now, hand, Some((is_meant, kept)))
    }

    fn sweep_from(
        &self,
        from: u64,
        now: u64,
        hand: &AtomicU64,
        meant: Option<(IsMeant<'_>, Kept)>,
    ) -> Option<Claimed<'_>> {
        let (entries, kept) = (self.geometry.entries, meant.map_or(Kept::default(), |(_, kept)| kept));
        let mut oldest: Option<(Entry<'_>, State)> = None;
        for looked in 0..self.looks() {
            if looked > 0 {
                // Relaxed: as above.
                hand.fetch_add(1, Relaxed);
            }
            let entry = self.entry((from.wrapping_add(looked as u64) % entries as u64) as usize);
            let state = entry.look();
            match state.kind() {
                Kind::Writing => {}
                kind if meant.is_some_and(|(is_meant, _)| kind != Kind::Ready || !is_meant(&entry)) => {}
                Kind::Ready if !entry.has_expired() => {
                    if oldest.is_none_or(|(oldest, _)| age(oldest.used(), now) < age(entry.used(), now)) {
                        oldest = Some((entry, state));
                    }
                }
                _ => {
                    if let Some(claimed) = self.displace(entry, state, kept) {
                        return Some(claimed);
                    }
                }
            }
            let oldest = if looked + 1 < SAMPLE.min(entries) { None } else { oldest.take() };
            if let Some(claimed) = oldest.and_then(|(entry, state)| self.displace(entry, state, kept)) {
                return Some(claimed);
            }
        }
        None
    }

    /// How many entries a put checks. In a small region it checks each of them twice: an entry that
    /// was being written at first may be given back by then.
    pub(super) fn looks(&self) -> usize {
        LOOKS.min(2 * self.geometry.entries)
    }

    /// Claims an entry in any state, and removes its cell. The caller takes over the charges in
    /// `kept`.
    pub(crate) fn displace<'r>(&'r self, entry: Entry<'r>, seen: State, kept: Kept) -> Option<Claimed<'r>> {
        let has_expired = entry.has_expired();
        let claimed = entry.claim(seen, self.slot)?;
        if seen.kind() != Kind::Ready {
            self.taken().set(entry.number());
        }
        if seen.kind() == Kind::Ready {
            count(if has_expired { &self.counts.expired } else { &self.counts.evicted });
        }
        self.uncharge(&claimed, kept);
        if matches!(seen.kind(), Kind::Ready | Kind::Unknown) {
            self.index().remove(entry.hash(), entry.number());
        }
        Some(claimed)
    }
}

/// How long ago a block was last used. Negative if another thread used it after `now` was read.
pub(crate) fn age(used: u64, now: u64) -> i64 {
    now.wrapping_sub(used) as i64
}

#[cfg(all(test, not(radixkv_loom)))]
mod tests {
    use super::*;
    use crate::{
        Layout, Memory,
        region::{Put, Reserve},
    };

    /// While a thread looks for room, others use blocks, and the clock advances.
    #[test]
    fn what_was_used_after_the_look_began_is_not_the_oldest() {
        let layout = Layout::new(1, 8, 4);
        let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
        let region = Region::format(memory, &layout).expect("formatted");
        let key = |token| layout.chain(b"").next(&[token]);
        (0..4).for_each(|token| assert_eq!(region.put(&key(token), &[token], &[0; 8]), Ok(Put::Stored)));
        for used in 0..4 {
            let (entry, _) = region.find(&key(used), &[used]).expect("there");
            entry.touch(region.clock().load(Relaxed) + 10);
            assert_eq!(region.put(&key(used + 4), &[used + 4], &[0; 8]), Ok(Put::Stored));
            assert!(region.contains(&key(used), &[used]));
            (0..4).for_each(|token| assert!(region.put(&key(token), &[token], &[0; 8]).is_ok()));
        }
    }

    /// A killed process set the bit of an entry that another one is about to give back.
    // Holds: RG9.
    #[test]
    fn a_recovery_clears_the_bit_of_an_entry_that_is_given_back_meanwhile() {
        let layout = Layout::new(1, 8, 130);
        let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
        let region = Region::format(memory, &layout).expect("formatted");
        let put = |token| region.put(&layout.chain(b"").next(&[token]), &[token], &[0; 8]);
        (0..130).for_each(|token| assert_eq!(put(token), Ok(Put::Stored)));
        let entry = region.entry(70);
        let claimed = entry.claim(entry.look(), region.slot).expect("a block");
        region.index().remove(entry.hash(), 70);
        region.taken().clear(70);
        region.taken().set(70);
        region.show_free();
        claimed.give_back();
        assert_eq!((put(130), region.stats().evicted), (Ok(Put::Stored), 0));
    }

    /// Flips each bit of the state while a put is in progress: blocks of other puts stay intact,
    /// whatever the damaged put writes afterwards.
    // Holds: RG7.
    #[test]
    fn a_flipped_bit_of_an_entry_that_is_written_gives_it_to_no_other_writer() {
        let layout = Layout::new(1, 8, 4);
        let key = |token| layout.chain(b"").next(&[token]);
        for bit in 0..64 {
            let memory = Memory::anonymous(layout.region_bytes().expect("a layout")).expect("memory");
            let region = Region::format(memory, &layout).expect("formatted");
            let Ok(Reserve::Room(mut room)) = region.reserve(&key(0), &[0], None) else { panic!("it is empty") };
            let written = (0..4).find(|&entry| region.entry(entry).look().kind() == Kind::Writing).expect("an entry");
            let state = region.geometry.record(written).start;
            // Relaxed: one thread.
            let word = &region.memory.words(state..state + 1)[0];
            word.store(word.load(Relaxed) ^ 1 << bit, Relaxed);
            let bytes = |token: u32| [token as u8; 8];
            for token in 1..9 {
                region.put(&key(token), &[token], &bytes(token)).expect("room");
            }
            room.write(0, &bytes(0));
            for token in 1..9 {
                let mut found = [0; 8];
                let is_hit = region.get_into(&key(token), &[token], &mut found).expect("one block").is_hit();
                assert!(!is_hit || found == bytes(token), "block {token}, bit {bit}");
            }
            room.publish();
        }
    }
}
