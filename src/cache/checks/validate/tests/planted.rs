//! Each planted corruption is found and named.

use super::bed::{CAPACITY, Scene, found, sequence};
use crate::PrefixCache;
use crate::block::BlockId;
use crate::cache::checks::diagnostics::{BrokenInvariant, Mismatch, PointAt, RunAt};
use crate::cache::checks::violation::Violation;
use crate::cache::evictor::Evictor;
use crate::cache::leases::priority::Priority;
use crate::key::Token;
use crate::policy::{CandidateEntry, CandidateId, CandidateStats, Policy};
use crate::reclaim::Ref;
use crate::sync::Arc;
use crate::sync::gauge::Relaxed;
use crate::tree::{Beginning, Demotions, Marked, Point, Run, ShardId, Space, Word};

const TRUNK: RunAt = RunAt { start: 0, first: 0 };
const RUN: RunAt = RunAt { start: 0, first: 1 };
const BRANCH: RunAt = RunAt { start: 6, first: 107 };
const OTHER: RunAt = RunAt { start: 0, first: 1001 };

fn on(run: RunAt, depth: u32) -> PointAt {
    PointAt { run, depth }
}

fn counts(recorded: usize, found: usize) -> Mismatch {
    Mismatch { recorded, found }
}

/// Attaches a run of `tokens` to `under`, with the given beginning.
fn hang<'g>(scene: Scene<'g>, under: Ref<'g, Point>, at: Beginning<'g>, tokens: &[Token]) -> Ref<'g, Run> {
    let guard = scene.resources.guard;
    let run = Run::new(at, tokens, &[], guard);
    assert!(under.word.add_child());
    let Ok(run) = under.as_ref().children.insert(None, run, guard) else {
        panic!("nothing hung there");
    };
    run
}

/// Puts a point on `scene.run` at `depth` whose own link names `run`.
fn stand<'g>(scene: Scene<'g>, run: Ref<'g, Run>, depth: u32) {
    let guard = scene.resources.guard;
    let point = Point::new(run.link(), depth, Word::idle(), 0, guard);
    assert!(scene.run.as_ref().points.insert(None, point, guard).is_ok());
}

/// Gives `scene.run` other arrays.
fn rewrite(scene: Scene<'_>, tokens: &[Token], blocks: impl FnOnce(&mut Vec<BlockId>)) {
    let mut ids = scene.run.block_ids(scene.resources.guard).to_vec();
    blocks(&mut ids);
    scene.run.as_ref().replace_arrays(tokens, &ids, scene.resources.guard);
}

#[test]
fn work_left_behind() {
    let queued = found(|_, scene| scene.resources.queues.push(scene.end));
    assert_eq!(queued, BrokenInvariant::QueueNotEmpty);
    let revisit = found(|evictor, scene| evictor.revisit.push(scene.end.link()));
    assert_eq!(revisit, BrokenInvariant::Unfinished { points: 1, blocks: 0 });
    let freed = found(|evictor, _| evictor.freed.push(3));
    assert_eq!(freed, BrokenInvariant::Unfinished { points: 0, blocks: 1 });
}

// Holds: NU13.
#[test]
fn spaces() {
    assert_eq!(found(|_, scene| scene.space.detach()), BrokenInvariant::NamespaceDetached);
    let listed = found(|evictor, scene| assert!(evictor.common.detached.insert(scene.space.link())));
    assert_eq!(listed, BrokenInvariant::SpaceNotDetached);
    let uprooted = found(|_, scene| {
        assert!(scene.root.run().as_ref().points.remove(scene.root, scene.resources.guard));
    });
    assert_eq!(uprooted, BrokenInvariant::NoRoot);
    let kept = found(|evictor, scene| {
        let space = Space::plant(0, Arc::clone(&scene.space.account), scene.resources.guard).run().space();
        space.detach();
        space.root(scene.resources.guard).expect("planted").word.flip(Word::QUEUED | Word::CHILD);
        evictor.common.detached.insert(space.link());
    });
    assert_eq!(kept, BrokenInvariant::IdleInDetached(on(TRUNK, 0)));
}

