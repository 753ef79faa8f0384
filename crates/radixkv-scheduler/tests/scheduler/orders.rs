//! The order in which requests are admitted.

use radixkv::{PrefixCache, Token};
use radixkv_scheduler::{Finished, Order, QueueConfig, Request, SequenceId};

use crate::engine::{World, sequence};

fn world(order: Order, age_bound: u64, capacity: usize) -> World {
    World::with(PrefixCache::builder(16, capacity), QueueConfig::default().order(order).age_bound(age_bound))
}

/// The ids of the requests, in the order in which they are admitted.
fn served_in(world: &World, max_running: u32) -> Vec<SequenceId> {
    let mut scheduler = world.scheduler(max_running, 4_096);
    let (mut served, mut done) = (Vec::new(), Vec::new());
    while world.queue.unfinished_requests() > 0 {
        world.step(&mut scheduler, &mut done);
        let fresh = done.iter().map(|finished| finished.id).chain(scheduler.running().iter().map(|s| s.id()));
        let fresh: Vec<_> = fresh.filter(|id| !served.contains(id)).collect();
        served.extend(fresh);
    }
    served
}

// Holds: SC21.
#[test]
fn first_come_first_served() {
    let world = world(Order::Fcfs, 1_000, 64);
    let ids: Vec<_> = [3, 1, 2, 1].map(|key| world.submit(&sequence(key, 20), 1)).into();
    assert_eq!(served_in(&world, 1), ids);
}

// Holds: SC21.
#[test]
fn the_longest_cached_prefix_first() {
    let world = world(Order::LongestPrefix, 1_000, 64);
    world.submit(&sequence(1, 65), 1);
    world.finish_all(&mut world.scheduler(1, 4_096));
    let with = |shared: usize, key| world.submit(&[&sequence(1, shared)[..], &sequence(key, 40)].concat(), 1);
    let ids = [with(0, 5), with(20, 6), with(64, 7), with(33, 8), with(70, 9)];
    // Equal lengths in the order of arrival.
    assert_eq!(served_in(&world, 1), [2, 4, 3, 1, 0].map(|i: usize| ids[i]));
}

// Holds: SC21.
#[test]
fn the_highest_priority_first() {
    let world = world(Order::Priority, 1_000, 64);
    let ids = [0, 5, -3, 5, 1].map(|priority| {
        let mut request = Request::new(world.space.clone(), sequence(priority as u32 & 15, 20), 1);
        request.priority = priority;
        world.queue.submit(request).expect("sound")
    });
    assert_eq!(served_in(&world, 1), [1, 3, 4, 0, 2].map(|i: usize| ids[i]));
}

// Holds: SC21.
#[test]
fn the_heaviest_branch_first_and_to_its_end() {
    let world = world(Order::DfsWeight, 1_000, 64);
    let ids = [1, 2, 3, 2, 1, 2].map(|key| world.submit(&[&sequence(key, 40)[..], &[key; 3]].concat(), 1));
    assert_eq!(served_in(&world, 1), [1, 3, 5, 0, 4, 2].map(|i: usize| ids[i]));
}

/// A few-shot workload: the questions of a task share its examples; all questions are shuffled.
fn few_shot(tasks: u32, questions: u32) -> Vec<Vec<Token>> {
    let total = tasks * questions;
    // 769 is prime, so every question comes once.
    let shuffled = (0..total).map(|i| i * 769 % total);
    shuffled.map(|i| [sequence(1 + i % tasks, 900), sequence(1_000 + i, 100)].concat()).collect()
}

/// The share of all prompt tokens that were cached.
fn hit_rate(order: Order, prompts: &[Vec<Token>], capacity: usize, max_running: u32) -> f64 {
    let world = World::with(PrefixCache::builder(16, capacity), QueueConfig::default().order(order));
    for prompt in prompts {
        world.submit(prompt, 4);
    }
    let done = world.finish_all(&mut world.scheduler(max_running, 2_048));
    world.rest();
    let cached: usize = done.values().map(|finished: &Finished| finished.cached_len).sum();
    cached as f64 / prompts.iter().map(Vec::len).sum::<usize>() as f64
}

#[test]
fn longest_prefix_serves_a_shuffled_load_as_the_best_order_would() {
    let prompts = few_shot(8, 32);
    for max_running in [1, 4, 16] {
        // Room for the running sequences, and for the examples of three tasks of eight.
        let capacity = 63 * max_running as usize + 3 * 57;
        let mut sorted = prompts.clone();
        sorted.sort();
        let best = hit_rate(Order::Fcfs, &sorted, capacity, max_running);
        let shuffled = hit_rate(Order::Fcfs, &prompts, capacity, max_running);
        for order in [Order::LongestPrefix, Order::DfsWeight] {
            let rate = hit_rate(order, &prompts, capacity, max_running);
            println!("{order:?}, {max_running} slots: {rate:.4} of {best:.4} best, {shuffled:.4} shuffled");
            assert!(rate >= 0.98 * best, "{order:?} hits {rate:.4}, the best order {best:.4}");
        }
        assert!(max_running > 1 || shuffled < 0.9 * best, "the load is no test: {shuffled:.4} hit in any order");
    }
}

