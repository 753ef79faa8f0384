//! Which worker holds how many blocks of a prompt: the index against what each worker's holdings
//! say.

use std::collections::HashSet;

use radixkv_events::{
    BlockHash, Change, Event, HashScheme, HoldError, Holdings, Medium, Recorder, Removed, Scope, Stored, Token, Update,
    Workers,
};

const BLOCK_SIZE: usize = 2;

/// Whole blocks of a prompt that are held, one after the other from the first.
fn counted(holdings: &Holdings, scope: &Scope, prompt: &[Token]) -> usize {
    let paths: HashSet<_> = holdings.names().filter_map(|name| holdings.tokens_to(name)).collect();
    let ends = (BLOCK_SIZE..=prompt.len()).step_by(BLOCK_SIZE);
    ends.take_while(|&end| paths.contains(&(scope, prompt[..end].to_vec()))).count()
}

/// Three workers that store and lose random paths.
// Holds: WE18.
#[test]
fn the_index_answers_as_the_holdings_do() {
    let mut random = fastrand::Rng::with_seed(4);
    let scopes = [Scope::default(), Scope::salted("tenant")];
    let names = ["one", "two", "three"];
    let mut index = Workers::new(BLOCK_SIZE);
    let mut holdings = [Holdings::default(), Holdings::default(), Holdings::default()];
    let scheme = HashScheme::sglang();
    let prompt = |random: &mut fastrand::Rng| -> (Scope, Vec<Token>) {
        let length = random.usize(1..5) * BLOCK_SIZE;
        (random.choice(scopes.clone()).unwrap(), (0..length).map(|_| random.u32(..2)).collect())
    };
    for step in 0..3_000 {
        let worker = random.usize(..3);
        let medium = Some(random.choice([Medium::Gpu, Medium::Cpu]).unwrap());
        let (scope, tokens) = prompt(&mut random);
        let hashes = scheme.chain(&scope, &tokens, BLOCK_SIZE);
        let event = match random.u32(..100) {
            0..60 => {
                let block_size = BLOCK_SIZE as u32;
                Event::Stored(Stored { hashes, tokens, block_size, medium, scope, ..Stored::default() })
            }
            60..98 => Event::Removed(Removed {
                hashes: hashes.into_iter().rev().take(2).collect(),
                medium,
                ..Removed::default()
            }),
            _ => Event::Cleared,
        };
        holdings[worker].apply(&event).unwrap();
        index.update(names[worker], Update::Applied(&event)).unwrap();
        if step % 10 == 0 {
            let (scope, tokens) = prompt(&mut random);
            let matches = index.matches(&scope, &tokens);
            for (name, holdings) in names.iter().zip(&holdings) {
                let blocks = matches.iter().find(|(worker, _)| worker == name).map_or(0, |(_, blocks)| *blocks);
                assert_eq!(blocks, counted(holdings, &scope, &tokens), "step {step}, {name}: {matches:?}");
                assert_eq!(index.blocks(name), holdings.len() as u64);
            }
        }
    }
    index.update("one", Update::Forgotten).unwrap();
    index.remove("two");
    assert_eq!((index.blocks("one"), index.blocks("two")), (0, 0));
}

#[test]
fn what_cannot_be_placed_is_counted_and_other_block_sizes_are_refused() {
    let mut index = Workers::new(4);
    let mut recorder = Recorder::builder(BLOCK_SIZE, HashScheme::xxh3()).build();
    let scope = &Scope::default();
    recorder
        .record(&Change::Stored { tier: 0, scope, parent: None, blocks: &[0], tokens: &[1, 2], bigrams: false })
        .unwrap();
    let event = recorder.take(0.0).unwrap().batch.events.remove(0);
    let refused = index.update("one", Update::Applied(&event));
    assert_eq!(refused, Err(HoldError::BlockSize { expected: 4, got: 2 }));

    let mut index = Workers::new(BLOCK_SIZE);
    let Event::Stored(stored) = event else { panic!("{event:?}") };
    // The same block on the host, which is said without tokens, and then not on the device any
    // more.
    let (hashes, on_host) = (stored.hashes.clone(), Some(Medium::Cpu));
    let copied = Stored { hashes: hashes.clone(), block_size: 64, medium: on_host, ..Stored::default() };
    let removed = Removed { hashes, medium: Some(Medium::Gpu), ..Removed::default() };
    for event in [Event::Stored(stored.clone()), Event::Stored(copied), Event::Removed(removed)] {
        index.update("two", Update::Applied(&event)).unwrap();
    }
    assert_eq!(index.matches(scope, &[1, 2]), [("two".to_owned(), 1)]);

    let child = Stored { parent: Some(radixkv_events::BlockHash::Unsigned(99)), ..stored };
    index.update("one", Update::Applied(&Event::Stored(child))).unwrap();
    assert_eq!((index.left_out("one"), index.blocks("one")), (1, 0));
}

