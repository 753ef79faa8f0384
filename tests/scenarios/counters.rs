//! What the verbs counted: exact on one thread, and nothing lost or counted twice among several.

use std::time::{Duration, Instant};

use radixkv::{BlockRequest, Namespace, NamespaceName, PrefixCache, Quota, ReserveError, Session, Stats, Token};

use crate::{Bench, sequence};

impl Bench {
    /// What `work` counted, settled.
    fn counted<R>(&self, work: impl FnOnce() -> R) -> Stats {
        let before = self.stats();
        drop(work());
        let after = self.stats();
        after.delta(&before)
    }
}

/// The counts of lookups, query tokens and hit tokens.
fn lookups(counted: &Stats) -> [u64; 3] {
    [counted.lookups, counted.query_tokens, counted.hit_tokens]
}

// Holds: NU3.
#[test]
fn matches_count_and_looks_do_not() {
    let bench = Bench::new(4, 8);
    let (session, space) = (&bench.session, &bench.space);
    let miss = bench.counted(|| bench.matched(&sequence(1, 10)));
    assert_eq!(lookups(&miss), [1, 10, 0]);
    drop(bench.insert(&sequence(1, 10)));
    assert_eq!(lookups(&bench.counted(|| bench.matched(&sequence(1, 11)))), [1, 11, 8]);
    let mut blocks = Vec::new();
    assert_eq!(lookups(&bench.counted(|| session.match_prefix_into(space, &sequence(1, 4), &mut blocks))), [1, 4, 4]);
    let looks = bench.counted(|| {
        (session.match_prefix_untouched(space, &sequence(1, 10)).len_tokens(), session.peek(space, &sequence(1, 10)))
    });
    assert_eq!(looks, looks.delta(&looks), "nothing was counted");
}

#[test]
fn a_namespace_that_was_dropped_counts_misses() {
    let bench = Bench::new(4, 8);
    let dropped = bench.cache.namespace(&["gone"]);
    dropped.remove();
    assert_eq!(lookups(&bench.counted(|| bench.session.match_prefix(&dropped, &[1, 2, 3]))), [1, 3, 0]);
}

// Holds: NU3.
#[test]
fn a_sequence_is_looked_up_once_however_often_it_is_resumed() {
    let bench = Bench::new(4, 16);
    let (session, prompt) = (&bench.session, sequence(1, 20));
    drop(bench.insert(&prompt[..8]));
    // Kept while it waits, and counted when it runs.
    let kept = session.match_prefix_untouched(&bench.space, &prompt).into_lease();
    let first = bench.stats();
    let lease = session.resume(kept, &prompt).into_lease();
    assert_eq!(lookups(&bench.stats().delta(&first)), [1, 20, 8]);
    // What others have published since is no hit of the lookup.
    drop(bench.insert(&prompt[..16]));
    let before = bench.stats();
    let lease = session.resume(lease, &prompt).into_lease();
    let lease = session.resume(lease, &prompt).into_lease();
    let after = bench.stats().delta(&before);
    assert_eq!((lookups(&after), after.resumed_tokens), ([0, 0, 0], 8));
    // A clone is a lease of its own.
    let clone = lease.try_clone().expect("few leases");
    assert_eq!(lookups(&bench.counted(|| session.resume(clone, &prompt))), [1, 20, 16]);
    // A miss was looked up too.
    let miss = bench.matched(&sequence(2, 8));
    let resumed = bench.counted(|| session.resume(miss, &sequence(2, 8)));
    assert_eq!((lookups(&resumed), resumed.resumed_tokens), ([0, 0, 0], 0));
}

#[test]
fn inserts_count_what_was_there_already() {
    let bench = Bench::new(2, 16);
    let (one, two) = (bench.matched(&[1, 2, 3, 4]), bench.matched(&[1, 2, 3, 4]));
    let first = bench.counted(|| bench.insert_from(&one, &[1, 2, 3, 4]));
    assert_eq!((first.inserts, first.inserted_blocks, first.duplicate_blocks), (1, 2, 0));
    assert_eq!((first.reservations, first.taken_blocks), (1, 2));
    let second = bench.counted(|| bench.insert_from(&two, &[1, 2, 3, 4]));
    assert_eq!((second.inserts, second.inserted_blocks, second.duplicate_blocks), (1, 0, 2));
    let none = bench.session.reserve(1).expect("free");
    let refused = bench.counted(|| bench.session.insert(&one, &[1, 2, 3, 4], none).unwrap_err());
    assert_eq!(refused.inserts, 0);
}

