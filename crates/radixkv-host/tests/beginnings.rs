//! A block is worth nothing without those before it: what there is no room for is the end of a
//! sequence, on the way to remote tiers and in them.

mod common;

use std::sync::Arc;

use common::{Engine, Fault, Faulty, PATIENCE, SIZE, files, files_that_accept, folder, host, prompt, remote_blocks};
use radixkv_host::{
    HostBuilder, HostTier, RemoteWait, TierMode, WritePolicy,
    radixkv_tiers::{Outcome, RegionTier, RemoteTier},
};

/// Serves a prompt, lets it leave the device in steps of so many blocks, and with it whatever the
/// host has no room for.
fn leave(engine: &Engine, prompt: &[u32], step: usize) {
    engine.serve(prompt);
    (0..prompt.len() / SIZE).step_by(step).for_each(|_| _ = engine.tiers.evict(step));
}

/// Which of a prompt's blocks a tier has that no host polls any more.
fn held(tier: &impl RemoteTier<Vec<u8>>, tokens: &[u32]) -> Vec<u8> {
    let blocks = remote_blocks(tokens);
    tier.contains(blocks.iter().map(|block| block.key()).collect()).expect("accepted");
    let (mut done, mut held) = (Vec::new(), vec![0; blocks.len()]);
    while done.len() < blocks.len() {
        tier.poll(&mut done, PATIENCE);
    }
    for completion in done {
        let Outcome::Contained(_, Ok(is_held)) = completion.outcome else { panic!("{completion:?}") };
        held[completion.index] = u8::from(is_held);
    }
    held
}

fn beginning(held: usize, all: usize) -> Vec<u8> {
    (0..all).map(|number| u8::from(number < held)).collect()
}

fn over(builder: HostBuilder, device: usize) -> (Engine, HostTier) {
    let host = builder.build().expect("a tier");
    (Engine::waiting(device, &host, TierMode::Exclusive, RemoteWait::BestEffort), host)
}

// Holds: HT21.
#[test]
fn of_a_long_prompt_the_beginning_is_put_where_not_all_may_be_on_its_way() {
    for write in [WritePolicy::Back, WritePolicy::Through] {
        let folder = folder();
        let tier = Arc::new(files(folder.path(), 64));
        let (engine, host) = over(host(12).remote(Arc::clone(&tier)).remote_in_flight(8).remote_write(write), 12);
        let (long, other) = (prompt(1, 12), prompt(2, 12));
        leave(&engine, &long, 12);
        if write == WritePolicy::Back {
            leave(&engine, &other, 12);
        }
        assert!(host.settle_remote(PATIENCE));
        drop((engine, host));
        assert_eq!(held(&tier, &long), beginning(8, 12), "{write:?}");
    }
}

// Holds: HT21.
#[test]
fn a_beginning_that_leaves_last_displaces_the_end_that_waits_to_be_put() {
    let folder = folder();
    let tier = Faulty::new(files(folder.path(), 64));
    let (engine, host) = over(host(1).remote(Arc::clone(&tier)).remote_in_flight(8), 16);
    tier.set(Fault::IsSilent);
    leave(&engine, &prompt(1, 16), 1);
    leave(&engine, &prompt(2, 1), 1);
    tier.set(Fault::None);
    assert!(host.settle_remote(PATIENCE));
    assert_eq!(host.remote_stats().map(|stats| (stats.full_puts, stats.puts_in_flight)), Some((8, 0)));
    drop((engine, host));
    let held = held(&tier.tier, &prompt(1, 16));
    assert_eq!((&held[..4], held.iter().sum::<u8>()), (&[1; 4][..], 8), "{held:?}");
}

// Holds: HT21.
#[test]
fn a_tier_that_is_too_small_keeps_the_beginning() {
    for (write, step) in [(WritePolicy::Back, 12), (WritePolicy::Back, 5), (WritePolicy::Through, 12)] {
        let folder = folder();
        let file_tier = Arc::new(files(&folder.path().join("files"), 6));
        let region = RegionTier::open_or_create(folder.path().join("region"), common::layout(), 6).expect("a region");
        let region = Arc::new(region);
        let builder = host(12).remote(Arc::clone(&region)).remote(Arc::clone(&file_tier)).remote_write(write);
        let (engine, host) = over(builder, 12);
        let (long, other) = (prompt(1, 12), prompt(2, 12));
        leave(&engine, &long, step);
        if write == WritePolicy::Back {
            leave(&engine, &other, step);
        }
        assert!(host.settle_remote(PATIENCE));
        drop((engine, host));
        assert_eq!(held(&file_tier, &long), beginning(6, 12), "files, {write:?}, {step}");
        assert_eq!(held(&region, &long), beginning(6, 12), "region, {write:?}, {step}");
    }
}

// Holds: HT17, HT21.
#[test]
fn a_tier_that_accepts_few_blocks_at_once_gets_a_sequence_in_parts() {
    for (write, most) in
        [WritePolicy::Back, WritePolicy::Through].into_iter().flat_map(|write| [(write, [3, 64]), (write, [64, 1])])
    {
        let folders = [folder(), folder()];
        let tiers = [0, 1].map(|at| Arc::new(files_that_accept(most[at], folders[at].path(), 64)));
        let builder = || host(24).remote(Arc::clone(&tiers[0])).remote(Arc::clone(&tiers[1])).remote_write(write);
        let (engine, host) = over(builder(), 24);
        let (long, other) = (prompt(1, 24), prompt(2, 24));
        leave(&engine, &long, 24);
        if write == WritePolicy::Back {
            leave(&engine, &other, 24);
        }
        assert!(host.settle_remote(PATIENCE));
        let stats = host.remote_stats().expect("it has remote tiers");
        assert_eq!((stats.put_blocks, stats.failed_puts, stats.puts_in_flight), (48, 0, 0), "{write:?}, {most:?}");
        drop((engine, host));
        // Each tier has all blocks, so the second one is needed only without the first.
        let host = builder().build().expect("a tier");
        let engine = Engine::new(24, &host, TierMode::Exclusive);
        assert_eq!(engine.serve(&long), (0, 0, 24 * SIZE), "{write:?}, {most:?}");
        assert!(host.settle_remote(PATIENCE));
        let stats = host.remote_stats().expect("it has remote tiers");
        assert_eq!((stats.fetched_blocks, stats.gets_in_flight), (24, 0), "{write:?}, {most:?}");
    }
}
