use std::collections::HashMap;

use super::*;

/// A chain beside a vector of its candidates, and the chunk of each candidate.
#[derive(Default)]
struct Pair {
    chain: Chain,
    order: Vec<CandidateId>,
    chunks: HashMap<CandidateId, ChunkId>,
}

impl Pair {
    fn add(&mut self, candidate: usize, first: bool) {
        let candidate = CandidateId::at(candidate);
        let chunk = if first { self.chain.push_first(candidate) } else { self.chain.push(candidate) };
        self.order.insert(if first { 0 } else { self.order.len() }, candidate);
        self.chunks.insert(candidate, chunk);
    }

    fn remove(&mut self, at: usize) {
        let candidate = self.order.remove(at);
        let chunk = self.chunks.remove(&candidate).expect("it is there");
        self.chain.remove(candidate, chunk, |moved, to| assert!(self.chunks.insert(moved, to).is_some()));
    }

    fn check(&self) {
        assert!(self.chain.is_sound());
        assert_eq!(self.chain.iter().collect::<Vec<_>>(), self.order);
        assert_eq!(
            (self.chain.first(), self.chain.last(), self.chain.len()),
            (self.order.first().copied(), self.order.last().copied(), self.order.len())
        );
        for (candidate, chunk) in &self.chunks {
            assert!(self.chain.has(*candidate, *chunk));
        }
    }

    fn chunks(&self) -> usize {
        self.chain.chunks.iter().count()
    }
}

#[test]
fn equals_a_vector_under_random_changes() {
    let mut dice = fastrand::Rng::with_seed(1);
    for share in [2, 5, 9] {
        let mut pair = Pair::default();
        for step in 0..3_000 {
            if pair.order.is_empty() || dice.usize(..10) < share {
                pair.add(step, dice.u8(..4) == 0);
            } else {
                pair.remove(dice.usize(..pair.order.len()));
            }
            if step % 10 == 0 {
                pair.check();
            }
        }
        while !pair.order.is_empty() {
            pair.remove(dice.usize(..pair.order.len()));
            pair.check();
        }
        assert!(pair.chain.chunks.room() <= 2 * PAGE && pair.chain.vacant.len() <= PAGE);
    }
}

#[test]
fn those_behind_are_found_over_chunks_of_any_length() {
    let mut pair = Pair::default();
    (0..200).for_each(|candidate| pair.add(candidate, false));
    let mut dice = fastrand::Rng::with_seed(2);
    while pair.order.len() > 30 {
        pair.remove(dice.usize(..pair.order.len()));
    }
    for (at, candidate) in pair.order.iter().enumerate() {
        for places in 0..40 {
            let behind = pair.chain.behind(*candidate, pair.chunks[candidate], places);
            assert_eq!(behind, pair.order.get(at + places).copied(), "{at}, {places}");
            assert!(at > 0 || pair.chain.behind_first(places) == behind, "{places}");
        }
    }
}

// Holds: NU10.
#[test]
fn few_of_many_need_little_memory() {
    let mut pair = Pair::default();
    (0..13_000).for_each(|candidate| pair.add(candidate, false));
    assert_eq!(pair.chunks(), 1_000);
    let mut dice = fastrand::Rng::with_seed(3);
    while pair.order.len() > 1_000 {
        pair.remove(dice.usize(..pair.order.len()));
    }
    pair.check();
    assert!(pair.chunks() <= 2 * 1_000 / 3 + 2, "{}", pair.chunks());
    let lens: Vec<_> = pair.chain.chunks.iter().map(|(_, chunk)| chunk.members().len()).collect();
    assert!(lens.iter().filter(|len| **len == 1).count() < lens.len() / 4, "{lens:?}");
}

#[test]
fn what_is_forgotten_is_freed_in_slices() {
    let mut pair = Pair::default();
    (0..100_000).for_each(|candidate| pair.add(candidate, false));
    (0..50_000).for_each(|_| pair.remove(0));
    pair.chain.forget();
    let slices = (1..).find(|_| !pair.chain.discard(4_000)).expect("it ends");
    assert!((10..40).contains(&slices), "{slices}");
    assert_eq!((pair.chain.first(), pair.chain.len(), pair.chain.chunks.room()), (None, 0, 0));
    assert_eq!(pair.chain.vacant.iter().count(), 0);
}

#[test]
fn ids_of_chunks_are_used_again() {
    let mut pair = Pair::default();
    (0..100).for_each(|candidate| pair.add(candidate, false));
    for candidate in 100..20_000 {
        pair.add(candidate, false);
        pair.remove(0);
    }
    pair.check();
    assert!(pair.chain.chunks.len() <= 12, "{}", pair.chain.chunks.len());
}

#[test]
fn a_lone_member_goes_before_those_of_the_next_chunk_if_the_one_before_is_full() {
    let mut pair = Pair::default();
    (0..3 * ROOM).for_each(|candidate| pair.add(candidate, false));
    // Two are left in the second chunk, and there is room in the third.
    (2..ROOM).for_each(|_| pair.remove(ROOM + 1));
    pair.remove(ROOM + 4);
    pair.remove(ROOM + 1);
    pair.check();
    assert_eq!(pair.chunks(), 2);
}

#[test]
fn a_lone_member_goes_to_the_chunk_before_if_there_is_room() {
    let mut pair = Pair::default();
    (0..3 * ROOM).for_each(|candidate| pair.add(candidate, false));
    pair.remove(3);
    (1..ROOM).for_each(|_| pair.remove(ROOM));
    pair.check();
    assert_eq!(pair.chunks(), 2, "the third is full");
}

#[test]
fn a_chain_of_many_chunks_that_is_empty_begins_anew() {
    let mut pair = Pair::default();
    (0..(PAGE + 2) * ROOM).for_each(|candidate| pair.add(candidate, false));
    (0..(PAGE + 2) * ROOM).for_each(|_| pair.remove(pair.order.len() - 1));
    assert_eq!((pair.chain.chunks.len(), pair.chain.vacant.len()), (0, 0));
    (0..3 * ROOM).for_each(|candidate| pair.add(candidate, false));
    (0..3 * ROOM).for_each(|_| pair.remove(0));
    assert_eq!((pair.chain.chunks.len(), pair.chain.vacant.len()), (3, 3), "few are kept");
}

#[test]
fn unsound_chains_are_noticed() {
    let noticed = |damage: &dyn Fn(&mut Chain)| {
        let mut pair = Pair::default();
        (0..3 * ROOM).for_each(|candidate| pair.add(candidate, false));
        (0..2 * ROOM).for_each(|_| pair.remove(ROOM / 2));
        assert!(pair.chain.is_sound());
        damage(&mut pair.chain);
        !pair.chain.is_sound()
    };
    assert!(noticed(&|chain| chain.len += 1));
    assert!(noticed(&|chain| _ = chain.vacant.pop()));
    assert!(noticed(&|chain| chain.ends.as_mut().expect("not empty").members.swap(0, 1)));
    assert!(noticed(&|chain| {
        let [_, last] = chain.ends.expect("not empty").chunks;
        chain.chunk(last).before = None;
    }));
}
