//! Healthy caches pass, whatever leases and reservations are held.

use std::time::Duration;

use fastrand::Rng;

use super::bed::{put, sequence};
use crate::policy::PolicyKind;
use crate::{Clock, Lease, Namespace, PrefixCache, Priority, Session};

/// A cache under random operations, which is checked after some of them.
struct Churn {
    cache: PrefixCache,
    session: Session,
    spaces: [Namespace; 2],
    leases: Vec<Lease>,
    dice: Rng,
}

impl Churn {
    fn new(block_size: usize, policy: PolicyKind) -> Self {
        let builder = PrefixCache::builder(block_size, 40).policy(policy).clock(Clock::Logical);
        let cache = builder.build().expect("valid");
        let spaces = [cache.default_namespace(), cache.namespace(&["adapter"])];
        Self { session: cache.session(), spaces, leases: Vec::new(), dice: Rng::with_seed(block_size as u64), cache }
    }

    fn step(&mut self) {
        let block_size = self.cache.block_size();
        let len = self.dice.usize(..8 * block_size);
        let keep = self.dice.usize(..=len);
        let tokens = sequence(len, keep, 100 * self.dice.u32(..4));
        let at = self.dice.usize(..2);
        match self.dice.u8(..30) {
            0..8 => self.leases.extend(put(&self.session, &self.spaces[at], &tokens, block_size)),
            8..12 => self.leases.push(self.session.match_prefix(&self.spaces[at], &tokens).into_lease()),
            12..20 if !self.leases.is_empty() => {
                let lease = self.dice.usize(..self.leases.len());
                drop(self.leases.swap_remove(lease));
            }
            24..30 if !self.leases.is_empty() => self.ask(),
            20 => drop(self.cache.evict(self.dice.usize(..6))),
            21 => self.spaces[at].clear(),
            22 => {
                self.spaces[1].remove();
                self.spaces[1] = self.cache.namespace(&["adapter"]);
            }
            _ => self.cache.settle(),
        }
    }

    /// Marks a held prefix: retains, prioritizes, demotes or releases it.
    fn ask(&mut self) {
        let lease = &self.leases[self.dice.usize(..self.leases.len())];
        let duration = Duration::from_nanos(self.dice.u64(..200));
        match self.dice.u8(..6) {
            0..3 => {
                let priority = Priority::new(self.dice.i64(..));
                let expires = self.dice.u8(..3) > 0;
                let priority = if expires { priority.expiring_after(duration) } else { priority };
                self.session.prioritize(lease, priority);
            }
            // The namespace may have been cleared.
            3 => drop(self.session.retain(lease, duration)),
            4 => self.session.demote(lease),
            _ => self.session.release_retained(lease),
        }
    }

    /// Runs `steps` steps and checks the cache only now and then, so that the queue gets several
    /// changes.
    fn run(mut self, steps: u64) {
        for step in 0..steps {
            self.cache.set_time(step / 2);
            self.step();
            if self.dice.u8(..3) == 0 {
                assert_eq!(self.cache.validate(), Ok(()), "after step {step}");
            }
        }
        self.leases.clear();
        assert_eq!(self.cache.validate(), Ok(()));
        self.cache.set_time(steps + 200);
        assert_eq!(self.cache.validate(), Ok(()));
        self.cache.evict(usize::MAX);
        assert_eq!(self.cache.validate(), Ok(()));
        assert_eq!(self.cache.stats().free_blocks, self.cache.capacity_blocks());
    }
}

// Holds: NU13.
#[test]
fn every_policy_and_block_size_stays_sound() {
    let steps = crate::sync::model_size(3_000, 60) as u64;
    for policy in PolicyKind::ALL.iter().copied() {
        for block_size in [1, 3, 16] {
            Churn::new(block_size, policy).run(steps);
        }
    }
}

#[test]
fn what_is_held_at_rest_is_sound() {
    let cache = PrefixCache::builder(4, 64).build().expect("valid");
    assert_eq!(cache.validate(), Ok(()), "empty");
    let (session, space) = (cache.session(), cache.namespace(&["a"]));
    let missed = session.match_prefix(&space, &[7]);
    let whole = put(&session, &space, &sequence(12, 12, 0), 4);
    let inside = session.match_prefix(&space, &sequence(8, 8, 0));
    let reserved = session.reserve(5);
    assert_eq!(cache.validate(), Ok(()), "leases and a reservation");
    space.remove();
    assert_eq!(cache.validate(), Ok(()), "a dropped namespace that is leased");
    drop(whole);
    assert_eq!(cache.validate(), Ok(()), "leased in part");
    drop((inside, reserved));
    assert_eq!(cache.validate(), Ok(()), "a leased root");
    drop(missed);
    assert_eq!(cache.validate(), Ok(()), "gone");
    cache
        .inner
        .evicting(|evictor, _| assert!(evictor.common.detached.is_empty(), "a space that has ended is off the list"));
}

/// A detached space is trimmed while the queue is drained, newest entry first: the branch is
/// removed before the evictor knows the boundary below it.
#[test]
fn a_branch_that_is_swept_before_its_boundary_is_known_leaves_no_point() {
    let cache = PrefixCache::builder(4, 64).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let whole = put(&session, &space, &sequence(12, 12, 0), 4);
    drop(put(&session, &space, &sequence(8, 6, 100), 4));
    space.clear();
    assert_eq!(cache.validate(), Ok(()));
    drop(whole);
    assert_eq!(cache.validate(), Ok(()));
}

/// Appends `runs` runs of one block each, one to the end of the other, and checks them. Another run
/// is attached beside each, so that none can grow.
fn chain(runs: usize) {
    let cache = PrefixCache::builder(1, 2 * runs).build().expect("valid");
    let (session, space) = (cache.session(), cache.default_namespace());
    let mut tokens = sequence(runs, runs, 0);
    let mut tip = session.match_prefix(&space, &[]).into_lease();
    for end in 1..=runs {
        let own = std::mem::replace(&mut tokens[end - 1], u32::MAX);
        drop(session.insert(&tip, &tokens[..end], session.reserve(1).expect("room")).expect("inserted"));
        tokens[end - 1] = own;
        tip = session.insert(&tip, &tokens[..end], session.reserve(1).expect("room")).expect("inserted").lease;
    }
    assert_eq!(cache.validate(), Ok(()));
    assert!((runs..=2 * runs).contains(&cache.stats().runs));
    drop(tip);
    assert_eq!(cache.validate(), Ok(()));
}

#[test]
fn a_long_chain_needs_no_stack() {
    let runs = crate::sync::model_size(100_000, 100);
    let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(move || chain(runs));
    thread.expect("a thread").join().expect("a chain that is sound");
}