#[test]
fn point_words() {
    assert_eq!(found(|_, scene| scene.end.word.flip(Word::DEAD)), BrokenInvariant::DeadPoint(on(RUN, 12)));
    assert_eq!(found(|_, scene| scene.mark.word.flip(Word::NEW)), BrokenInvariant::NewPoint(on(RUN, 4)));
    assert_eq!(found(|_, scene| scene.leased.word.flip(Word::QUEUED)), BrokenInvariant::QueuedPoint(on(RUN, 8)));
    assert_eq!(found(|_, scene| scene.end.word.flip(Word::OPEN)), BrokenInvariant::HotPoint(on(RUN, 12)));
    let idle = found(|_, scene| scene.resources.hot.inflate(scene.mark));
    assert_eq!(idle, BrokenInvariant::HotPoint(on(RUN, 4)));
    let leased = found(|_, scene| scene.fork.word.flip(Word::LEASE));
    assert_eq!(leased, BrokenInvariant::LeasedInBlock { point: on(RUN, 6), leases: 1 });
    assert_eq!(found(|_, scene| scene.fork.word.flip(Word::CHILD)), BrokenInvariant::StrayBranch(on(RUN, 6)));
    let counted = found(|_, scene| scene.end.word.flip(Word::CHILD));
    assert_eq!(counted, BrokenInvariant::ChildCount { point: on(RUN, 12), counted: 1, hanging: 0 });
    let root = found(|_, scene| assert!(scene.root.word.add_child()));
    assert_eq!(root, BrokenInvariant::ChildCount { point: on(TRUNK, 0), counted: 4, hanging: 3 });
}

#[test]
fn hidden_parts() {
    let unlisted = found(|_, scene| scene.run.show(8, scene.resources.guard));
    assert_eq!(unlisted, BrokenInvariant::HiddenRun(RUN));
    let idle = found(|evictor, scene| {
        scene.run.show(8, scene.resources.guard);
        evictor.common.listeners.hidden.list(scene.run);
    });
    assert_eq!(idle, BrokenInvariant::IdleHidden(on(RUN, 12)));
    let elsewhere = found(|evictor, scene| {
        let at = Beginning {
            parent: scene.leased,
            start: 8,
            born: 0,
            fingerprint: 0,
            charged: 0,
            room: None,
            shard: ShardId::FIRST,
        };
        let run = Run::new(at, &[500], &[], scene.resources.guard).publish();
        evictor.common.listeners.hidden.list(run);
    });
    assert_eq!(elsewhere, BrokenInvariant::HiddenCount(counts(1, 0)));
    let miscounted = found(|_, scene| _ = scene.run.space().hidden_runs().fetch_add(1, Relaxed));
    assert_eq!(miscounted, BrokenInvariant::HiddenCount(counts(1, 0)));
}

#[test]
fn places_of_points() {
    assert_eq!(found(|_, scene| stand(scene, scene.branch, 5)), BrokenInvariant::PointOnOtherRun(on(RUN, 5)));
    let beyond = found(|_, scene| stand(scene, scene.run, 16));
    assert_eq!(beyond, BrokenInvariant::PointOutside { point: on(RUN, 16), len: 12 });
    let before = found(|_, scene| stand(scene, scene.run, 0));
    assert_eq!(before, BrokenInvariant::PointOutside { point: on(RUN, 0), len: 12 });
    let misplaced = found(|_, scene| scene.run.points.misplace(scene.resources.guard));
    assert!(matches!(misplaced, BrokenInvariant::PointMisplaced(PointAt { run: RUN, .. })), "{misplaced}");
    let endless = found(|_, scene| assert!(scene.run.as_ref().points.remove(scene.end, scene.resources.guard)));
    assert_eq!(endless, BrokenInvariant::NoEnd { run: RUN, len: 12 });
}

