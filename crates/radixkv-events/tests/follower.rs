//! Batches that come twice, late, from another life, or not as batches.

use radixkv_events::{
    Batch, BlockHash, Event, FollowError, Follower, HoldError, Holdings, Medium, Numbered, Removed, Stored, Verdict,
    wire::{self, Format},
};

fn store(hash: u64, parent: Option<u64>, block_size: u32) -> Event {
    Event::Stored(Stored {
        hashes: vec![BlockHash::Unsigned(hash)],
        parent: parent.map(BlockHash::Unsigned),
        tokens: vec![7; block_size as usize],
        block_size,
        ..Stored::default()
    })
}

fn batch(seq: u64, time: f64, epoch: Option<u64>) -> Numbered {
    Numbered { seq, batch: Batch { time, events: vec![store(seq, None, 2)], rank: None, epoch } }
}

#[test]
fn gaps_and_duplicates_are_told_apart() {
    let mut follower = Follower::new();
    assert_eq!(follower.take(&batch(2, 1.0, None)), Ok(Verdict::Gap { missing: 0..2 }));
    for seq in 0..2 {
        assert_eq!(follower.take(&batch(seq, 0.0, None)), Ok(Verdict::Applied));
    }
    assert_eq!(follower.take(&batch(1, 0.0, None)), Ok(Verdict::Duplicate));
    assert_eq!(follower.take(&batch(2, 1.0, None)), Ok(Verdict::Applied));
    assert_eq!(follower.take(&batch(9, 2.0, None)), Ok(Verdict::Gap { missing: 3..9 }));
    assert!(follower.is_complete());
    follower.accept_gap(9);
    assert_eq!(follower.take(&batch(9, 2.0, None)), Ok(Verdict::Applied));
    let counts = follower.counts();
    assert_eq!((counts.batches, counts.gaps, counts.lost_batches, counts.duplicates), (4, 2, 6, 1));
    assert!(!follower.is_complete());
}

/// Another epoch is a restart, whatever the number; without epochs a number that comes again later
/// is one.
// Holds: WE11.
#[test]
fn restarts_are_no_gaps() {
    for (first, second) in [(Some(1), Some(2)), (None, None)] {
        let mut follower = Follower::new();
        (0..3).for_each(|seq| assert_eq!(follower.take(&batch(seq, 5.0, first)), Ok(Verdict::Applied)));
        assert_eq!(follower.take(&batch(0, 6.0, second)), Ok(Verdict::Restarted));
        assert!(follower.holdings().is_empty());
        assert_eq!(follower.take(&batch(0, 6.0, second)), Ok(Verdict::Applied));
        assert_eq!((follower.holdings().len(), follower.counts().restarts), (1, 1));
        assert_eq!(follower.epoch(), second);
    }
    let mut follower = Follower::new();
    assert_eq!(follower.take(&batch(0, 5.0, Some(1))), Ok(Verdict::Applied));
    assert_eq!(follower.take(&batch(1, 6.0, Some(2))), Ok(Verdict::Restarted));
    assert_eq!(follower.take(&batch(1, 6.0, Some(2))), Ok(Verdict::Gap { missing: 0..1 }));
}

/// Batches that a snapshot has already are no restart, though they come after it: also where no
/// epoch says so.
#[test]
fn batches_before_a_snapshot_are_duplicates() {
    for epoch in [Some(1), None] {
        let mut follower = Follower::new();
        follower.restore(3, epoch, &[store(0, None, 2)]).unwrap();
        assert_eq!(follower.take(&batch(2, 5.0, epoch)), Ok(Verdict::Duplicate));
        assert_eq!(follower.take(&batch(3, 6.0, epoch)), Ok(Verdict::Applied));
        assert_eq!((follower.holdings().len(), follower.counts().restarts), (2, 0));
    }
}

#[test]
fn garbage_is_counted_and_does_not_stop_what_follows() {
    let mut follower = Follower::new();
    assert_eq!(follower.take(&batch(0, 1.0, None)), Ok(Verdict::Applied));
    let error = follower.receive(1, b"garbage").unwrap_err();
    assert!(matches!(error, FollowError::Garbage(_)), "{error}");
    assert_eq!(follower.take(&batch(2, 2.0, None)), Ok(Verdict::Applied));
    assert_eq!((follower.counts().garbage, follower.counts().lost_batches, follower.is_complete()), (1, 1, false));
}

#[test]
fn another_block_size_is_refused_with_both_numbers() {
    for mut follower in [Follower::with_block_size(4), Follower::new()] {
        let of_four = Batch { events: vec![store(1, None, 4)], ..Batch::default() };
        assert_eq!(follower.receive(0, &wire::encode(&of_four, Format::Maps)), Ok(Verdict::Applied));
        let of_two = Batch { events: vec![store(2, None, 2)], ..Batch::default() };
        let error = follower.receive(1, &wire::encode(&of_two, Format::Maps)).unwrap_err();
        assert_eq!(error, FollowError::Refused(HoldError::BlockSize { expected: 4, got: 2 }));
        assert_eq!(error.to_string(), "the worker has blocks of 2 tokens, 4 expected");
        assert_eq!((follower.holdings().len(), follower.is_complete()), (1, false));
    }
}

