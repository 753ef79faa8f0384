//! Namespaces by the thousand: made, used once or not at all, let go of or dropped.

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
                self.insert_one(&namespace);
            }
            match self.dice.u8(..16) {
                0 => self.world.cache.drop_namespace(&namespace),
                1 => self.world.cache.clear_namespace(&namespace),
                _ => {}
            }
        }
    }

    /// Caches one block in a namespace that others may drop meanwhile.
    fn insert_one(&mut self, namespace: &radixkv::Namespace) {
        let size = self.world.setting.block_size;
        let tokens = vec![self.dice.u32(..4); size];
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
