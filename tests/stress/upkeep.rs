//! What a worker does beside serving: wrong arguments, maintenance, and clearing namespaces that
//! are in use.

use std::time::Duration;

use radixkv::{InsertErrorKind, PolicyKind, Priority, Quota, RetainError};

use crate::held::Filling;
use crate::worker::Worker;
use crate::world::{DROPPED, NAMES};

/// Prefixes are retained for less than this: a small part of a round.
pub const LONGEST_RETAINED: Duration = Duration::from_millis(2);

impl Worker {
    /// Asks for a prefix that it holds to be kept, or not.
    pub fn ask(&mut self) {
        let Some(held) = self.kept.last() else { return };
        let (lease, undisturbed) = (held.lease(), self.world.is_undisturbed(held.name, held.watch));
        let duration = LONGEST_RETAINED / self.dice.u32(1..=1000);
        match self.dice.u8(..4) {
            0 => {
                let priority = Priority::new(self.dice.i64(..));
                self.session.prioritize(lease, priority.expiring_after(duration));
                self.session.prioritize(lease, Priority::new(self.dice.i64(..)));
            }
            1 => match self.session.retain(lease, duration) {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error, RetainError::NamespaceDropped);
                    // A lease on nothing may be of a namespace that was dropped before it was
                    // taken.
                    let is_undisturbed =
                        undisturbed && !held.blocks.is_empty() && self.world.is_undisturbed(held.name, held.watch);
                    assert!(!is_undisturbed, "not retained in a namespace that was not dropped");
                }
            },
            2 => self.session.demote(lease),
            _ => self.session.release_retained(lease),
        }
    }

    pub fn insert_wrongly(&mut self) {
        let name = self.pick_name();
        let tokens = self.world.sequence(&mut self.dice);
        let held = self.look_up(name, tokens);
        let given = held.tokens.len();
        let needed = self.world.blocks(name, given) - held.blocks.len();
        let wrong = if needed > 0 && self.dice.bool() { needed - 1 } else { needed + 1 };
        let Some(reservation) = self.reserve(None, wrong).map(Filling::take) else { return };
        let error = self.session.insert(held.lease(), &held.tokens, reservation).expect_err("refused");
        let kind = InsertErrorKind::BlockCount { needed, given: wrong };
        assert_eq!((error.kind, error.reservation.len()), (kind, wrong));
    }

    pub fn forget_handle(&mut self) {
        let name = self.pick_name();
        self.handles[name] = None;
    }

    /// What a maintenance thread might call.
    pub fn look_after(&mut self) {
        let capacity = self.world.setting.capacity;
        let cache = &self.world.cache;
        match self.dice.u8(..10) {
            0..3 => {
                let want = self.dice.usize(..capacity / 4);
                assert!(cache.evict(want) <= want);
            }
            3 => cache.settle(),
            4 => _ = cache.run_once(),
            5 => cache.settings().set_policy(self.dice.choice(PolicyKind::ALL.iter().copied()).expect("one of them")),
            6 => {
                let tokens = self.world.sequence(&mut self.dice);
                let name = self.pick_name();
                let namespace = self.handle(name).namespace.clone();
                let peeked = self.session.peek(&namespace, &tokens);
                assert!(peeked <= tokens.len() && peeked % self.world.setting.block_size == 0);
            }
            _ => {
                let stats = cache.stats();
                assert!(stats.free_blocks <= capacity);
                assert!(stats.evictable_blocks <= capacity && stats.protected_blocks <= capacity);
            }
        }
    }

    /// Gives a namespace another quota, or none.
    pub fn limit(&mut self) {
        let (name, capacity) = (self.pick_name(), self.world.setting.capacity);
        let dice = &mut self.dice;
        let mut limit = || (dice.u8(..4) > 0).then(|| dice.usize(..capacity));
        let mut quota = Quota::default();
        (quota.cached_blocks, quota.pinned_blocks) = (limit(), limit());
        let namespace = self.handle(name).namespace.clone();
        namespace.set_quota(quota);
        let stats = namespace.stats();
        assert!(stats.cached_blocks <= capacity && stats.protected_blocks <= capacity, "{stats:?}");
    }

    /// Clears or drops namespaces that are in use.
    pub fn disturb(&mut self) {
        let name = self.pick_name();
        let namespace = self.handle(name).namespace.clone();
        let world = self.world;
        match self.dice.u8(..4) {
            0 => world.turn_over(0..NAMES.len(), || world.cache.clear()),
            1 => world.turn_over(name..name + 1, || namespace.clear()),
            _ => {
                let name = self.dice.usize(DROPPED..NAMES.len());
                let namespace = self.handle(name).namespace.clone();
                world.turn_over(name..name + 1, || namespace.remove());
            }
        }
    }
}
