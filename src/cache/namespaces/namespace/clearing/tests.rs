use super::super::FEW;
use super::*;

#[test]
fn handles_are_equal_that_lead_into_the_same_trees() {
    let cache = PrefixCache::builder(1, 1).build().expect("valid");
    let first = cache.namespace(&["a"]);
    assert_eq!((first == cache.namespace(&["a"]), first == cache.namespace(&["b"])), (true, false));
    first.remove();
    assert!(first != cache.namespace(&["a"]), "made again");
}

/// A pass looks at every namespace, so the next one begins when their number has doubled.
#[test]
fn the_next_pass_waits_until_there_are_twice_as_many() {
    let cache = PrefixCache::builder(1, 1).build().expect("valid");
    let next_pass = || cache.inner.namespaces.names.lock().next_pass;
    let name = |i: usize| cache.namespace(&[i.to_string().as_str()]);
    let mut held: Vec<_> = (0..FEW - 1).map(name).collect();
    for next in [FEW, 2 * FEW] {
        held.extend((held.len()..next - 1).map(name));
        assert_eq!(next_pass(), next);
        // Looks at all of them, because they fit in a slice.
        held.push(name(next - 1));
        assert_eq!(next_pass(), 2 * next);
        assert!(!cache.inner.namespaces.is_behind());
    }
}