/// A copy on the host that was said before the block had a place in the index keeps the block when
/// it leaves the device: first the copy's tokens are unknown, then its parent.
// Holds: WE18.
#[test]
fn a_copy_counts_that_was_named_before_its_place_was_known() {
    let (scope, tokens) = (Scope::default(), vec![1, 2, 3, 4]);
    let hashes = HashScheme::xxh3().chain(&scope, &tokens, BLOCK_SIZE);
    let block_size = BLOCK_SIZE as u32;
    let nameless = Stored { hashes: hashes.clone(), medium: Some(Medium::Cpu), ..Stored::default() };
    let (last, parent) = (vec![hashes[1]], Some(hashes[0]));
    let orphan =
        Stored { hashes: last, parent, tokens: vec![3, 4], block_size, medium: Some(Medium::Cpu), ..Stored::default() };
    let known = Stored { hashes: hashes.clone(), tokens: tokens.clone(), block_size, ..Stored::default() };
    let removed =
        |medium| Event::Removed(Removed { hashes: hashes.clone(), medium: Some(medium), ..Removed::default() });
    for (copy, held, left_out) in [(nameless, 2, 2), (orphan, 0, 1)] {
        let mut index = Workers::new(BLOCK_SIZE);
        for event in [Event::Stored(copy), Event::Stored(known.clone()), removed(Medium::Gpu)] {
            index.update("one", Update::Applied(&event)).unwrap();
        }
        let blocks: Vec<_> = index.matches(&scope, &tokens).into_iter().map(|(_, blocks)| blocks).collect();
        assert_eq!(blocks, [held].into_iter().filter(|&held| held > 0).collect::<Vec<_>>());
        assert_eq!((index.blocks("one"), index.left_out("one")), (left_out, left_out));
        index.update("one", Update::Applied(&removed(Medium::Cpu))).unwrap();
        assert_eq!(index.blocks("one"), 0);
    }
}

/// A publisher may say anything: that a block is its own ancestor, that one block has several
/// parents, tokens and places. The index and the holdings go on, and the worker beside it is
/// answered for as before.
#[test]
fn a_worker_that_lies_harms_itself_alone() {
    let mut random = fastrand::Rng::with_seed(12);
    let (mut index, mut liar) = (Workers::new(BLOCK_SIZE), Holdings::with_block_size(BLOCK_SIZE as u32));
    let (scope, tokens) = (Scope::default(), [1, 2, 1, 2, 1, 2]);
    let hashes = HashScheme::xxh3().chain(&scope, &tokens, BLOCK_SIZE);
    let names = [hashes.as_slice(), &[BlockHash::Unsigned(7)]].concat();
    let honest = Stored { hashes: hashes.clone(), tokens: tokens.to_vec(), block_size: 2, ..Stored::default() };
    index.update("honest", Update::Applied(&Event::Stored(honest))).unwrap();
    for step in 0..20_000 {
        let some = |random: &mut fastrand::Rng, most| -> Vec<BlockHash> {
            (0..random.usize(..most)).map(|_| random.choice(names.iter().copied()).unwrap()).collect()
        };
        let named = some(&mut random, 5);
        let medium = random.choice([None, Some(Medium::Gpu), Some(Medium::Cpu)]).unwrap();
        let event = match random.u32(..100) {
            0..70 => Event::Stored(Stored {
                parent: some(&mut random, 2).pop(),
                tokens: (0..named.len() * random.usize(..4)).map(|_| random.u32(1..3)).collect(),
                hashes: named,
                block_size: random.choice([2, 2, 2, 3]).unwrap(),
                bigrams: random.u32(..10) == 0,
                medium,
                ..Stored::default()
            }),
            70..99 => Event::Removed(Removed { hashes: named, medium, ..Removed::default() }),
            _ => Event::Cleared,
        };
        let (_, _) = (index.update("liar", Update::Applied(&event)), liar.apply(&event));
        if step % 50 == 0 {
            let matches = index.matches(&scope, &tokens);
            assert!(matches.contains(&("honest".to_owned(), 3)), "step {step}: {matches:?}");
            assert!(liar.unrooted() <= liar.len() && index.blocks("liar") <= 4);
            liar.names().for_each(|name| drop(liar.tokens_to(name)));
            let mut again = Holdings::with_block_size(BLOCK_SIZE as u32);
            liar.snapshot().iter().for_each(|event| again.apply(event).unwrap());
            assert!(again.len() <= liar.len());
        }
    }
}
