//! The index of workers, fed by caches' own events, answers prompts as the caches do.

use fastrand::Rng;
use radixkv::{Keys, PrefixCache};
use radixkv_events::{CacheRecorder, HashScheme, Scope, Token, Update, Workers};

use super::truth::{BLOCK, namespaces};
use super::verbs::verb;

// Holds: WE17.
#[test]
fn the_index_answers_every_prompt_as_peek_does() {
    let caches = [40, 96].map(|blocks| PrefixCache::builder(BLOCK, blocks).build().expect("valid"));
    let names = ["small", "large"];
    let mut recorders = caches.each_ref().map(|cache| CacheRecorder::builder(cache, HashScheme::sglang()).build());
    let (mut workers, mut dice, mut found) = (Workers::new(BLOCK), Rng::with_seed(3), 0);
    let sessions = caches.each_ref().map(PrefixCache::session);
    for _ in 0..300 {
        for (cache, session) in caches.iter().zip(&sessions) {
            (0..10).for_each(|_| verb(cache, session, &mut dice));
            cache.settle();
        }
        for (recorder, name) in recorders.iter_mut().zip(names) {
            while let Some(numbered) = recorder.next().expect("events that follow from one another") {
                let updates = numbered.batch.events.iter().map(Update::Applied);
                updates.for_each(|update| workers.update(name, update).expect("one block size"));
            }
        }
        let prompt: Vec<Token> = (0..dice.usize(..40)).map(|at| u32::from(dice.usize(..at + 8) == 0)).collect();
        for at in 0..namespaces(&caches[0]).len() {
            let spaces = caches.each_ref().map(|cache| namespaces(cache).swap_remove(at));
            if spaces[0].keys() == Keys::Bigrams {
                continue;
            }
            let matches = workers.matches(&Scope::of_namespace(&spaces[0].name()), &prompt);
            for ((session, space), name) in sessions.iter().zip(&spaces).zip(names) {
                let blocks = matches.iter().find(|(worker, _)| worker == name).map_or(0, |(_, blocks)| *blocks);
                assert_eq!(blocks * BLOCK, session.peek(space, &prompt), "{name}, {prompt:?}");
                found += usize::from(blocks > 0);
            }
        }
    }
    assert!(found > 300, "{found} answers with blocks");
}