#[test]
fn beginnings_of_runs() {
    let first = RunAt { start: 8, first: 500 };
    let parent = found(|_, scene| {
        hang(
            scene,
            scene.leased,
            Beginning {
                parent: scene.mark,
                start: 8,
                born: 0,
                fingerprint: 0,
                charged: 0,
                room: None,
                shard: ShardId::FIRST,
            },
            &[500],
        );
    });
    assert_eq!(parent, BrokenInvariant::WrongParent(first));
    let start = found(|_, scene| {
        hang(
            scene,
            scene.leased,
            Beginning {
                parent: scene.leased,
                start: 9,
                born: 0,
                fingerprint: 0,
                charged: 0,
                room: None,
                shard: ShardId::FIRST,
            },
            &[500],
        );
    });
    assert_eq!(start, BrokenInvariant::WrongStart { run: RunAt { start: 9, ..first }, end: 8 });
    let empty = found(|_, scene| {
        let run = hang(
            scene,
            scene.leased,
            Beginning {
                parent: scene.leased,
                start: 8,
                born: 0,
                fingerprint: 0,
                charged: 0,
                room: None,
                shard: ShardId::FIRST,
            },
            &[500],
        );
        run.shorten(run.word(), 0).expect("no other thread");
    });
    assert_eq!(empty, BrokenInvariant::EmptyRun(first));
    let same = found(|_, scene| {
        hang(
            scene,
            scene.leased,
            Beginning {
                parent: scene.leased,
                start: 8,
                born: 0,
                fingerprint: 0,
                charged: 0,
                room: None,
                shard: ShardId::FIRST,
            },
            &[9],
        );
    });
    assert_eq!(same, BrokenInvariant::SameToken(on(RUN, 8), 9));
    let misplaced = found(|_, scene| scene.root.children.misplace(scene.resources.guard));
    assert!(matches!(misplaced, BrokenInvariant::RunMisplaced(RUN | OTHER)), "{misplaced}");
}

#[test]
fn arrays_of_runs() {
    let short = found(|_, scene| rewrite(scene, &sequence(8, 8, 0), |blocks| blocks.truncate(2)));
    assert_eq!(short, BrokenInvariant::TokensMissing { run: RUN, len: 12, tokens: 8 });
    let longer = found(|_, scene| scene.run.shorten(scene.run.word(), 16).expect("no other thread"));
    assert_eq!(longer, BrokenInvariant::TokensMissing { run: RUN, len: 16, tokens: 12 });
    let few = found(|_, scene| rewrite(scene, &sequence(12, 12, 0), |blocks| blocks.truncate(2)));
    assert_eq!(few, BrokenInvariant::BlockCount { run: RUN, blocks: 2, expected: 3 });
    let first = found(|_, scene| rewrite(scene, &sequence(12, 0, 70), |_| {}));
    assert_eq!(first, BrokenInvariant::FirstToken { run: RUN, token: 71 });
}

#[test]
fn blocks() {
    let tokens = sequence(12, 12, 0);
    let outside = found(|_, scene| rewrite(scene, &tokens, |blocks| blocks[1] = CAPACITY as BlockId));
    assert_eq!(outside, BrokenInvariant::BlockOutside { run: RUN, block: 60, capacity: 60 });
    let mut block = 0;
    let twice = found(|_, scene| {
        rewrite(scene, &tokens, |blocks| {
            block = blocks[0];
            blocks[2] = block;
        });
    });
    assert_eq!(twice, BrokenInvariant::BlockTwice { run: RUN, block });
    let free = found(|_, scene| {
        block = scene.branch.block_ids(scene.resources.guard)[1];
        scene.resources.pool.give_back(&[block]);
    });
    assert_eq!(free, BrokenInvariant::BlockFree { run: BRANCH, block });
}

