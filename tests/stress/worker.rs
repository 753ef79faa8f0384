//! A scheduler thread of the stress test: every verb of the cache, in random order.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;
use radixkv::{BlockRequest, InsertErrorKind, Inserted, Namespace, ReserveError, Session, Token};

use crate::forks::Fork;
use crate::held::{Filling, Held};
use crate::world::{NAMES, Watch, World};

/// Leases that a thread keeps beyond one step.
const KEPT: usize = 4;

/// What a thread has done, so that a test that does nothing shows.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub steps: u64,
    pub hit_blocks: u64,
    pub inserts: u64,
    pub duplicates: u64,
    pub exhausted: u64,
    pub over_quota: u64,
    pub disturbed: u64,
    pub parts: u64,
    pub forks: u64,
    pub served: u64,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.hit_blocks += other.hit_blocks;
        self.inserts += other.inserts;
        self.duplicates += other.duplicates;
        self.exhausted += other.exhausted;
        self.over_quota += other.over_quota;
        self.disturbed += other.disturbed;
        self.parts += other.parts;
        self.forks += other.forks;
        self.served += other.served;
    }
}

/// A namespace as a thread holds it.
pub struct Handle {
    pub namespace: Namespace,
    watch: Watch,
}

/// A scheduler thread's own state.
pub struct Worker {
    pub world: &'static World,
    pub dice: Rng,
    pub tally: Tally,
    pub session: Session,
    pub handles: [Option<Handle>; NAMES.len()],
    pub kept: Vec<Held>,
    pub fork: Option<Fork>,
}

impl Worker {
    pub fn new(world: &'static World, dice: Rng) -> Self {
        let session = world.cache.session();
        let (tally, handles) = (Tally::default(), Default::default());
        Self { world, dice, tally, session, handles, kept: Vec::new(), fork: None }
    }

    /// Works until the round is over.
    pub fn run(mut self) -> Tally {
        while !self.world.is_over() {
            self.step();
        }
        self.tally
    }

    fn step(&mut self) {
        self.tally.steps += 1;
        match self.dice.u32(..1000) {
            0..250 => self.serve(),
            250..300 => self.serve_in_chunks(),
            300..340 => self.fork(),
            340..370 => self.await_blocks(),
            370..375 => self.wait(),
            375..377 => self.crowd(),
            377..379 => self.outgrow(),
            379..480 => self.look_up_only(),
            480..520 => self.copy_a_part(),
            520..600 => self.resume(),
            600..640 => self.duplicate(),
            640..700 => self.hand_over(),
            700..760 => self.take_over(),
            760..900 => self.let_go(),
            900..920 => self.insert_wrongly(),
            920..935 => self.panic_while_holding(),
            935..945 => self.session = self.world.cache.session(),
            945..955 => self.forget_handle(),
            955..960 => self.limit(),
            960..980 => self.look_after(),
            980..990 => self.ask(),
            _ => self.disturb(),
        }
        if self.kept.len() > KEPT {
            let oldest = self.kept.remove(0);
            self.release(oldest);
        }
    }

    pub fn pick_name(&mut self) -> usize {
        self.dice.usize(..NAMES.len())
    }

    pub fn handle(&mut self, name: usize) -> &Handle {
        let world = self.world;
        self.handles[name].get_or_insert_with(|| {
            let watch = world.watch(name);
            Handle { namespace: world.namespace(name), watch }
        })
    }

    pub fn look_up(&mut self, name: usize, tokens: Vec<Token>) -> Held {
        let watch = self.world.watch(name);
        let namespace = self.handle(name).namespace.clone();
        let (lease, blocks) = match self.dice.u8(..3) {
            0 => {
                let mut blocks = vec![7; 3];
                let lease = self.session.match_prefix_into(&namespace, &tokens, &mut blocks);
                (lease, blocks)
            }
            1 => split(self.session.match_prefix(&namespace, &tokens)),
            _ => split(self.session.match_prefix_untouched(&namespace, &tokens)),
        };
        let mut held = Held::new(self.world, (name, watch), tokens, lease, blocks);
        held.handled = true;
        self.tally.hit_blocks += held.blocks.len() as u64;
        held
    }

    fn look_up_only(&mut self) {
        let name = self.pick_name();
        let tokens = self.world.sequence(&mut self.dice);
        let held = self.look_up(name, tokens);
        self.keep_or_release(held);
    }

