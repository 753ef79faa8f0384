//! What a cache holds by its own word, and what a follower knows, in the same terms.

use std::collections::BTreeSet;

use radixkv::{Keys, Namespace, NamespaceName, PrefixCache};
use radixkv_events::{Event, Follower, Holdings, Numbered, Scope, Token, Verdict, wire};

pub(crate) const BLOCK: usize = 3;

/// A block: its scope, and all tokens of its sequence to its end; of a block of pairs, the token
/// behind them too.
pub(crate) type Path = (String, Vec<Token>);

pub(crate) fn namespaces(cache: &PrefixCache) -> Vec<Namespace> {
    let named = [&["a"][..], &["b"], &["a", "b"]].map(|parts| cache.namespace(parts));
    // The pairs of "a" are of the same scope as its tokens.
    let pairs = [&["a"][..], &[]].map(|parts| cache.namespace(NamespaceName::new(parts).with_keys(Keys::Bigrams)));
    [cache.default_namespace()].into_iter().chain(named).chain(pairs).collect()
}

fn name(scope: &Scope) -> String {
    format!("{scope:?}")
}

/// By walking the cache, with no other thread at work.
pub(crate) fn of_cache(cache: &PrefixCache) -> BTreeSet<Path> {
    let mut held = BTreeSet::new();
    for namespace in namespaces(cache) {
        let ahead = usize::from(namespace.keys() == Keys::Bigrams);
        let scope = name(&Scope::of_namespace(&namespace.name()));
        let mut paths: Vec<Vec<Token>> = Vec::new();
        namespace.walk(|run| {
            let mut tokens = run.parent.map_or_else(Vec::new, |parent| paths[parent].clone());
            tokens.truncate(run.start);
            let first = run.start.saturating_sub(ahead) / BLOCK;
            tokens.extend(run.tokens);
            for at in first..first + run.blocks.len() {
                held.insert((scope.clone(), tokens[..(at + 1) * BLOCK + ahead].to_vec()));
            }
            paths.push(tokens);
        });
    }
    held
}

pub(crate) fn of_follower(holdings: &Holdings) -> BTreeSet<Path> {
    let path = |hash| holdings.tokens_to(hash).map(|(scope, tokens)| (name(scope), tokens));
    let paths: BTreeSet<Path> = holdings.names().map(|hash| path(hash).expect("a way to every block")).collect();
    assert_eq!(paths.len(), holdings.len(), "no block has two names");
    paths
}

/// Through the bytes. Children are removed before their parents.
pub(crate) fn feed(follower: &mut Follower, numbered: &Numbered) -> Verdict {
    for event in &numbered.batch.events {
        let Event::Removed(removed) = event else { continue };
        let lengths = removed.hashes.iter().filter_map(|&hash| Some(follower.holdings().tokens_to(hash)?.1.len()));
        assert!(lengths.is_sorted_by(|child, parent| child >= parent), "{removed:?}");
    }
    let payload = wire::encode(&numbered.batch, wire::Format::Maps);
    follower.receive(numbered.seq, &payload).expect("a batch")
}