#[test]
fn pool() {
    let beyond = found(|_, scene| scene.resources.pool.flip_bit(CAPACITY as BlockId + 1));
    assert_eq!(beyond, BrokenInvariant::BitsBeyond { bits: 1, capacity: 60 });
    let count = found(|_, scene| scene.resources.pool.flip_bit(CAPACITY as BlockId - 1));
    assert_eq!(count, BrokenInvariant::FreeCount { counted: 51, set: 50 });
    let external = PrefixCache::builder(4, 8).external().build().expect("valid");
    assert_eq!(external.validate(), Ok(()));
    external.inner.sink().give_back(&[5]);
    let (violation, broken) = (external.validate().expect_err("planted"), BrokenInvariant::FreeTwice { block: 5 });
    assert_eq!((&violation, violation.to_string()), (&Violation(broken), broken.to_string()));
    #[cfg(feature = "diagnostics")]
    assert_eq!(violation.details(), broken);
    let conserved = found(|evictor, _| evictor.totals.evictable += 10);
    assert_eq!(conserved, BrokenInvariant::Conservation { free: 51, evictable: 14, protected: 2, capacity: 60 });
}

#[test]
fn accounts_of_points() {
    let unknown = found(|evictor, scene| {
        scene.mark.account.with_mut(&mut evictor.owner, |account| account.set_known(false));
    });
    assert_eq!(unknown, BrokenInvariant::PointUnknown(on(RUN, 4)));
    let leased = found(|evictor, scene| {
        scene.leased.account.with_mut(&mut evictor.owner, |account| account.set_leased(false));
    });
    assert_eq!(leased, BrokenInvariant::LeaseAccount { point: on(RUN, 8), leases: 1 });
    let active = found(|evictor, scene| {
        scene.fork.account.with_mut(&mut evictor.owner, |account| account.count_child(true));
    });
    assert_eq!(active, BrokenInvariant::ActiveChildren(on(RUN, 6), counts(1, 0)));
    let root = found(|evictor, scene| {
        scene.root.account.with_mut(&mut evictor.owner, |account| account.count_child(false));
    });
    assert_eq!(root, BrokenInvariant::ActiveChildren(on(TRUNK, 0), counts(0, 1)));
}

#[test]
fn accounts_of_runs() {
    let unregistered = found(|evictor, scene| {
        scene.other.account.with_mut(&mut evictor.owner, |account| account.level = None);
    });
    assert_eq!(unregistered, BrokenInvariant::RunUnregistered(OTHER));
    let unsorted = found(|evictor, scene| {
        scene.run.account.with_mut(&mut evictor.owner, |account| account.points.damage(|list| list.swap(0, 1)));
    });
    assert_eq!(unsorted, BrokenInvariant::PointList { run: RUN, listed: 4, live: 4 });
    let doubled = found(|evictor, scene| {
        scene
            .branch
            .account
            .with_mut(&mut evictor.owner, |account| account.points.damage(|list| list.push(scene.end.link())));
    });
    assert_eq!(doubled, BrokenInvariant::PointList { run: BRANCH, listed: 2, live: 1 });
    let protected = found(|evictor, scene| {
        scene.run.account.with_mut(&mut evictor.owner, |account| account.protected = 12);
    });
    assert_eq!(protected, BrokenInvariant::ProtectedDepth { run: RUN, recorded: 12, deepest: 8 });
}

// Holds: NU13.
#[test]
fn totals() {
    assert_eq!(found(|evictor, _| evictor.totals.evictable -= 1), BrokenInvariant::EvictableTotal(counts(3, 4)));
    assert_eq!(found(|evictor, _| evictor.totals.protected += 1), BrokenInvariant::ProtectedTotal(counts(3, 2)));
    assert_eq!(found(|evictor, _| evictor.totals.runs += 1), BrokenInvariant::RunTotal(counts(4, 3)));
    assert_eq!(found(|evictor, _| evictor.totals.points -= 1), BrokenInvariant::PointTotal(counts(5, 6)));
    let flow = found(|evictor, _| evictor.totals.evicted += 1);
    assert_eq!(flow, BrokenInvariant::Flow { inserted: 6, gone: 1, cached: 6 });
}