    /// Finds the block that agrees longest beyond a lease; it is not rewritten while the hit lives.
    fn copy_a_part(&mut self) {
        let name = self.pick_name();
        let tokens = self.world.sequence(&mut self.dice);
        let held = self.look_up(name, tokens);
        let size = self.world.setting.block_size;
        if let Some(hit) = self.session.match_partial(held.lease(), &held.tokens, self.dice.usize(1..=size)) {
            assert!((1..=size).contains(&hit.len_tokens()) && !held.blocks.contains(&hit.block()));
            let stamp = self.world.slots.read(hit.block());
            if self.dice.bool() {
                self.look_after();
            }
            assert_eq!(self.world.slots.read(hit.block()), stamp, "the source of a partial hit was recycled");
            self.tally.parts += 1;
        }
        self.keep_or_release(held);
    }

    fn serve(&mut self) {
        let name = self.pick_name();
        let tokens = self.world.sequence(&mut self.dice);
        let held = self.look_up(name, tokens);
        self.extend(held);
    }

    /// Inserts what lies beyond the lease.
    fn extend(&mut self, held: Held) {
        let needed = self.world.blocks(held.name, held.tokens.len()) - held.blocks.len();
        let Some(filling) = self.reserve(Some(held.name), needed) else {
            return;
        };
        self.world.fill(held.name, &held.tokens, held.blocks.len(), filling.blocks());
        let filled = filling.blocks().to_vec();
        match self.session.insert(held.lease(), &held.tokens, filling.take()) {
            Ok(inserted) => {
                let longer = self.inserted(&held, held.tokens.clone(), &filled, inserted);
                self.release(held);
                self.keep_or_release(longer);
            }
            Err(error) => {
                assert_eq!(error.reservation.blocks(), filled, "a refused insert gives its reservation back");
                self.refused(&held, error.kind);
            }
        }
    }

    /// Checks what an insert says it did.
    pub fn inserted(&mut self, held: &Held, tokens: Vec<Token>, filled: &[u32], inserted: Inserted) -> Held {
        let size = self.world.setting.block_size;
        let aligned = self.world.blocks(held.name, tokens.len()) * size;
        assert_eq!(inserted.lease.len_tokens(), aligned);
        assert_eq!(inserted.dropped_tokens, tokens.len() - aligned);
        let duplicates = inserted.duplicates.len();
        assert_eq!(inserted.duplicates.blocks(), &filled[..duplicates], "duplicates are the first of the caller's");
        assert_eq!(inserted.blocks[duplicates..], filled[duplicates..], "the rest is canonical");
        assert!(inserted.blocks[..duplicates].iter().all(|block| !filled.contains(block)));
        self.tally.inserts += 1;
        self.tally.duplicates += duplicates as u64;
        let blocks = [&held.blocks[..], &inserted.blocks].concat();
        Held::new(self.world, (held.name, held.watch), tokens, inserted.lease, blocks)
    }

    pub fn refused(&mut self, held: &Held, kind: InsertErrorKind) {
        if let InsertErrorKind::OverQuota { requested, pinned, limit } = kind {
            assert!(requested > 0 && requested + pinned > limit, "{kind}");
            self.tally.over_quota += 1;
            return;
        }
        assert_eq!(kind, InsertErrorKind::NamespaceDropped, "a sound insert was refused");
        let handle = self.handles[held.name].take();
        let is_current = handle.is_some_and(|handle| self.world.is_undisturbed(held.name, handle.watch));
        // A namespace is forgotten when it has no handle and nothing is cached in it.
        let is_kept = held.name == 0 || !held.blocks.is_empty() || (held.handled && is_current);
        let is_undisturbed = is_kept && self.world.is_undisturbed(held.name, held.watch);
        assert!(!is_undisturbed, "refused in {:?}, which was not dropped", NAMES[held.name]);
        self.tally.disturbed += 1;
    }

    /// A long prompt: one reservation, inserted piece by piece, each from the last one's lease.
    fn serve_in_chunks(&mut self) {
        let name = self.pick_name();
        let tokens = self.world.sequence(&mut self.dice);
        let mut held = self.look_up(name, tokens.clone());
        let needed = self.world.blocks(name, tokens.len()) - held.blocks.len();
        let Some(mut filling) = self.reserve(Some(name), needed) else {
            return;
        };
        while !filling.blocks().is_empty() {
            let blocks = self.dice.usize(1..=filling.blocks().len());
            let chunk = filling.split(blocks);
            let filled = chunk.blocks().to_vec();
            let end = self.world.tokens(name, held.blocks.len() + blocks);
            self.world.fill(name, &tokens[..end], held.blocks.len(), &filled);
            match self.session.insert(held.lease(), &tokens[..end], chunk) {
                Ok(inserted) => held = self.inserted(&held, tokens[..end].to_vec(), &filled, inserted),
                Err(error) => return self.refused(&held, error.kind),
            }
        }
        self.keep_or_release(held);
    }

