//! What becomes an event, and what is refused.

use radixkv_events::{Change, ChangeError, Event, HashScheme, Medium, Recorder, Removed, Scope, Stored, Tier};

fn recorder() -> Recorder {
    Recorder::builder(2, HashScheme::xxh3()).media(vec![Medium::Gpu, Medium::Cpu]).epoch(5).build()
}

fn stored<'a>(scope: &'a Scope, parent: Option<(Tier, u32)>, blocks: &'a [u32], tokens: &'a [u32]) -> Change<'a> {
    Change::Stored { tier: 0, scope, parent, blocks, tokens, bigrams: false }
}

fn events(recorder: &mut Recorder) -> Vec<Event> {
    recorder.take(0.0).map(|numbered| numbered.batch.events).unwrap_or_default()
}

// Holds: WE10.
#[test]
fn stores_that_continue_one_another_are_one_event() {
    let (mut recorder, plain, salt) = (recorder(), Scope::default(), Scope::salted("s"));
    recorder.record(&stored(&plain, None, &[4], &[1, 2])).unwrap();
    recorder.record(&stored(&plain, Some((0, 4)), &[5, 6], &[3, 4, 5, 6])).unwrap();
    // A sibling, another scope, and a continuation of what is not the last event.
    recorder.record(&stored(&plain, Some((0, 4)), &[7], &[9, 9])).unwrap();
    recorder.record(&stored(&salt, None, &[8], &[1, 2])).unwrap();
    recorder.record(&stored(&salt, Some((0, 8)), &[9], &[3, 4])).unwrap();
    recorder.record(&stored(&plain, Some((0, 6)), &[10], &[7, 8])).unwrap();
    let events = events(&mut recorder);
    let blocks: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::Stored(stored) => (stored.hashes.len(), stored.tokens.len(), stored.parent.is_some()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(blocks, [(3, 6, false), (1, 2, true), (2, 4, false), (1, 2, true)]);
    let Event::Stored(Stored { extra_keys: Some(keys), .. }) = &events[2] else { panic!("extra keys of a salt") };
    assert!(keys[0].is_some() && keys[1].is_none(), "a salt belongs to the first block");
    let Event::Stored(Stored { extra_keys: None, .. }) = &events[0] else { panic!("no extra keys without a scope") };
}

// Holds: WE10.
#[test]
fn a_trim_is_one_event_from_the_end_on() {
    let (mut recorder, plain) = (recorder(), Scope::default());
    recorder.record(&stored(&plain, None, &[1, 2, 3], &[1, 2, 3, 4, 5, 6])).unwrap();
    let names: Vec<_> = [3, 2].iter().map(|&block| recorder.name(0, block).unwrap()).collect();
    events(&mut recorder);
    recorder.record(&Change::Removed { tier: 0, blocks: &[3, 2] }).unwrap();
    let removed = Removed { hashes: names, medium: Some(Medium::Gpu), ..Removed::default() };
    assert_eq!(events(&mut recorder), [Event::Removed(removed)]);
    assert_eq!((recorder.name(0, 2), recorder.name(0, 1).is_some()), (None, true));
}

/// Only everything can be cleared on the wire: a scope's blocks are removed, children first.
#[test]
fn a_scope_is_cleared_block_by_block_and_everything_at_once() {
    let (mut recorder, plain, salt) = (recorder(), Scope::default(), Scope::salted("s"));
    recorder.record(&stored(&plain, None, &[1], &[1, 2])).unwrap();
    recorder.record(&stored(&salt, None, &[9, 3, 7], &[1, 2, 3, 4, 5, 6])).unwrap();
    let names: Vec<_> = [7, 3, 9].iter().map(|&block| recorder.name(0, block).unwrap()).collect();
    events(&mut recorder);
    recorder.record(&Change::ScopeCleared { scope: &salt, bigrams: false }).unwrap();
    let removed = Removed { hashes: names, medium: Some(Medium::Gpu), ..Removed::default() };
    assert_eq!(events(&mut recorder), [Event::Removed(removed)]);
    recorder.record(&Change::ScopeCleared { scope: &salt, bigrams: false }).unwrap();
    assert_eq!(events(&mut recorder), []);
    recorder.record(&Change::Cleared).unwrap();
    assert_eq!((events(&mut recorder), recorder.name(0, 1)), (vec![Event::Cleared], None));
}

#[test]
fn what_nobody_takes_is_lost_with_its_number() {
    let plain = Scope::default();
    let mut recorder = Recorder::builder(1, HashScheme::xxh3()).max_pending_blocks(2).build();
    recorder.record(&stored(&plain, None, &[0, 1], &[0, 1])).unwrap();
    assert_eq!((recorder.pending_blocks(), recorder.next_seq()), (2, 0));
    recorder.record(&stored(&plain, Some((0, 1)), &[2], &[2])).unwrap();
    assert_eq!((recorder.pending_blocks(), recorder.lost_batches(), recorder.take(0.0)), (0, 1, None));
    recorder.record(&stored(&plain, Some((0, 2)), &[3], &[3])).unwrap();
    let numbered = recorder.take(0.0).unwrap();
    assert_eq!(numbered.seq, 1);
    let Event::Stored(Stored { parent: Some(_), .. }) = numbered.batch.events[0] else { panic!("a child") };
}

#[test]
fn changes_that_cannot_be_are_refused_and_change_nothing() {
    let (mut recorder, plain, other) = (recorder(), Scope::default(), Scope::adapter("other"));
    recorder.record(&stored(&plain, None, &[1], &[1, 2])).unwrap();
    let refused = [
        (stored(&plain, None, &[2], &[1, 2, 3]), ChangeError::Tokens { tokens: 3, blocks: 1, block_size: 2 }),
        (stored(&plain, Some((0, 9)), &[2], &[1, 2]), ChangeError::NotHeld { tier: 0, block: 9 }),
        (stored(&plain, Some((1, 1)), &[2], &[1, 2]), ChangeError::NotHeld { tier: 1, block: 1 }),
        (stored(&other, Some((0, 1)), &[2], &[1, 2]), ChangeError::OtherScope { tier: 0, block: 1 }),
        (stored(&plain, None, &[2, 1], &[1, 2, 3, 4]), ChangeError::Held { tier: 0, block: 1 }),
        (Change::Removed { tier: 0, blocks: &[1, 2] }, ChangeError::NotHeld { tier: 0, block: 2 }),
        (Change::Removed { tier: 2, blocks: &[1] }, ChangeError::UnknownTier { tier: 2, tiers: 2 }),
    ];
    for (change, error) in refused {
        assert_eq!(recorder.record(&change), Err(error), "{change:?}");
    }
    assert_eq!(recorder.name(0, 2), None);
    assert_eq!(events(&mut recorder).len(), 1);
}