#[test]
fn holdings_of_namespaces() {
    let cached = found(|_, scene| scene.space.account.change_cached(5 - scene.space.account.cached() as isize));
    assert_eq!(cached, BrokenInvariant::NamespaceCached(counts(5, 6)));
    let protected = found(|_, scene| scene.space.account.set_protected(3));
    assert_eq!(protected, BrokenInvariant::NamespaceProtected(counts(3, 2)));
    let missed = found(|_, scene| scene.space.account.limit(Some(2), None));
    assert_eq!(missed, BrokenInvariant::QuotaMissed { cached: 6, excess: 4 });
    let ungrouped =
        found(|evictor, scene| scene.space.account.group.with_mut(&mut evictor.owner, |group| *group = None));
    assert!(matches!(ungrouped, BrokenInvariant::StaleStanding(_)), "{ungrouped}");
}

#[test]
fn order_by_last_use() {
    let stray = found(|evictor, _| file_stray(evictor.ranking.aging.order_mut()));
    assert_eq!(stray, BrokenInvariant::AgingCount(counts(4, 3)));
    let lost = found(|evictor, scene| {
        let slot = scene.end.account.get(&evictor.owner).candidate.expect("filed");
        evictor.ranking.aging.order_mut().remove(slot);
    });
    assert_eq!(lost, BrokenInvariant::NotAging(on(RUN, 12)));
}

#[test]
fn filing_of_points() {
    let lost = found(|evictor, scene| {
        scene.end.account.with_mut(&mut evictor.owner, |account| account.candidate = None);
    });
    assert_eq!(lost, BrokenInvariant::NotFiled(on(RUN, 12)));
    let wrongly = found(|evictor, scene| {
        let slot = scene.end.account.get(&evictor.owner).candidate;
        scene.leased.account.with_mut(&mut evictor.owner, |account| account.candidate = slot);
    });
    assert_eq!(wrongly, BrokenInvariant::WronglyFiled(on(RUN, 8)));
    let mut slot = 0;
    let crossed = found(|evictor, scene| {
        let other = scene.end_of(scene.other).account.get(&evictor.owner).candidate;
        slot = other.expect("filed").index();
        scene.end.account.with_mut(&mut evictor.owner, |account| account.candidate = other);
    });
    assert_eq!(crossed, BrokenInvariant::WrongSlot { point: on(RUN, 12), slot });
    let stale = found(|evictor, scene| {
        let end = scene.end_of(scene.branch);
        let slot = end.account.get(&evictor.owner).candidate.expect("filed");
        let (stats, entry) = (evictor.candidate_stats(end, scene.resources).0, evictor.entry(end));
        evictor.ranking.policy.file(slot, CandidateStats { last: stats.last + 99, ..stats }, entry);
    });
    assert_eq!(stale, BrokenInvariant::StaleStanding(on(BRANCH, 6)));
    let unfiled = found(|evictor, scene| {
        let slot = scene.end.account.get(&evictor.owner).candidate.expect("filed");
        evictor.ranking.policy.remove(slot);
    });
    assert_eq!(unfiled, BrokenInvariant::StaleStanding(on(RUN, 12)));
}

#[test]
fn slots() {
    let filed = found(|evictor, _| file_stray(&mut evictor.ranking.policy));
    assert_eq!(filed, BrokenInvariant::FiledCount(counts(4, 3)));
    let occupied = found(|evictor, scene| {
        evictor.ranking.tables().0.set(3, scene.mark.link());
    });
    assert_eq!(occupied, BrokenInvariant::SlotCount(counts(4, 3)));
    let taken = found(|evictor, _| evictor.ranking.tables().1.push(CandidateId::at(0)));
    assert_eq!(taken, BrokenInvariant::VacantSlot { slot: 0 });
    let outside = found(|evictor, _| evictor.ranking.tables().1.push(CandidateId::at(99)));
    assert_eq!(outside, BrokenInvariant::VacantSlot { slot: 99 });
    let lost = found(|evictor, scene| {
        let vacant = evictor.ranking.vacant().len();
        evictor.ranking.tables().0.set(3, scene.mark.link());
        evictor.ranking.tables().0.take(3);
        assert_eq!(vacant, 0);
    });
    assert_eq!(lost, BrokenInvariant::VacantCount(counts(0, 1)));
    let unsound = found(|evictor, _| evictor.ranking.policy.spoil(CandidateId::at(0)));
    assert_eq!(unsound, BrokenInvariant::UnsoundPolicy);
}

