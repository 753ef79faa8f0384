use super::*;

// Holds: HT23.
#[test]
fn a_clear_gives_a_namespace_a_name_that_no_other_tier_has() {
    let cache = radixkv::PrefixCache::builder(1, 1).build().expect("a cache");
    let [one, two] = [&["a", "bc"], &["ab", "c"]].map(|parts| cache.namespace(parts).name());
    let (mut here, mut there) = (Generations::new(), Generations::new());
    let before = here.name(&one);
    assert_eq!(before.bytes(), there.name(&one).bytes(), "tiers agree as long as nothing is cleared");
    assert_ne!(before.bytes(), here.name(&two).bytes(), "parts have their lengths");
    here.clear(&one);
    assert!(!here.is_current(&before));
    let after = here.name(&one);
    assert!(here.is_current(&after) && after.bytes() != before.bytes());
    here.clear_all();
    assert!(!here.is_current(&after) && !here.is_current(&there.name(&two)));
}

// Holds: HT23.
#[test]
fn clears_of_others_change_no_name_in_use_and_names_take_bounded_memory() {
    let cache = radixkv::PrefixCache::builder(1, 1).build().expect("a cache");
    let of = |kind: &str, number: usize| cache.namespace(&[kind, &number.to_string()]).name();
    let mut generations = Generations::new();
    let tenants: Vec<_> = (0..200).map(|number| of("tenant", number)).collect();
    let names: Vec<_> = tenants.iter().map(|tenant| generations.name(tenant)).collect();
    let short_lived = of("short-lived", 0);
    generations.clear(&short_lived);
    let after_clear = generations.name(&short_lived);
    for number in 1..2 * MAX_KNOWN {
        generations.clear(&of("short-lived", number));
        if number % (MAX_KNOWN / 2) == 0 {
            assert!(tenants.iter().zip(&names).all(|(tenant, name)| generations.name(tenant) == *name));
        }
    }
    assert!(names.iter().all(|name| generations.is_current(name)));
    assert_eq!((generations.known.len(), generations.order.len()), (MAX_KNOWN, MAX_KNOWN));
    // Not used for long: its name is one that it never had before.
    assert!(generations.name(&short_lived).generation >= after_clear.generation);
}

// Holds: HT23.
#[test]
fn no_name_comes_again_whatever_is_cleared_and_forgotten() {
    let cache = radixkv::PrefixCache::builder(1, 1).build().expect("a cache");
    let all: Vec<_> = (0..8).map(|number: usize| cache.namespace(&[&number.to_string()]).name()).collect();
    let (mut generations, mut rng) = (Generations::new(), fastrand::Rng::with_seed(1));
    // The names of blocks that a clear has invalidated.
    let mut wrong = vec![Vec::new(); all.len()];
    let mut named = vec![Vec::new(); all.len()];
    for _ in 0..5_000 {
        let at = rng.usize(..all.len());
        match rng.u8(..20) {
            0 => generations.clear_all(),
            1..4 => generations.clear(&all[at]),
            4..8 => generations.fold_oldest(),
            _ => {
                let name = generations.name(&all[at]);
                assert!(generations.is_current(&name) && !wrong[at].contains(&name));
                named[at].push(name);
                continue;
            }
        }
        for (named, wrong) in named.iter_mut().zip(&mut wrong) {
            let (current, old) = std::mem::take(named).into_iter().partition(|name| generations.is_current(name));
            *named = current;
            wrong.extend::<Vec<_>>(old);
            wrong.dedup();
        }
    }
}
