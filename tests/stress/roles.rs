//! The threads beside the workers: a background evictor, and a reader that stays pinned.

use fastrand::Rng;

use crate::held::{Filling, Held};
use crate::world::{NAMES, World};

/// The body of a background evictor's thread.
pub fn evict_forever(world: &'static World, mut dice: Rng) {
    while !world.is_over() {
        match dice.u8(..16) {
            0..8 => _ = world.cache.run_once(),
            8 => world.cache.settle(),
            9..11 => _ = world.cache.evict(dice.usize(1..=4)),
            _ => std::thread::yield_now(),
        }
    }
}

/// Leases an eighth of the blocks at once and holds them to the end, whatever is cleared, dropped
/// or evicted around them.
pub fn hold_forever(world: &'static World, mut dice: Rng) {
    let session = world.cache.session();
    let mut held: Vec<Held> = Vec::new();
    let mut blocks = 0;
    while blocks < world.setting.capacity / 8 && !world.is_over() {
        let name = dice.usize(..NAMES.len());
        let namespace = world.namespace(name);
        let watch = world.watch(name);
        let tokens = world.sequence(&mut dice);
        let found = session.match_prefix(&namespace, &tokens);
        let needed = world.blocks(name, tokens.len()) - found.blocks().len();
        let Ok(reservation) = session.reserve(needed) else {
            std::thread::yield_now();
            continue;
        };
        let filling = Filling::new(world, reservation);
        world.fill(name, &tokens, found.blocks().len(), filling.blocks());
        if let Ok(inserted) = session.insert(found.lease(), &tokens, filling.take()) {
            let all = [found.blocks(), &inserted.blocks[..]].concat();
            blocks += all.len();
            held.push(Held::new(world, (name, watch), tokens, inserted.lease, all));
        }
    }
    while !world.is_over() {
        held.iter().for_each(Held::check);
        std::thread::yield_now();
    }
}