/// Files a candidate that is in no slot.
fn file_stray(policy: &mut Policy) {
    policy.file(
        CandidateId::at(50),
        CandidateStats { last: 1, hits: 1, born: 1, level: 1, priority: 35, demoted: false },
        CandidateEntry { serial: 99, group: None },
    );
}

#[test]
fn policy_on_its_way_in() {
    let begin = |evictor: &mut Evictor<'_>, scene: Scene<'_>| {
        evictor.begin_exchange(crate::PolicyKind::Lfu);
        assert!(evictor.advance_exchange(1, scene.resources));
    };
    let stray = found(|evictor, scene| {
        begin(evictor, scene);
        file_stray(&mut evictor.ranking.exchange.incoming.as_mut().expect("two of three are left").policy);
    });
    assert_eq!(stray, BrokenInvariant::MovedCount(counts(2, 1)));
    let skipped = found(|evictor, scene| {
        begin(evictor, scene);
        evictor.ranking.exchange.incoming.as_mut().expect("two of three are left").moved = 3;
    });
    assert!(matches!(skipped, BrokenInvariant::NotMoved(_)), "{skipped}");
}

#[test]
fn moments() {
    let marked = found(|_, scene| {
        let marks = &scene.end_of(scene.branch).marks;
        marks.join(Marked::priority(Priority::DEFAULT.level(), Some(9)), scene.resources.guard);
    });
    assert_eq!(marked, BrokenInvariant::WrongMoment(on(BRANCH, 6)));
    let demoted = found(|_, scene| {
        scene.end_of(scene.branch).marks.join(Demotions::default().demote(9), scene.resources.guard);
    });
    assert_eq!(demoted, BrokenInvariant::StaleStanding(on(BRANCH, 6)));
    let stray = found(|evictor, _| evictor.ranking.due.set(CandidateId::at(50), Some(9)));
    assert_eq!(stray, BrokenInvariant::MomentCount(counts(1, 0)));
    let unsound = found(|evictor, _| {
        evictor.ranking.due.set(CandidateId::at(50), Some(9));
        evictor.ranking.due.times().set(50, 8);
    });
    assert_eq!(unsound, BrokenInvariant::UnsoundMoments);
}

#[test]
fn retained() {
    let left = found(|_, scene| scene.leased.marks.ask(Marked::NONE, 9, scene.resources.guard));
    assert_eq!(left, BrokenInvariant::NotesLeft { notes: 1 });
    let idle = found(|evictor, scene| {
        evictor.common.retained.enter(scene.end, 9);
    });
    assert_eq!(idle, BrokenInvariant::NotRetained(on(RUN, 12)));
    let elsewhere = found(|evictor, scene| {
        let (run, guard) = (scene.run.link(), scene.resources.guard);
        let point = Point::new(run, 3, Word::idle(), 0, guard);
        evictor.common.retained.enter(point.as_ref(), 9);
    });
    assert_eq!(elsewhere, BrokenInvariant::RetainedCount(counts(1, 0)));
    let unsound = found(|evictor, scene| {
        evictor.common.retained.enter(scene.leased, 9);
        let point = scene.leased.link().address();
        evictor.common.retained.table().retain(|(of, ..), _| *of != point);
    });
    assert_eq!(unsound, BrokenInvariant::UnsoundRetained);
}