/// A block is held as long as it is in a medium; groups of layers are apart; a removal without a
/// medium is from all.
#[test]
fn media_and_groups_are_kept_apart() {
    let stored = |medium: Medium, group: Option<u32>| {
        let Event::Stored(mut stored) = store(1, None, 2) else { unreachable!() };
        (stored.medium, stored.group.index) = (Some(medium), group);
        Event::Stored(stored)
    };
    let removed = |medium: Option<Medium>, group: Option<u32>| {
        let mut removed = Removed { hashes: vec![BlockHash::Unsigned(1)], medium, ..Removed::default() };
        removed.group.index = group;
        Event::Removed(removed)
    };
    let mut holdings = Holdings::default();
    let mut apply = |event: Event| {
        holdings.apply(&event).unwrap();
        (holdings.len(), holdings.by_medium().iter().map(|(_, blocks)| *blocks).collect::<Vec<_>>())
    };
    assert_eq!(apply(stored(Medium::Gpu, None)), (1, vec![1]));
    assert_eq!(apply(stored(Medium::Cpu, None)), (1, vec![1, 1]));
    assert_eq!(apply(removed(Some(Medium::Gpu), None)), (1, vec![0, 1]));
    assert_eq!(apply(stored(Medium::Gpu, Some(1))), (2, vec![1, 1]));
    assert_eq!(apply(removed(Some(Medium::Cpu), Some(0))), (1, vec![1, 0]));
    assert_eq!(apply(removed(None, Some(1))), (0, vec![0, 0]));
}

/// A watcher that panics is called again for the next event, and the batch is applied as a whole.
#[test]
fn a_watcher_that_panics_is_counted() {
    let (sender, told) = std::sync::mpsc::channel();
    let mut follower = Follower::new().watched(move |update| {
        sender.send(format!("{update:?}")).unwrap();
        panic!("a watcher's panic");
    });
    let events = vec![store(1, None, 2), store(2, Some(1), 2)];
    let batch = Batch { time: 1.0, events, ..Batch::default() };
    assert_eq!(follower.take(&Numbered { seq: 0, batch }), Ok(Verdict::Applied));
    assert_eq!((follower.holdings().len(), follower.next_seq(), told.try_iter().count()), (2, Some(1), 2));
    assert_eq!(follower.restore(5, None, &[store(9, None, 2)]), Ok(()));
    assert_eq!((follower.holdings().len(), follower.counts().watcher_panics), (1, 4));
    assert!(follower.is_complete());
}

/// vLLM says no tokens of what it copied to the host: known blocks are in one more place, others
/// are held by name alone until their tokens are said.
// Holds: WE16.
#[test]
fn blocks_without_tokens_are_held_by_name() {
    let nameless = |hash: u64| {
        let hashes = vec![BlockHash::Unsigned(hash)];
        Event::Stored(Stored { hashes, block_size: 64, medium: Some(Medium::Cpu), ..Stored::default() })
    };
    let batch = Batch { events: vec![store(1, None, 2), nameless(1), nameless(2)], ..Batch::default() };
    let mut follower = Follower::with_block_size(2);
    assert_eq!(follower.receive(0, &wire::encode(&batch, Format::Maps)), Ok(Verdict::Applied));
    let mut holdings = follower.holdings().clone();
    assert_eq!(holdings.by_medium(), [(Medium::Gpu, 1), (Medium::Cpu, 2)]);
    let (known, unknown) = (BlockHash::Unsigned(1), BlockHash::Unsigned(2));
    assert_eq!((holdings.tokens_to(known).is_some(), holdings.tokens_to(unknown)), (true, None));
    assert_eq!((holdings.unrooted(), holdings.tokenless()), (1, 1));

    let mut again = Holdings::default();
    holdings.snapshot().iter().for_each(|event| again.apply(event).unwrap());
    assert_eq!((again.len(), again.unrooted(), again.tokens_to(known).is_some()), (2, 1, true));

    holdings.apply(&store(2, Some(1), 2)).unwrap();
    assert_eq!((holdings.unrooted(), holdings.tokens_to(unknown).map(|(_, tokens)| tokens.len())), (0, Some(4)));
    assert_eq!(holdings.tokenless(), 0);
}

/// Layers with a window say nothing of whole prefixes, whatever their block size is.
// Holds: WE16.
#[test]
fn groups_with_a_window_are_left_out() {
    let mut holdings = Holdings::with_block_size(2);
    let Event::Stored(mut stored) = store(1, None, 8) else { unreachable!() };
    stored.group.kind = Some("sliding_window".into());
    holdings.apply(&Event::Stored(stored)).unwrap();
    assert!(holdings.is_empty());
}

