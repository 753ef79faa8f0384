//! Namespaces by the thousand: made, used once or not at all, let go of or dropped; and some that
//! outgrow a limit.

use radixkv::{Namespace, Quota, Token};

use crate::slots::mix;
use crate::worker::Worker;

/// Namespaces that one step makes.
const BATCH: usize = 50;
/// Different names: threads meet in some.
const CROWD: u32 = 4000;

impl Worker {
    pub fn crowd(&mut self) {
        for _ in 0..self.dice.usize(..BATCH) {
            let name = self.dice.u32(..CROWD).to_string();
            let namespace = self.world.cache.namespace(&["crowd", &name]);
            if self.dice.u8(..8) == 0 {
                let token = self.dice.u32(..4);
                self.insert_one(&namespace, token);
            }
            match self.dice.u8(..16) {
                0 => namespace.remove(),
                1 => namespace.clear(),
                _ => {}
            }
        }
    }

    /// Caches much in a namespace that no other thread knows of, then limits that: after settling
    /// it is kept to.
    pub fn outgrow(&mut self) {
        let name = self.dice.u64(..).to_string();
        let namespace = self.world.cache.namespace(&["own", &name]);
        let blocks = self.dice.u32(..self.world.setting.capacity as u32 / 4);
        (0..blocks).for_each(|token| self.insert_one(&namespace, token));
        let limit = self.dice.usize(..=blocks as usize);
        namespace.set_quota(Quota::default().cached_blocks(limit));
        self.world.cache.settle();
        let stats = namespace.stats();
        assert!(stats.cached_blocks <= limit, "nothing is leased there: {stats:?}");
        namespace.remove();
    }

    /// Caches one block in a namespace that others may drop meanwhile.
    fn insert_one(&mut self, namespace: &Namespace, token: Token) {
        let size = self.world.setting.block_size;
        let tokens = vec![token; size];
        let hit = self.session.match_prefix(namespace, &tokens);
        if hit.len_tokens() == size {
            self.world.slots.read(hit.blocks()[0]);
            return;
        }
        let Some(filling) = self.reserve(None, 1) else { return };
        self.world.slots.fill(filling.blocks()[0], mix(u64::from(tokens[0])));
        if let Ok(inserted) = self.session.insert(hit.lease(), &tokens, filling.take()) {
            self.world.slots.read(inserted.blocks[0]);
        }
    }
}