    /// Reserves for a namespace, or for none.
    pub fn reserve(&mut self, name: Option<usize>, blocks: usize) -> Option<Filling> {
        let namespace = name.filter(|_| self.dice.bool()).map(|name| self.handle(name).namespace.clone());
        let reserved = match namespace {
            Some(namespace) => self.session.reserve(BlockRequest::new(blocks).paid_by(&namespace)),
            None => self.session.reserve(blocks),
        };
        match reserved {
            Ok(reservation) => {
                assert_eq!(reservation.len(), blocks, "all or nothing");
                Some(Filling::new(self.world, reservation))
            }
            Err(ReserveError::TooLarge { .. }) => {
                assert!(blocks > self.world.setting.capacity);
                None
            }
            Err(error) => {
                match error {
                    ReserveError::OverQuota { requested, pinned, limit } => {
                        assert!(requested == blocks && requested + pinned > limit, "{error}");
                        self.tally.over_quota += 1;
                    }
                    ReserveError::Exhausted { requested, available } => {
                        assert!(requested == blocks && available < requested, "{error}");
                        self.tally.exhausted += 1;
                    }
                    _ => panic!("refused without a reason: {error}"),
                }
                self.kept.clear();
                self.fork = None;
                self.let_a_task_go();
                None
            }
        }
    }

    fn resume(&mut self) {
        let Some(mut held) = self.take_kept() else { return };
        let mut tokens = held.tokens.clone();
        if self.dice.bool() {
            tokens.extend(self.world.sequence(&mut self.dice));
            tokens.truncate(self.world.setting.longest);
        }
        if tokens.len() < self.world.tokens(held.name, held.blocks.len()) {
            return;
        }
        let lease = held.lease.take().expect("kept with its lease");
        let (lease, blocks) = if self.dice.bool() {
            split(self.session.resume(lease, &tokens))
        } else {
            let mut beyond = vec![7; 3];
            let lease = self.session.resume_into(lease, &tokens, &mut beyond);
            (lease, [&held.blocks[..], &beyond].concat())
        };
        assert_eq!(blocks[..held.blocks.len()], held.blocks, "resuming keeps what was leased");
        let longer = Held::new(self.world, (held.name, held.watch), tokens, lease, blocks);
        drop(held);
        if self.dice.bool() { self.extend(longer) } else { self.keep_or_release(longer) }
    }

    pub fn take_kept(&mut self) -> Option<Held> {
        let kept = self.kept.len();
        (kept > 0).then(|| self.kept.swap_remove(self.dice.usize(..kept)))
    }

    pub fn keep_or_release(&mut self, held: Held) {
        if self.dice.u8(..3) == 0 { self.keep(held) } else { self.release(held) }
    }

    fn keep(&mut self, mut held: Held) {
        held.handled = false;
        self.kept.push(held);
    }

    fn release(&mut self, held: Held) {
        // Now and then through a new handle: it finds what other handles have leased.
        if self.dice.u8(..8) == 0 {
            self.handles[held.name] = None;
        }
        if self.dice.u8(..4) == 0 {
            let watched = self.handle(held.name).watch;
            let name = held.name;
            if name == 0 || self.world.is_undisturbed(name, watched) {
                let namespace = self.handle(name).namespace.clone();
                held.check_found(&self.session, &namespace);
            }
        }
        drop(held);
    }

    fn let_go(&mut self) {
        if let Some(held) = self.take_kept() {
            self.release(held);
        }
    }

    fn duplicate(&mut self) {
        if let Some(held) = self.take_kept() {
            let copy = held.duplicate();
            if self.dice.bool() {
                self.release(held);
            } else {
                self.keep(held);
            }
            self.keep(copy);
        }
    }

    fn hand_over(&mut self) {
        if let Some(held) = self.take_kept() {
            self.world.exchange.lock().push(held);
        }
    }

    fn take_over(&mut self) {
        let taken = self.world.exchange.lock().pop();
        if let Some(held) = taken {
            held.check();
            if self.dice.u8(..3) == 0 { self.keep(held) } else { drop(held) }
        }
    }

    /// A panic releases what its holder had.
    fn panic_while_holding(&mut self) {
        let held = self.take_kept();
        let filling = self.reserve(None, 2);
        let holder = || {
            let _holding = (held, filling);
            // Past the hook: this panic is no news.
            resume_unwind(Box::new("expected"));
        };
        let result: std::thread::Result<()> = catch_unwind(AssertUnwindSafe(holder));
        assert!(result.is_err());
    }
}

/// A match's two halves.
fn split(found: radixkv::PrefixMatch) -> (radixkv::Lease, Vec<u32>) {
    let blocks = found.blocks().to_vec();
    (found.into_lease(), blocks)
}
