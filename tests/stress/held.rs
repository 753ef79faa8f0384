//! A lease with what it was given for, and a reservation that knows its slots.

use radixkv::{BlockId, Lease, Namespace, Reservation, Session, Token};

use crate::slots::{Slots, prefixes};
use crate::world::{Watch, World};

/// A lease, and all that must stay true while it lives. Dropping it checks that once more.
pub struct Held {
    pub world: &'static World,
    pub name: usize,
    pub watch: Watch,
    /// The sequence that was looked up; the lease covers its beginning.
    pub tokens: Vec<Token>,
    pub blocks: Vec<BlockId>,
    stamps: Vec<u64>,
    /// The namespace's handle, kept since it was looked up.
    pub handled: bool,
    /// Nothing once it was taken by value.
    pub lease: Option<Lease>,
}

impl Held {
    /// Takes over a lease whose blocks are `blocks`. The watch was begun before the lookup.
    pub fn new(
        world: &'static World,
        (name, watch): (usize, Watch),
        tokens: Vec<Token>,
        lease: Lease,
        blocks: Vec<BlockId>,
    ) -> Self {
        let size = world.setting.block_size;
        let len = lease.len_tokens();
        assert!(len <= tokens.len(), "{len} tokens matched of {}", tokens.len());
        assert_eq!(len, blocks.len() * size, "a lease covers the whole blocks that it names");
        let stamps: Vec<u64> = blocks.iter().map(|&block| world.slots.read(block)).collect();
        for (i, &prefix) in prefixes(name, &tokens[..len], size).iter().enumerate() {
            assert!(Slots::is_of(stamps[i], prefix), "block {} at {i} of {len} holds another prefix", blocks[i]);
        }
        Self { world, name, watch, tokens, blocks, stamps, handled: false, lease: Some(lease) }
    }

    pub fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("a lease is taken once")
    }

    /// No block was recycled since the lookup.
    pub fn check(&self) {
        for (&block, &stamp) in self.blocks.iter().zip(&self.stamps) {
            let now = self.world.slots.read(block);
            assert!(now == stamp, "leased block {block} was recycled: {stamp:x}, now {now:x}");
        }
    }

    /// Others find what is leased, unless the namespace was cleared or dropped.
    pub fn check_found(&self, session: &Session, namespace: &Namespace) {
        let len = self.lease().len_tokens();
        let tokens = &self.tokens[..self.world.tokens(self.name, self.blocks.len())];
        let peeked = session.peek(namespace, tokens);
        let matched = session.match_prefix_untouched(namespace, tokens);
        if self.world.is_undisturbed(self.name, self.watch) {
            assert_eq!(peeked, len, "peek misses a leased prefix");
            assert_eq!(matched.blocks(), self.blocks, "two leases on one prefix name different blocks");
        }
    }

    /// A second lease on the same prefix.
    pub fn duplicate(&self) -> Self {
        let lease = self.lease().try_clone().expect("few leases");
        let whole = (self.name, self.watch);
        let copy = Self::new(self.world, whole, self.tokens.clone(), lease, self.blocks.clone());
        assert_eq!(copy.stamps, self.stamps, "a leased block was recycled");
        copy
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

/// A reservation whose blocks no other reservation may have.
pub struct Filling {
    world: &'static World,
    reservation: Option<Reservation>,
}

impl Filling {
    pub fn new(world: &'static World, reservation: Reservation) -> Self {
        reservation.blocks().iter().for_each(|&block| world.slots.reserve(block));
        Self { world, reservation: Some(reservation) }
    }

    pub fn blocks(&self) -> &[BlockId] {
        self.reservation.as_ref().map_or(&[], |reservation| reservation.blocks())
    }

    /// The first `n` blocks, to be inserted before the rest.
    pub fn split(&mut self, n: usize) -> Reservation {
        let part = self.reservation.as_mut().expect("a reservation is taken once").split(n);
        part.blocks().iter().for_each(|&block| self.world.slots.unreserve(block));
        part
    }

    /// The reservation itself, to be inserted.
    pub fn take(mut self) -> Reservation {
        self.let_go();
        self.reservation.take().expect("a reservation is taken once")
    }

    fn let_go(&self) {
        self.blocks().iter().for_each(|&block| self.world.slots.unreserve(block));
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.let_go();
    }
}
