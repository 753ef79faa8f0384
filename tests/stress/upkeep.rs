//! What a worker does beside serving: wrong arguments, maintenance, and clearing under everybody's feet.

use radixkv::InsertErrorKind;

use crate::held::Filling;
use crate::worker::Worker;
use crate::world::{DROPPED, NAMES};

impl Worker {
    pub fn insert_wrongly(&mut self) {
        let name = self.pick_name();
        let tokens = self.world.sequence(&mut self.dice);
        let held = self.look_up(name, tokens);
        let size = self.world.setting.block_size;
        let (leased, given) = (held.lease().len_tokens(), held.tokens.len());
        let needed = given / size - held.blocks.len();
        let other = self.world.foreign.session();
        let (tokens, reservation, expected) = match self.dice.below(3) {
            0 if leased > 0 => {
                let short = leased - 1 - self.dice.below(leased);
                let kind = InsertErrorKind::TokensTooShort { leased, given: short };
                (&held.tokens[..short], self.reserve(1).map(Filling::take), kind)
            }
            1 => (&held.tokens[..], other.reserve(needed.min(8)).ok(), InsertErrorKind::ForeignReservation),
            _ => {
                let wrong = if needed > 0 && self.dice.one_in(2) { needed - 1 } else { needed + 1 };
                let kind = InsertErrorKind::BlockCount { needed, given: wrong };
                (&held.tokens[..], self.reserve(wrong).map(Filling::take), kind)
            }
        };
        let Some(reservation) = reservation else { return };
        let count = reservation.len();
        let error = self.session.insert(held.lease(), tokens, reservation).expect_err("refused");
        assert_eq!((error.kind, error.reservation.len()), (expected, count));
        let foreign = other.insert(held.lease(), tokens, error.reservation).expect_err("refused");
        assert_eq!(foreign.kind, InsertErrorKind::ForeignLease);
    }

    pub fn forget_handle(&mut self) {
        let name = self.pick_name();
        self.handles[name] = None;
    }

    /// What a maintenance thread might call.
    pub fn look_after(&mut self) {
        let capacity = self.world.setting.capacity;
        let cache = &self.world.cache;
        match self.dice.below(8) {
            0..3 => {
                let want = self.dice.below(capacity / 4);
                assert!(cache.evict(want) <= want);
            }
            3 => cache.settle(),
            4 => _ = cache.run_once(),
            5 => {
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

    /// Clears or drops namespaces under everybody's feet.
    pub fn disturb(&mut self) {
        let name = self.pick_name();
        let namespace = self.handle(name).namespace.clone();
        let world = self.world;
        match self.dice.below(4) {
            0 => world.turn_over(0..NAMES.len(), || world.cache.clear()),
            1 => world.turn_over(name..name + 1, || world.cache.clear_namespace(&namespace)),
            _ => {
                let name = DROPPED + self.dice.below(NAMES.len() - DROPPED);
                let namespace = self.handle(name).namespace.clone();
                world.turn_over(name..name + 1, || world.cache.drop_namespace(&namespace));
            }
        }
    }
}