#[test]
fn what_agrees_inside_a_block_is_counted_apart() {
    let bench = Bench::new(4, 8);
    drop(bench.insert(&[1, 2, 3, 4]));
    let hit = bench.matched(&[1, 2, 3, 9]);
    let counted = bench.counted(|| bench.session.match_partial(&hit, &[1, 2, 3, 9], 1));
    assert_eq!((counted.partial_tokens, lookups(&counted)), (3, [0, 0, 0]));
    let in_vain = bench.counted(|| bench.session.match_partial(&hit, &[1, 2, 3, 9], 4));
    assert_eq!(in_vain.partial_tokens, 0);
}

// Holds: NU3.
#[test]
fn requests_for_blocks_count_once_however_they_end() {
    let bench = Bench::new(4, 8);
    let (session, tenant) = (&bench.session, bench.cache.namespace(&["tenant"]));
    tenant.set_quota(Quota::default().pinned_blocks(2));
    let held = session.reserve(6).expect("free");
    let refusals = |counted: &Stats| [counted.exhausted_refusals, counted.over_quota_refusals, counted.reservations];
    assert_eq!(refusals(&bench.counted(|| session.reserve(3).unwrap_err())), [1, 0, 0]);
    assert_eq!(
        refusals(&bench.counted(|| session.reserve(BlockRequest::new(3).paid_by(&tenant)).unwrap_err())),
        [0, 1, 0]
    );
    assert_eq!(refusals(&bench.counted(|| session.reserve(9).unwrap_err())), [0, 0, 0], "a mistake");
    let started = bench.counted(|| session.acquire(&bench.space, &sequence(1, 6), 2).expect("two are free"));
    assert_eq!((lookups(&started), started.reservations, started.taken_blocks), ([1, 6, 0], 1, 2));
    let refused = bench.counted(|| session.acquire(&bench.space, &sequence(1, 9), 0).unwrap_err());
    assert_eq!((lookups(&refused), refused.exhausted_refusals), ([0, 0, 0], 1));
    drop(held);
}

#[test]
fn a_wait_counts_when_it_ends() {
    let bench = Bench::new(4, 8);
    let (session, held) = (&bench.session, bench.session.reserve(6).expect("free"));
    let at_once = bench.counted(|| session.reserve(BlockRequest::new(2).until(Instant::now())).expect("free"));
    assert_eq!((at_once.waits, at_once.reservations), (0, 1));
    let brief = Duration::from_millis(3);
    let wait = |blocks: BlockRequest<'_>| session.reserve(blocks.until(Instant::now() + brief)).unwrap_err();
    let in_vain = bench.counted(|| assert!(matches!(wait(3.into()), ReserveError::TimedOut { .. })));
    assert_eq!((in_vain.waits, in_vain.exhausted_refusals, in_vain.reservations), (1, 1, 0));
    // The deadline was set before the wait began: it may be a little less.
    assert!((1..u64::MAX / 2).contains(&in_vain.waited_nanos), "{in_vain:?}");
    let acquiring = || session.acquire_until(&bench.space, &sequence(1, 12), 0, Instant::now() + brief).unwrap_err();
    let in_vain = bench.counted(acquiring);
    assert_eq!((in_vain.waits, in_vain.exhausted_refusals, in_vain.lookups), (1, 1, 0));
    drop(held);
}

#[test]
fn retaining_counts_prefixes_and_their_blocks() {
    let bench = Bench::new(4, 8);
    let lease = bench.insert(&sequence(1, 12));
    let retain = |lease| bench.session.retain(lease, Duration::from_nanos(5)).expect("it stands");
    let counted = bench.counted(|| (0..2).for_each(|_| retain(&lease)));
    assert_eq!((counted.retentions, counted.retained_blocks), (2, 6));
    let root = bench.matched(&[]);
    assert_eq!(bench.counted(|| retain(&root)).retentions, 0);
}

#[test]
fn blocks_that_an_engine_lends_are_taken() {
    let cache = PrefixCache::builder(4, 8).external().build().expect("sound");
    let adopted = cache.external().expect("an external pool").adopt(&[5, 2, 7]).expect("the engine has them");
    assert_eq!((cache.stats().reservations, cache.stats().taken_blocks), (1, 3));
    assert!(cache.external().expect("an external pool").adopt(&[5]).is_err());
    assert_eq!(cache.stats().reservations, 1);
    drop(adopted);
}

