//! Requests of namespaces with quotas: the namespace pays, waits in its own line, and makes room
//! among its own.

use std::sync::mpsc;

use radixkv::{BlockRequest, Namespace, PrefixCache, Quota};
use radixkv_scheduler::{
    Aborted, Filled, Finished, Order, QueueConfig, Request, Scheduler, SequenceId, SubmitErrorKind,
};

use crate::engine::{World, continued, sequence};

fn limited(world: &World, name: &str, limit: usize) -> Namespace {
    let tenant = world.cache.namespace(&[name]);
    tenant.set_quota(Quota::default().pinned_blocks(limit));
    tenant
}

fn submit(world: &World, namespace: &Namespace, key: u32, len: usize, new_tokens: usize) -> SequenceId {
    world.queue.submit(Request::new(namespace.clone(), sequence(key, len), new_tokens)).expect("sound")
}

/// Ids that the next step computes.
fn step(world: &World, scheduler: &mut Scheduler, done: &mut Vec<Finished>) -> Vec<SequenceId> {
    let ids = scheduler.schedule().batch().sequences().map(|scheduled| scheduled.id).collect();
    world.step(scheduler, done);
    ids
}

#[test]
fn a_tenant_at_its_limit_keeps_no_other_one_waiting() {
    for order in [Order::Fcfs, Order::LongestPrefix, Order::DfsWeight, Order::Priority] {
        let world = World::with(PrefixCache::builder(4, 64), QueueConfig::default().order(order));
        let tenant = limited(&world, "tenant", 8);
        let greedy: Vec<_> = (0..300).map(|key| submit(&world, &tenant, key, 12, 4)).collect();
        let other = submit(&world, &world.space, 900, 12, 4);
        let (mut scheduler, mut done) = (world.scheduler(16, 64), Vec::new());
        let mut steps = 0;
        while !done.iter().any(|finished: &Finished| finished.id == other) {
            world.step(&mut scheduler, &mut done);
            let pinned = tenant.stats();
            assert!(pinned.protected_blocks + pinned.reserved_blocks <= 8, "{pinned:?}");
            steps += 1;
            assert!(steps < 40, "{order:?}: the other one waits behind the tenant's line");
        }
        done.extend(world.finish_all(&mut scheduler).into_values());
        assert_eq!(done.len(), 301);
        if order == Order::Fcfs {
            let ends: Vec<_> = done.iter().map(|finished| finished.id).filter(|id| greedy.contains(id)).collect();
            assert_eq!(ends.len(), 300);
        }
        drop(scheduler);
        world.rest();
    }
}

/// A lower tier keeps blocks, and the quota does not allow others in their place.
#[test]
fn a_tier_that_returns_too_few_blocks_keeps_no_other_one_waiting() {
    let world = World::new(4, 64);
    let tenant = limited(&world, "tenant", 4);
    let (keep, kept) = mpsc::channel();
    let (space, mut first) = (tenant.clone(), true);
    let mut scheduler = world.scheduler(4, 64).above(move |namespace, _, hit, mut blocks| {
        if *namespace == space && std::mem::take(&mut first) {
            keep.send(blocks.split(2)).expect("the test keeps them");
        }
        Filled { lease: hit.into_lease(), blocks }
    });
    let over = submit(&world, &tenant, 1, 12, 4);
    let other = submit(&world, &world.space, 2, 12, 4);
    let step = scheduler.schedule();
    assert!(step.sequence(over).is_none() && step.sequence(other).is_some());
    drop((step, kept.recv().expect("two blocks")));
    assert_eq!(world.finish_all(&mut scheduler).len(), 2);
    world.rest();
}

/// All of them are tried again and again, and came first.
#[test]
fn tenants_at_their_limits_keep_no_other_one_waiting_however_many() {
    for order in [Order::Fcfs, Order::LongestPrefix, Order::DfsWeight, Order::Priority] {
        let tenants = 200;
        let world = World::with(PrefixCache::builder(4, 2 * tenants + 64), QueueConfig::default().order(order));
        let session = world.cache.session();
        let mut held = Vec::new();
        for i in 0..tenants {
            let tenant = limited(&world, &i.to_string(), 2);
            held.push(session.reserve(BlockRequest::new(2).paid_by(&tenant)).expect("within"));
            submit(&world, &tenant, i as u32, 4, 4);
        }
        let other = submit(&world, &world.space, 900, 12, 4);
        let (mut scheduler, mut done) = (world.scheduler(16, 64), Vec::new());
        for _ in 0..30 {
            world.step(&mut scheduler, &mut done);
        }
        assert_eq!(done.iter().map(|finished| finished.id).collect::<Vec<_>>(), [other], "{order:?}");
        drop(held);
        done.extend(world.finish_all(&mut scheduler).into_values());
        assert_eq!(done.len(), tenants + 1);
        drop(scheduler);
        world.rest();
    }
}