/// The most steps that a cold request waits while new hot requests keep coming; `None` if one is
/// never admitted.
fn slowest_cold(order: Order, age_bound: u64, steps: u64) -> Option<u64> {
    let world = world(order, age_bound, 1_024);
    let mut scheduler = world.scheduler(4, 512);
    let mut done = Vec::new();
    let mut cold: Vec<(SequenceId, u64, Option<u64>)> = Vec::new();
    let mut hot = 0;
    for now in 0..steps {
        while world.queue.len() < 200 {
            hot += 1;
            let prompt = [&sequence(1, 320)[..], &sequence(10 + hot % 50_000, 20)].concat();
            let mut request = Request::new(world.space.clone(), prompt, 3);
            request.priority = 1;
            world.queue.submit(request).expect("sound");
        }
        // Each cold request has at least the age bound left.
        if now % 25 == 20 && now + age_bound.min(200) < steps {
            cold.push((world.submit(&sequence(2 + cold.len() as u32, 300), 3), now, None));
        }
        world.step(&mut scheduler, &mut done);
        for (id, _, served) in &mut cold {
            let here = scheduler.sequence(*id).is_some() || done.iter().any(|finished| finished.id == *id);
            *served = served.or(here.then_some(now));
        }
    }
    assert!(cold.len() > 3);
    cold.into_iter()
        .map(|(_, asked, served)| served.map(|served| served - asked))
        .max_by_key(|waited| waited.unwrap_or(u64::MAX))?
}

// Holds: SC22.
#[test]
fn the_slowest_cold_request_is_served_within_the_age_bound() {
    for order in [Order::LongestPrefix, Order::DfsWeight, Order::Priority] {
        for age_bound in [16, 100] {
            let slowest = slowest_cold(order, age_bound, 700).expect("all are served");
            println!("{order:?}: the slowest waited {slowest} steps of {age_bound}");
            assert!(slowest <= age_bound, "{order:?}: {slowest} steps, {age_bound} allowed");
        }
        // Without the bound they are not admitted at all.
        assert_eq!(slowest_cold(order, u64::MAX, 700), None, "{order:?}");
    }
}

/// The steps after which the last of eight requests of priority `cold`, submitted together, is
/// admitted, while requests of priority `hot` keep coming. Each request is served for `new_tokens`
/// steps.
fn slowest_of_eight(age_bound: u64, hot: i32, cold: i32, new_tokens: usize, max_running: u32) -> u64 {
    let world = world(Order::Priority, age_bound, 1_024);
    let mut scheduler = world.scheduler(max_running, 512);
    let mut done = Vec::new();
    let mut keys = 0;
    let mut submit = |priority| {
        keys += 1;
        let mut request = Request::new(world.space.clone(), sequence(keys % 60_000, 20), new_tokens);
        request.priority = priority;
        world.queue.submit(request).expect("sound")
    };
    for _ in 0..100 {
        submit(hot);
    }
    let mut waiting: Vec<SequenceId> = (0..8).map(|_| submit(cold)).collect();
    for now in 1..20 * age_bound {
        submit(hot);
        world.step(&mut scheduler, &mut done);
        waiting.retain(|&id| scheduler.sequence(id).is_none() && done.iter().all(|finished| finished.id != id));
        if waiting.is_empty() {
            return now;
        }
    }
    u64::MAX
}

/// Eight requests that become overdue together are admitted within the bound, at any priorities,
/// and however the ends of sequences fall between the sixteenths of the bound.
// Holds: SC22.
#[test]
fn eight_are_served_within_the_age_bound_at_any_priority() {
    for (hot, cold) in [(1, 0), (10, 0), (0, -1), (-1, -2), (-10, -20), (5, -5), (i32::MAX, i32::MIN), (-1, i32::MIN)] {
        for (new_tokens, max_running) in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (7, 2), (11, 4)] {
            let slowest = slowest_of_eight(64, hot, cold, new_tokens, max_running);
            assert!(
                slowest <= 64,
                "{slowest} steps: {cold} beside {hot}, {new_tokens} steps each, {max_running} slots"
            );
        }
    }
}

/// An overdue request goes first once in a sixteenth of the bound and no more often, however many
/// there are and however little room there is: the order decides about the rest.
#[test]
fn the_order_goes_on_beside_overdue_requests() {
    for (new_tokens, max_running, least) in [(1, 1, 400), (3, 1, 40), (7, 2, 15)] {
        let world = world(Order::Priority, 64, 1_024);
        let mut scheduler = world.scheduler(max_running, 512);
        let submit = |key: u32, priority| {
            let mut request = Request::new(world.space.clone(), sequence(key, 20), new_tokens);
            request.priority = priority;
            world.queue.submit(request).expect("sound")
        };
        for key in 0..300 {
            submit(1 + key, 7);
        }
        let mut done = Vec::new();
        let mut hot = Vec::new();
        for step in 0..600 {
            hot.push(submit(1_000 + step, 10));
            world.step(&mut scheduler, &mut done);
        }
        let preferred = done.iter().filter(|finished| hot.contains(&finished.id)).count();
        let overdue = done.len() - preferred;
        assert!(preferred >= least, "{preferred} requests that the order prefers, {overdue} overdue");
        assert!(
            (600 - 32) / 4 - 8 <= overdue || overdue >= done.len() / 2,
            "{overdue} overdue requests, {preferred} others"
        );
    }
}