#[test]
fn a_delta_keeps_what_is_no_count() {
    let bench = Bench::new(4, 8);
    let before = bench.stats();
    let held = bench.insert(&sequence(1, 8));
    let delta = bench.stats().delta(&before);
    assert_eq!((delta.capacity_blocks, delta.protected_blocks, delta.inserted_blocks), (8, 2, 2));
    assert_eq!(before.delta(&bench.stats()).inserted_blocks, 0, "the other way round");
    drop(held);
}

/// One request, and what it counts: lookups, query tokens, hit tokens, blocks taken, duplicates.
fn request(session: &Session, cache: &PrefixCache, tokens: &[Token], sum: &mut [u64; 5]) {
    let hit = session.match_prefix(&cache.default_namespace(), tokens);
    sum[0] += 1;
    sum[1] += tokens.len() as u64;
    sum[2] += hit.len_tokens() as u64;
    let needed = tokens.len() / cache.block_size() - hit.blocks().len();
    let Ok(blocks) = session.reserve(needed) else { return };
    sum[3] += needed as u64;
    let inserted = session.insert(hit.lease(), tokens, blocks).expect("it fits");
    sum[4] += inserted.duplicates.len() as u64;
}

/// Each thread makes sessions that end, so that their participants go from one to another, and more
/// than have one of their own, so that verbs borrow them.
// Holds: NU3, NU4.
#[test]
fn threads_and_sessions_that_come_and_go_add_up() {
    const THREADS: u32 = 4;
    let cache = PrefixCache::builder(4, 256).build().expect("sound");
    let crowd: Vec<_> = (0..60).map(|_| cache.session()).collect();
    let sums: Vec<_> = std::thread::scope(|scope| {
        let serve = |thread: u32| {
            let cache = &cache;
            scope.spawn(move || {
                let mut sum = [0; 5];
                for round in 0..60 {
                    let sessions: Vec<_> = (0..1 + round % 4).map(|_| cache.session()).collect();
                    for (session, i) in sessions.iter().zip(0..) {
                        let tokens = sequence((thread * 7 + round + i) % 11, 4 * (1 + (round + i) as usize % 9));
                        request(session, cache, &tokens, &mut sum);
                    }
                }
                sum
            })
        };
        let threads: Vec<_> = (0..THREADS).map(serve).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let stats = cache.stats();
    let expected = sums.iter().fold([0; 5], |sum, each| std::array::from_fn(|i| sum[i] + each[i]));
    let counted = [stats.lookups, stats.query_tokens, stats.hit_tokens, stats.taken_blocks, stats.duplicate_blocks];
    assert_eq!(counted, expected);
    assert_eq!(stats.hit_tokens + missed(&stats).iter().sum::<u64>(), stats.query_tokens, "all of them whole blocks");
    assert!(stats.duplicate_blocks <= stats.taken_blocks && stats.hit_tokens > 0);
    drop(crowd);
}

/// What a lookup missed: evicted, diverged, elsewhere, new.
fn missed(counted: &Stats) -> [u64; 4] {
    [
        counted.missed_evicted_tokens,
        counted.missed_diverged_tokens,
        counted.missed_elsewhere_tokens,
        counted.missed_new_tokens,
    ]
}

// Holds: NU4.
#[test]
fn a_miss_has_the_reason_of_the_first_block_that_is_lacking() {
    let bench = Bench::new(4, 16);
    let prompt = sequence(1, 14);
    let matched = |tokens: &[Token]| missed(&bench.counted(|| bench.matched(tokens)));
    assert_eq!(matched(&prompt), [0, 0, 0, 12], "three blocks, and two tokens that no block holds");
    drop(bench.insert(&prompt));
    assert_eq!(matched(&prompt), [0; 4]);
    assert_eq!(matched(&prompt[..3]), [0; 4], "less than a block");
    let (mut inside, mut beside) = (prompt.clone(), prompt.clone());
    (inside[6], beside[4]) = (99, 99);
    assert_eq!((matched(&inside), matched(&beside)), ([0, 8, 0, 0], [0, 0, 0, 8]));
    assert_eq!(matched(&[&prompt[..12], &[7; 8]].concat()), [0, 0, 0, 8]);
    bench.cache.evict(2);
    assert_eq!(matched(&prompt), [8, 0, 0, 0]);
    drop(bench.insert(&prompt));
    let second = bench.session.match_prefix_untouched(&bench.space, &prompt).blocks()[1];
    bench.cache.invalidate_blocks(&[second]);
    assert_eq!(matched(&prompt), [8, 0, 0, 0], "what is invalidated has gone, too");
}

// Holds: NU4.
#[test]
fn what_another_namespace_has_is_told_apart() {
    let bench = Bench::new(4, 16);
    let (tenant, prompt) = (bench.cache.namespace(&["tenant"]), sequence(1, 8));
    drop(bench.insert(&prompt));
    let matched = || missed(&bench.counted(|| bench.session.match_prefix(&tenant, &prompt)));
    assert_eq!(matched(), [0, 0, 8, 0]);
    bench.cache.evict(2);
    assert_eq!(matched(), [0, 0, 8, 0], "it was there");
    let start = bench.session.acquire(&tenant, &prompt, 0).expect("room");
    drop(bench.session.insert(start.hit.lease(), &prompt, start.blocks).expect("it fits"));
    bench.cache.evict(2);
    assert_eq!(matched(), [8, 0, 0, 0], "its own is what counts");
}

// Holds: NU4.
#[test]
fn every_way_to_look_up_counts_what_it_misses() {
    let bench = Bench::new(4, 16);
    let (session, space, prompt) = (&bench.session, &bench.space, sequence(1, 8));
    let kept = session.match_prefix_untouched(space, &prompt).into_lease();
    let resumed = bench.counted(|| session.resume(kept, &prompt));
    assert_eq!((missed(&resumed), resumed.query_tokens), ([0, 0, 0, 8], 8));
    let served = bench.counted(|| session.acquire(space, &prompt, 0).expect("room"));
    assert_eq!((missed(&served), served.query_tokens), ([0, 0, 0, 8], 8));
    let refused = bench.counted(|| session.acquire(space, &sequence(1, 400), 0).unwrap_err());
    assert_eq!(missed(&refused), [0; 4]);
    let looks = bench.counted(|| (session.match_prefix_untouched(space, &prompt), session.peek(space, &prompt)));
    assert_eq!(missed(&looks), [0; 4]);
}

// Holds: NU4.
#[test]
fn pairs_are_missed_by_whole_blocks_of_pairs() {
    let bench = Bench::new(4, 16);
    let draft = bench.cache.namespace(NamespaceName::new(&["draft"]).with_keys(radixkv::Keys::Bigrams));
    let matched = |len| missed(&bench.counted(|| bench.session.match_prefix(&draft, &sequence(1, len))));
    assert_eq!((matched(4), matched(5), matched(9)), ([0; 4], [0, 0, 0, 4], [0, 0, 0, 8]));
    let start = bench.session.acquire(&draft, &sequence(1, 9), 0).expect("room");
    drop(bench.session.insert(start.hit.lease(), &sequence(1, 9), start.blocks).expect("it fits"));
    assert_eq!(matched(9), [0; 4]);
    let other = |agreeing: usize| [&sequence(1, 9)[..agreeing], &[7; 9][agreeing..]].concat();
    let of = |tokens: Vec<Token>| missed(&bench.counted(|| bench.session.match_prefix(&draft, &tokens)));
    assert_eq!((of(other(1)), of(other(2))), ([0, 0, 0, 8], [0, 8, 0, 0]), "one token is no pair");
    bench.cache.evict(1);
    assert_eq!(matched(9), [4, 0, 0, 0]);
}

/// A prompt that tenants share: what one of them lost is not what another one has seen.
#[test]
fn equal_prompts_of_several_namespaces_are_known_in_each() {
    let bench = Bench::new(4, 16);
    let (session, prompt) = (&bench.session, sequence(1, 8));
    let tenants: Vec<_> = ["a", "b", "c"].iter().map(|name| bench.cache.namespace(&[name])).collect();
    for tenant in &tenants {
        let start = session.acquire(tenant, &prompt, 0).expect("room");
        drop(session.insert(start.hit.lease(), &prompt, start.blocks).expect("it fits"));
    }
    bench.cache.evict(16);
    for tenant in &tenants {
        assert_eq!(missed(&bench.counted(|| session.match_prefix(tenant, &prompt))), [8, 0, 0, 0]);
    }
}

/// Its mark was overwritten while it was in use: it is marked again as it goes.
#[test]
fn what_was_cached_for_long_is_known_to_have_been() {
    let bench = Bench::new(4, 16);
    let prompt = sequence(1, 4);
    let lease = bench.insert(&prompt);
    for seed in 2..1_000 {
        drop(bench.insert(&sequence(seed, 8)));
        bench.cache.evict(2);
    }
    drop(lease);
    bench.cache.evict(16);
    assert_eq!(missed(&bench.counted(|| bench.matched(&prompt))), [4, 0, 0, 0]);
}

/// The request of an insert was looked up before: a resume of what it inserted counts for no second
/// one, however little that is.
#[test]
fn an_insert_is_no_lookup_and_its_lease_counts_for_none() {
    let bench = Bench::new(4, 16);
    let hit = bench.matched(&[1, 2, 3]);
    let inserted =
        bench.session.insert(&hit, &[1, 2, 3], bench.session.reserve(0).expect("none")).expect("nothing to store");
    let resumed = bench.counted(|| bench.session.resume(inserted.lease, &[1, 2, 3]));
    assert_eq!((resumed.lookups, resumed.query_tokens), (0, 0));
}

/// A block may begin on one run and end on the next: its mark is that of the whole block.
// Holds: NU4.
#[test]
fn a_block_that_lies_on_two_runs_is_known_again() {
    let bench = Bench::new(4, 16);
    let (one, two) = ([1, 2, 3, 4], [1, 2, 9, 9]);
    drop((bench.insert(&one), bench.insert(&two)));
    bench.cache.evict(2);
    for tokens in [one, two] {
        assert_eq!(missed(&bench.counted(|| bench.matched(&tokens))), [4, 0, 0, 0]);
    }
}

// Holds: NU5.
#[test]
fn namespaces_are_counted_by_themselves_while_there_are_few() {
    let bench = Bench::new(4, 16);
    let (session, cache) = (&bench.session, &bench.cache);
    let name = |i: u32| cache.namespace(&[i.to_string().as_str()]);
    let spaces: Vec<_> = (0..80).map(name).collect();
    for (space, lookups) in spaces.iter().zip(1..) {
        (0..lookups).for_each(|_| drop(session.match_prefix(space, &sequence(1, 5))));
    }
    let lookups_of = |space: &Namespace| space.stats().lookups;
    let counted: Vec<_> = spaces.iter().map_while(|space| Some(lookups_of(space)?.lookups)).collect();
    assert_eq!(counted, (1..=62).collect::<Vec<_>>());
    assert_eq!(spaces.iter().filter_map(lookups_of).count(), 62);
    let listed = cache.lookups_by_namespace();
    assert_eq!((listed.len(), listed[0].namespace.clone()), (64, Some(bench.space.name())));
    assert_eq!(listed.iter().map(|of| of.lookups.lookups).sum::<u64>(), cache.stats().lookups);
    let others = &listed[63];
    assert_eq!((others.namespace.clone(), others.lookups.lookups), (None, (63..=80).sum()));
    assert_eq!(others.lookups.missed_new_tokens + others.lookups.missed_elsewhere_tokens, 4 * (63..=80).sum::<u64>());
}

/// Whoever comes after a namespace that has gone begins with nothing, and what was counted of it is
/// not lost.
// Holds: NU5.
#[test]
fn a_namespace_begins_with_nothing() {
    let bench = Bench::new(4, 16);
    let (session, cache) = (&bench.session, &bench.cache);
    let mut lookups = 0;
    for round in 0..200 {
        let name = format!("tenant-{round}");
        let tenant = cache.namespace(&[name.as_str()]);
        let before = tenant.stats().lookups.expect("few at a time");
        assert_eq!((before.lookups, before.query_tokens), (0, 0), "round {round}");
        (0..3).for_each(|_| drop(session.match_prefix(&tenant, &sequence(1, 5))));
        lookups += 3;
        assert_eq!(tenant.stats().lookups.expect("as before").lookups, 3);
        tenant.remove();
        drop(tenant);
        cache.settle();
        assert_eq!(cache.stats().lookups, lookups);
    }
    let listed = cache.lookups_by_namespace();
    assert_eq!(listed.last().expect("the others").lookups.lookups, lookups);
}
