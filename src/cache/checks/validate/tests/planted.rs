//! Each planted corruption is found and named.

use super::bed::{CAPACITY, Scene, found, sequence};
use crate::PrefixCache;
use crate::block::BlockId;
use crate::cache::checks::violation::{Place, broken};
use crate::cache::evictor::Evictor;
use crate::cache::leases::priority::Priority;
use crate::cache::numbers::stats::Total;
use crate::key::Token;
use crate::policy::{CandidateEntry, CandidateId, CandidateStats, Policy};
use crate::reclaim::Ref;
use crate::sync::Arc;
use crate::sync::gauge::Relaxed;
use crate::tree::{Beginning, Demotions, Marked, Point, Run, ShardId, Space, Word};

const TRUNK: Place = Place { start: 0, first: 0, depth: None };
const RUN: Place = Place { start: 0, first: 1, depth: None };
const BRANCH: Place = Place { start: 6, first: 107, depth: None };
const OTHER: Place = Place { start: 0, first: 1001, depth: None };

fn on(run: Place, depth: u32) -> Place {
    Place { depth: Some(depth), ..run }
}

fn beginning(parent: Ref<'_, Point>, start: usize) -> Beginning<'_> {
    Beginning { parent, start, born: 0, fingerprint: 0, charged: 0, room: None, shard: ShardId::FIRST }
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
fn the_message_says_what_where_and_how_many() {
    let rootless =
        found(|_, scene| assert!(scene.root.run().as_ref().points.remove(scene.root, scene.resources.guard)));
    assert_eq!(rootless.to_string(), "a tree has no root on its trunk");
    let leased = found(|_, scene| scene.fork.word.flip(Word::LEASE));
    let text =
        "a point inside a block is leased: the point at depth 6 of the run that starts at 0 with token 1, 1 leases";
    assert_eq!(leased.to_string(), text);
}

#[test]
fn work_left_behind() {
    let queued = found(|_, scene| scene.resources.queues.push(scene.end));
    assert_eq!(queued, broken("the evictor's queue is not empty after it was drained", ""));
    let revisit = found(|evictor, scene| evictor.revisit.push(scene.end.link()));
    assert_eq!(revisit, broken("the evictor left work behind", "1 points not ranked, 0 blocks not returned"));
    let freed = found(|evictor, _| evictor.freed.push(3));
    assert_eq!(freed, broken("the evictor left work behind", "0 points not ranked, 1 blocks not returned"));
}

// Holds: NU13.
#[test]
fn spaces() {
    assert_eq!(found(|_, scene| scene.space.detach()), broken("a namespace's tree is detached", ""));
    let listed = found(|evictor, scene| assert!(evictor.common.detached.insert(scene.space.link())));
    assert_eq!(listed, broken("a tree in the list of detached ones is not detached", ""));
    let uprooted = found(|_, scene| {
        assert!(scene.root.run().as_ref().points.remove(scene.root, scene.resources.guard));
    });
    assert_eq!(uprooted, broken("a tree has no root on its trunk", ""));
    let kept = found(|evictor, scene| {
        let space = Space::plant(0, Arc::clone(&scene.space.account), scene.resources.guard).run().space();
        space.detach();
        space.root(scene.resources.guard).expect("planted").word.flip(Word::QUEUED | Word::CHILD);
        evictor.common.detached.insert(space.link());
    });
    assert_eq!(kept, broken("an idle point of a detached tree was not freed", on(TRUNK, 0)));
}

#[test]
fn point_words() {
    assert_eq!(found(|_, scene| scene.end.word.flip(Word::DEAD)), broken("a dead point was not unlinked", on(RUN, 12)));
    assert_eq!(
        found(|_, scene| scene.mark.word.flip(Word::NEW)),
        broken("a point was never confirmed to be on its run", on(RUN, 4))
    );
    assert_eq!(
        found(|_, scene| scene.leased.word.flip(Word::QUEUED)),
        broken("a point is wrongly marked as queued, or is an unmarked root", on(RUN, 8))
    );
    assert_eq!(
        found(|_, scene| scene.end.word.flip(Word::OPEN)),
        broken("a point and its slot for hot points disagree", on(RUN, 12))
    );
    let idle = found(|_, scene| scene.resources.hot.inflate(scene.mark));
    assert_eq!(idle, broken("a point and its slot for hot points disagree", on(RUN, 4)));
    let leased = found(|_, scene| scene.fork.word.flip(Word::LEASE));
    assert_eq!(leased, broken("a point inside a block is leased", format_args!("{}, 1 leases", on(RUN, 6))));
    assert_eq!(
        found(|_, scene| scene.fork.word.flip(Word::CHILD)),
        broken("a point inside a block has no child run", on(RUN, 6))
    );
    let counted = found(|_, scene| scene.end.word.flip(Word::CHILD));
    assert_eq!(
        counted,
        broken("a point's count of child runs is wrong", format_args!("{}, 1 recorded, 0 found", on(RUN, 12)))
    );
    let root = found(|_, scene| assert!(scene.root.word.add_child()));
    assert_eq!(
        root,
        broken("a point's count of child runs is wrong", format_args!("{}, 4 recorded, 3 found", on(TRUNK, 0)))
    );
}

#[test]
fn hidden_parts() {
    let unlisted = found(|_, scene| scene.run.show(8, scene.resources.guard));
    assert_eq!(unlisted, broken("a run is partly invalidated and not listed as such, or the reverse", RUN));
    let idle = found(|evictor, scene| {
        scene.run.show(8, scene.resources.guard);
        evictor.common.listeners.hidden.list(scene.run);
    });
    assert_eq!(idle, broken("an idle point beyond an invalidated block was not freed", on(RUN, 12)));
    let elsewhere = found(|evictor, scene| {
        let at = beginning(scene.leased, 8);
        let run = Run::new(at, &[500], &[], scene.resources.guard).publish();
        evictor.common.listeners.hidden.list(run);
    });
    assert_eq!(elsewhere, broken("the number of partly invalidated runs is wrong", "1 recorded, 0 found"));
    let miscounted = found(|_, scene| _ = scene.run.space().hidden_runs().fetch_add(1, Relaxed));
    assert_eq!(miscounted, broken("the number of partly invalidated runs is wrong", "1 recorded, 0 found"));
}

#[test]
fn places_of_points() {
    assert_eq!(
        found(|_, scene| stand(scene, scene.branch, 5)),
        broken("a point links to another run than the one it is on", on(RUN, 5))
    );
    let beyond = found(|_, scene| stand(scene, scene.run, 16));
    assert_eq!(beyond, broken("a point is outside its run", format_args!("{}, run length 12", on(RUN, 16))));
    let before = found(|_, scene| stand(scene, scene.run, 0));
    assert_eq!(before, broken("a point is outside its run", format_args!("{}, run length 12", on(RUN, 0))));
    let misplaced = found(|_, scene| scene.run.points.misplace(scene.resources.guard));
    let at = |depth| broken("a point is not found by its depth", on(RUN, depth));
    assert!([4, 6, 8, 12].map(at).contains(&misplaced), "{misplaced}");
    let endless = found(|_, scene| assert!(scene.run.as_ref().points.remove(scene.end, scene.resources.guard)));
    assert_eq!(endless, broken("a run does not end in a point", format_args!("{RUN}, length 12")));
}

#[test]
fn beginnings_of_runs() {
    let first = Place { start: 8, first: 500, depth: None };
    let parent = found(|_, scene| {
        hang(scene, scene.leased, beginning(scene.mark, 8), &[500]);
    });
    assert_eq!(parent, broken("a run links to another parent than the point it is attached to", first));
    let start = found(|_, scene| {
        hang(scene, scene.leased, beginning(scene.leased, 9), &[500]);
    });
    assert_eq!(
        start,
        broken(
            "a run does not start where its parent point ends",
            format_args!("{}, the parent point ends at 8", Place { start: 9, ..first })
        )
    );
    let empty = found(|_, scene| {
        let run = hang(scene, scene.leased, beginning(scene.leased, 8), &[500]);
        run.shorten(run.word(), 0).expect("no other thread");
    });
    assert_eq!(empty, broken("a run of length 0 was not unlinked", first));
    let same = found(|_, scene| {
        hang(scene, scene.leased, beginning(scene.leased, 8), &[9]);
    });
    assert_eq!(
        same,
        broken(
            "a point has a child run that begins with its own run's next token",
            format_args!("{}, token 9", on(RUN, 8))
        )
    );
    let misplaced = found(|_, scene| scene.root.children.misplace(scene.resources.guard));
    let at = |run| broken("a run is not found by its first token", run);
    assert!([RUN, OTHER].map(at).contains(&misplaced), "{misplaced}");
}

#[test]
fn arrays_of_runs() {
    let short = found(|_, scene| rewrite(scene, &sequence(8, 8, 0), |blocks| blocks.truncate(2)));
    assert_eq!(short, broken("a run is longer than its tokens", format_args!("{RUN}, length 12, 8 tokens")));
    let longer = found(|_, scene| scene.run.shorten(scene.run.word(), 16).expect("no other thread"));
    assert_eq!(longer, broken("a run is longer than its tokens", format_args!("{RUN}, length 16, 12 tokens")));
    let few = found(|_, scene| rewrite(scene, &sequence(12, 12, 0), |blocks| blocks.truncate(2)));
    assert_eq!(
        few,
        broken("a run does not hold one block for each block boundary", format_args!("{RUN}, 2 blocks, 3 boundaries"))
    );
    let first = found(|_, scene| rewrite(scene, &sequence(12, 0, 70), |_| {}));
    assert_eq!(
        first,
        broken("a run is indexed under another token than its first one", format_args!("{RUN}, its first token is 71"))
    );
}

#[test]
fn blocks() {
    let tokens = sequence(12, 12, 0);
    let outside = found(|_, scene| rewrite(scene, &tokens, |blocks| blocks[1] = CAPACITY as BlockId));
    assert_eq!(
        outside,
        broken("a run holds a block that does not exist", format_args!("{RUN}, block 60, capacity 60"))
    );
    let mut block = 0;
    let twice = found(|_, scene| {
        rewrite(scene, &tokens, |blocks| {
            block = blocks[0];
            blocks[2] = block;
        });
    });
    assert_eq!(twice, broken("a block is cached twice", format_args!("{RUN}, block {block}")));
    let free = found(|_, scene| {
        block = scene.branch.block_ids(scene.resources.guard)[1];
        scene.resources.pool.give_back(&[block]);
    });
    assert_eq!(free, broken("a cached block is free", format_args!("{BRANCH}, block {block}")));
}

#[test]
fn pool() {
    let beyond = found(|_, scene| scene.resources.pool.flip_bit(CAPACITY as BlockId + 1));
    assert_eq!(beyond, broken("blocks beyond the capacity are marked as free", "1 blocks, capacity 60"));
    let count = found(|_, scene| scene.resources.pool.flip_bit(CAPACITY as BlockId - 1));
    assert_eq!(count, broken("the pool's count of free blocks is wrong", "51 recorded, 50 found"));
    let external = PrefixCache::builder(4, 8).external().build().expect("valid");
    assert_eq!(external.validate(), Ok(()));
    external.inner.sink().give_back(&[5]);
    let twice = broken("a block is marked both as held by the engine and as waiting for take_evicted", "block 5");
    assert_eq!(external.validate(), Err(twice));
    let conserved = found(|evictor, _| evictor.evictable += 10);
    assert_eq!(
        conserved,
        broken("free and cached blocks exceed the capacity", "51 free, 14 evictable, 2 protected, capacity 60")
    );
}

#[test]
fn accounts_of_points() {
    let unknown = found(|evictor, scene| {
        scene.mark.account.with_mut(&mut evictor.owner, |account| account.set_known(false));
    });
    assert_eq!(unknown, broken("a point is not known to the evictor", on(RUN, 4)));
    let leased = found(|evictor, scene| {
        scene.leased.account.with_mut(&mut evictor.owner, |account| account.set_leased(false));
    });
    assert_eq!(
        leased,
        broken("the evictor's account of a point's leases is wrong", format_args!("{}, 1 leases", on(RUN, 8)))
    );
    let active = found(|evictor, scene| {
        scene.fork.account.with_mut(&mut evictor.owner, |account| account.count_child(true));
    });
    assert_eq!(
        active,
        broken("a point's count of active child runs is wrong", format_args!("{}, 1 recorded, 0 found", on(RUN, 6)))
    );
    let root = found(|evictor, scene| {
        scene.root.account.with_mut(&mut evictor.owner, |account| account.count_child(false));
    });
    assert_eq!(
        root,
        broken("a point's count of active child runs is wrong", format_args!("{}, 0 recorded, 1 found", on(TRUNK, 0)))
    );
}

#[test]
fn accounts_of_runs() {
    let unregistered = found(|evictor, scene| {
        scene.other.account.with_mut(&mut evictor.owner, |account| account.level = None);
    });
    assert_eq!(unregistered, broken("a run is not registered with the evictor", OTHER));
    let unsorted = found(|evictor, scene| {
        scene.run.account.with_mut(&mut evictor.owner, |account| account.points.damage(|list| list.swap(0, 1)));
    });
    assert_eq!(
        unsorted,
        broken(
            "the evictor's list of a run's points differs from its points in order of depth",
            format_args!("{RUN}, 4 listed, 4 found")
        )
    );
    let doubled = found(|evictor, scene| {
        scene
            .branch
            .account
            .with_mut(&mut evictor.owner, |account| account.points.damage(|list| list.push(scene.end.link())));
    });
    assert_eq!(
        doubled,
        broken(
            "the evictor's list of a run's points differs from its points in order of depth",
            format_args!("{BRANCH}, 2 listed, 1 found")
        )
    );
    let protected = found(|evictor, scene| {
        scene.run.account.with_mut(&mut evictor.owner, |account| account.protected = 12);
    });
    assert_eq!(
        protected,
        broken(
            "a run's protected depth is not that of its deepest active point",
            format_args!("{RUN}, 12 recorded, 8 found")
        )
    );
}

// Holds: NU13.
#[test]
fn totals() {
    assert_eq!(
        found(|evictor, _| evictor.evictable -= 1),
        broken("the count of evictable blocks is wrong", "3 recorded, 4 found")
    );
    assert_eq!(
        found(|evictor, _| evictor.protected += 1),
        broken("the count of protected blocks is wrong", "3 recorded, 2 found")
    );
    assert_eq!(
        found(|evictor, _| evictor.totals.add(Total::Runs, 1)),
        broken("the count of runs is wrong", "4 recorded, 3 found")
    );
    assert_eq!(
        found(|evictor, _| evictor.totals.subtract(Total::Points, 1)),
        broken("the count of points is wrong", "5 recorded, 6 found")
    );
    let flow = found(|evictor, _| evictor.totals.add(Total::Evicted, 1));
    assert_eq!(
        flow,
        broken(
            "the inserted blocks are not the sum of the cached and the removed blocks",
            "6 inserted, 6 cached, 1 removed"
        )
    );
}

#[test]
fn holdings_of_namespaces() {
    let cached = found(|_, scene| scene.space.account.change_cached(5 - scene.space.account.cached() as isize));
    assert_eq!(cached, broken("a namespace's count of cached blocks is wrong", "5 recorded, 6 found"));
    let protected = found(|_, scene| scene.space.account.set_protected(3));
    assert_eq!(protected, broken("a namespace's count of protected blocks is wrong", "3 recorded, 2 found"));
    let missed = found(|_, scene| scene.space.account.limit(Some(2), None));
    assert_eq!(
        missed,
        broken("the evictor has not recorded that a namespace exceeds its quota", "6 cached, 4 beyond the quota")
    );
    let ungrouped =
        found(|evictor, scene| scene.space.account.group.with_mut(&mut evictor.owner, |group| *group = None));
    let stale = broken("the policy ranks a point by outdated statistics", "");
    assert_eq!(ungrouped.kind, stale.kind, "{ungrouped}");
}

#[test]
fn order_by_last_use() {
    let stray = found(|evictor, _| file_stray(evictor.ranking.aging.order_mut()));
    assert_eq!(stray, broken("the number of candidates ordered by last use is wrong", "4 recorded, 3 found"));
    let lost = found(|evictor, scene| {
        let slot = scene.end.account.get(&evictor.owner).candidate.expect("filed");
        evictor.ranking.aging.order_mut().remove(slot);
    });
    assert_eq!(lost, broken("a candidate is misplaced in the order by last use", on(RUN, 12)));
}

#[test]
fn filing_of_points() {
    let lost = found(|evictor, scene| {
        scene.end.account.with_mut(&mut evictor.owner, |account| account.candidate = None);
    });
    assert_eq!(lost, broken("an idle end of a run is not a candidate of the policy", on(RUN, 12)));
    let wrongly = found(|evictor, scene| {
        let slot = scene.end.account.get(&evictor.owner).candidate;
        scene.leased.account.with_mut(&mut evictor.owner, |account| account.candidate = slot);
    });
    assert_eq!(wrongly, broken("a candidate of the policy is not the idle end of a run", on(RUN, 8)));
    let mut slot = 0;
    let crossed = found(|evictor, scene| {
        let other = scene.end_of(scene.other).account.get(&evictor.owner).candidate;
        slot = other.expect("filed").index();
        scene.end.account.with_mut(&mut evictor.owner, |account| account.candidate = other);
    });
    assert_eq!(
        crossed,
        broken("a candidate's slot does not lead back to it", format_args!("{}, slot {slot}", on(RUN, 12)))
    );
    let stale = found(|evictor, scene| {
        let end = scene.end_of(scene.branch);
        let slot = end.account.get(&evictor.owner).candidate.expect("filed");
        let (stats, entry) = (evictor.candidate_stats(end, scene.resources).0, evictor.entry(end));
        evictor.ranking.policy.file(slot, CandidateStats { last: stats.last + 99, ..stats }, entry);
    });
    assert_eq!(stale, broken("the policy ranks a point by outdated statistics", on(BRANCH, 6)));
    let unfiled = found(|evictor, scene| {
        let slot = scene.end.account.get(&evictor.owner).candidate.expect("filed");
        evictor.ranking.policy.remove(slot);
    });
    assert_eq!(unfiled, broken("the policy ranks a point by outdated statistics", on(RUN, 12)));
}

#[test]
fn slots() {
    let filed = found(|evictor, _| file_stray(&mut evictor.ranking.policy));
    assert_eq!(filed, broken("the policy's number of candidates is wrong", "4 recorded, 3 found"));
    let occupied = found(|evictor, scene| {
        evictor.ranking.tables().0.set(3, scene.mark.link());
    });
    assert_eq!(occupied, broken("the number of slots that lead to a candidate is wrong", "4 recorded, 3 found"));
    let taken = found(|evictor, _| evictor.ranking.tables().1.push(CandidateId::at(0)));
    assert_eq!(taken, broken("a slot is recorded as vacant twice, or while it is in use", "slot 0"));
    let outside = found(|evictor, _| evictor.ranking.tables().1.push(CandidateId::at(99)));
    assert_eq!(outside, broken("a slot is recorded as vacant twice, or while it is in use", "slot 99"));
    let lost = found(|evictor, scene| {
        let vacant = evictor.ranking.vacant().len();
        evictor.ranking.tables().0.set(3, scene.mark.link());
        evictor.ranking.tables().0.take(3);
        assert_eq!(vacant, 0);
    });
    assert_eq!(lost, broken("the number of vacant slots is wrong", "0 recorded, 1 found"));
    let unsound = found(|evictor, _| evictor.ranking.policy.spoil(CandidateId::at(0)));
    assert_eq!(unsound, broken("the policy's structure is broken", ""));
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
    assert_eq!(stray, broken("the incoming policy's number of candidates is wrong", "2 recorded, 1 found"));
    let skipped = found(|evictor, scene| {
        begin(evictor, scene);
        evictor.ranking.exchange.incoming.as_mut().expect("two of three are left").moved = 3;
    });
    let stale = broken("the incoming policy ranks a point by outdated statistics", "");
    assert_eq!(skipped.kind, stale.kind, "{skipped}");
}

#[test]
fn moments() {
    let marked = found(|_, scene| {
        let marks = &scene.end_of(scene.branch).marks;
        marks.join(Marked::priority(Priority::DEFAULT.level(), Some(9)), scene.resources.guard);
    });
    assert_eq!(marked, broken("a candidate's next rank change has a wrong time", on(BRANCH, 6)));
    let demoted = found(|_, scene| {
        scene.end_of(scene.branch).marks.join(Demotions::default().demote(9), scene.resources.guard);
    });
    assert_eq!(demoted, broken("the policy ranks a point by outdated statistics", on(BRANCH, 6)));
    let stray = found(|evictor, _| evictor.ranking.due.set(CandidateId::at(50), Some(9)));
    assert_eq!(stray, broken("the number of future rank changes is wrong", "1 recorded, 0 found"));
    let unsound = found(|evictor, _| {
        evictor.ranking.due.set(CandidateId::at(50), Some(9));
        evictor.ranking.due.times().set(50, 8);
    });
    assert_eq!(unsound, broken("the evictor's list of future rank changes contradicts itself", ""));
}

#[test]
fn retained() {
    let left = found(|_, scene| scene.leased.marks.ask(Marked::NONE, 9, scene.resources.guard));
    assert_eq!(left, broken("requests to retain a prefix were not processed", "1 requests"));
    let idle = found(|evictor, scene| {
        evictor.common.retained.enter(scene.end, 9);
    });
    assert_eq!(idle, broken("a retained point has no lease, or is in a detached tree", on(RUN, 12)));
    let elsewhere = found(|evictor, scene| {
        let (run, guard) = (scene.run.link(), scene.resources.guard);
        let point = Point::new(run, 3, Word::idle(), 0, guard);
        evictor.common.retained.enter(point.as_ref(), 9);
    });
    assert_eq!(elsewhere, broken("the number of retained points is wrong", "1 recorded, 0 found"));
    let unsound = found(|evictor, scene| {
        evictor.common.retained.enter(scene.leased, 9);
        let point = scene.leased.link().address();
        evictor.common.retained.table().retain(|(of, ..), _| *of != point);
    });
    assert_eq!(unsound, broken("the record of retained points contradicts itself", ""));
}