/// A publisher that says that blocks continue each other in a circle gets answers, not a thread.
#[test]
fn circles_end() {
    let mut holdings = Holdings::default();
    for (hash, parent) in [(1, 2), (2, 1), (3, 9)] {
        holdings.apply(&store(hash, Some(parent), 2)).unwrap();
    }
    assert_eq!(holdings.tokens_to(BlockHash::Unsigned(1)), None);
    assert_eq!((holdings.unrooted(), holdings.len()), (3, 3));
    assert_eq!(holdings.snapshot().len(), 1);
}

/// Numbers as large as they can be, jumping forth and back, from lives that change: every one has a
/// verdict.
#[test]
fn numbers_of_any_size_have_a_verdict() {
    let mut random = fastrand::Rng::with_seed(9);
    let mut follower = Follower::new();
    for _ in 0..5_000 {
        let near = |random: &mut fastrand::Rng, seq: u64| seq.wrapping_add(random.u64(..5)).wrapping_sub(2);
        let seq = match random.u32(..4) {
            0 => near(&mut random, u64::MAX),
            1 => near(&mut random, 0),
            2 => near(&mut random, follower.next_seq().unwrap_or(0)),
            _ => random.u64(..),
        };
        let epoch = random.choice([None, Some(1), Some(2)]).unwrap();
        let time = random.choice([0.0, 1.0, f64::NAN, f64::INFINITY, -1.0]).unwrap();
        match random.u32(..8) {
            0 => follower.accept_gap(seq),
            1 => follower.restore(seq, epoch, &[store(1, None, 2)]).unwrap(),
            2 => drop(follower.receive(seq, b"garbage").unwrap_err()),
            _ => match follower.take(&batch(seq, time, epoch)).unwrap() {
                Verdict::Gap { missing } => assert_eq!(missing.end, seq),
                Verdict::Applied => assert_eq!(follower.next_seq(), Some(seq.saturating_add(1))),
                Verdict::Duplicate | Verdict::Restarted => {}
            },
        }
    }
    assert!(follower.counts().restarts > 100 && follower.counts().batches > 100, "{follower:?}");
}

/// What is refused in the middle of a snapshot leaves a part of it, and is said to.
#[test]
fn a_snapshot_that_is_refused_is_not_complete() {
    let mut follower = Follower::new();
    let refused = follower.restore(7, None, &[store(1, None, 2), store(2, None, 4)]);
    assert_eq!(refused, Err(HoldError::BlockSize { expected: 2, got: 4 }));
    assert_eq!((follower.holdings().len(), follower.is_complete()), (1, false));
    follower.restore(7, None, &[store(1, None, 2)]).unwrap();
    assert!(follower.is_complete());
}

/// Whatever blocks come and go, they take the memory that is counted: what is full once is full
/// again after everything was removed and stored again, and no sooner.
// Holds: WE14.
#[test]
fn memory_is_bounded_and_given_back() {
    let stored = |from: u64, count: u64, tokens: bool| {
        let hashes: Vec<_> = (from..from + count).map(BlockHash::Unsigned).collect();
        let tokens = if tokens { vec![7; 4 * count as usize] } else { Vec::new() };
        Event::Stored(Stored { hashes, tokens, block_size: 4, ..Stored::default() })
    };
    let mut holdings = Holdings::default().max_bytes(1 << 20);
    let full = HoldError::TooManyBlocks { max_bytes: 1 << 20 };
    let mut filled = Vec::new();
    for round in 0..6 {
        let mut next = 0;
        let refused = loop {
            match holdings.apply(&stored(next, 16, round % 3 == 1)) {
                Ok(()) => next += 16,
                Err(refused) => break refused,
            }
        };
        assert_eq!((refused, holdings.len() as u64), (full, next));
        assert!(next > 1000, "{next}");
        // Blocks that are there take nothing more, also where their tokens come later.
        assert_eq!(holdings.apply(&stored(0, next - 16, false)), Ok(()));
        filled.push(next);
        if round % 2 == 0 {
            let hashes = (0..next).map(BlockHash::Unsigned).collect();
            holdings.apply(&Event::Removed(Removed { hashes, ..Removed::default() })).unwrap();
        } else {
            holdings.apply(&Event::Cleared).unwrap();
        }
        assert!(holdings.is_empty());
    }
    assert!(filled[..3] == filled[3..] && filled[0] > filled[1], "{filled:?}");
    let medium = Medium::from(&*"x".repeat(1 << 20));
    let removed = Removed { medium: Some(medium), ..Removed::default() };
    assert_eq!(holdings.apply(&Event::Removed(removed)), Err(full));
}