/// Two of the tenant's sequences grow beyond its limit, beside one of another namespace with a
/// lower rank.
#[test]
fn a_namespace_at_its_limit_makes_room_among_its_own() {
    let world = World::new(4, 64);
    let tenant = limited(&world, "tenant", 6);
    let first = submit(&world, &tenant, 1, 8, 12);
    let second = submit(&world, &tenant, 2, 8, 12);
    let other = submit(&world, &world.space, 3, 8, 12);
    let (mut scheduler, mut done) = (world.scheduler(4, 64), Vec::new());
    assert_eq!(step(&world, &mut scheduler, &mut done), [first, second, other]);
    let mut preempted = false;
    while world.queue.unfinished_requests() > 0 {
        let ids = step(&world, &mut scheduler, &mut done);
        preempted |= !ids.contains(&second) && ids.contains(&first);
        assert!(ids.contains(&other) || done.iter().any(|finished| finished.id == other), "it is not preempted");
    }
    assert!(preempted, "six blocks are not enough for both");
    for (id, key) in [(first, 1), (second, 2), (other, 3)] {
        let finished = done.iter().find(|finished| finished.id == id).expect("it ended");
        assert_eq!(finished.tokens, continued(&sequence(key, 8), 12), "whatever it waited for");
    }
    drop(scheduler);
    world.rest();
}

#[test]
fn what_a_quota_can_never_allow_is_refused_and_what_waits_for_one_can_be_aborted() {
    let world = World::new(4, 64);
    let tenant = limited(&world, "tenant", 4);
    let refused = world.queue.submit(Request::new(tenant.clone(), sequence(1, 16), 4)).unwrap_err();
    assert_eq!(refused.kind, SubmitErrorKind::ExceedsQuota { requested: 5, limit: 4 });
    assert_eq!(refused.to_string(), "prompt and output need 5 blocks, the namespace may have 4");
    let held = world.cache.session().reserve(BlockRequest::new(4).paid_by(&tenant)).expect("within");
    let waiting: Vec<_> = (0..4).map(|key| submit(&world, &tenant, key, 8, 4)).collect();
    let (mut scheduler, mut done) = (world.scheduler(4, 64), Vec::new());
    assert!(scheduler.schedule().is_empty());
    assert_eq!((world.queue.len(), world.queue.unfinished_requests()), (4, 4));
    for id in [waiting[2], waiting[0]] {
        assert!(matches!(world.queue.abort(id), Aborted::Waiting { .. }));
        assert_eq!(world.queue.abort(id), Aborted::Unknown);
    }
    drop(held);
    while done.len() < 2 {
        world.step(&mut scheduler, &mut done);
    }
    let ended: Vec<_> = done.iter().map(|finished| finished.id).collect();
    assert_eq!(ended, [waiting[1], waiting[3]], "in their order");
    drop(scheduler);
    world.rest();
}

/// In one step a sequence is preempted for lack of blocks, then a larger one for its quota, whose
/// blocks would be enough for the first one.
#[test]
fn a_preemption_for_a_quota_admits_nobody_after_one_for_lack_of_blocks() {
    let world = World::new(4, 6);
    let tenant = limited(&world, "tenant", 4);
    let (first, second) = (submit(&world, &world.space, 1, 4, 4), submit(&world, &tenant, 2, 4, 4));
    let (large, last) = (submit(&world, &tenant, 3, 12, 4), submit(&world, &world.space, 4, 4, 4));
    let (mut scheduler, mut done) = (world.scheduler(4, 64), Vec::new());
    assert_eq!(step(&world, &mut scheduler, &mut done), [first, second, large, last]);
    assert_eq!(step(&world, &mut scheduler, &mut done), [first, second]);
    done.extend(world.finish_all(&mut scheduler).into_values());
    assert_eq!(done.len(), 4);
    drop(scheduler);
    world.rest();
}
