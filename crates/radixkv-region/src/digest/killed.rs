//! Kills or stops a process before each of its writes to a region of digest-keyed blocks in turn. Then no
//! read returns a wrong byte, nothing waits, and after another process recovers, all room is free
//! and every count is right.

use std::{
    env, fs, mem,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
};

use super::{DigestBlocks, DigestKey, DigestLayout, DigestPut, DigestRegion, Namespace, Presence};
use crate::{
    geometry::Geometry,
    memory::Memory,
    process::ProcessId,
    region::Region,
    sync::{
        Relaxed, gauge,
        killed::{killed_after, stopped_after},
    },
};

/// So few entries that a verb meets cells and entries of other blocks.
const CAPACITY: usize = 4;
const BYTES: usize = 20;
/// More than the writes of any verb.
const MOST: u64 = 1000;

fn layout() -> DigestLayout {
    DigestLayout::new(BYTES, CAPACITY as u32)
}

fn namespace(name: &str) -> Namespace {
    Namespace::new(name, 16, BYTES).model("a model")
}

fn open(region: &Arc<DigestRegion>, name: &str) -> DigestBlocks {
    region.namespace(&namespace(name)).expect("opened")
}

fn key(number: u8) -> DigestKey {
    DigestKey::new(&[number; 16]).expect("a digest")
}

fn bytes(number: u8) -> [u8; BYTES] {
    std::array::from_fn(|at| number << 4 | at as u8)
}

fn put(blocks: &DigestBlocks, number: u8) -> DigestPut {
    blocks.put_from(&[key(number)], &[&bytes(number)], None).expect("a batch")[0]
}

fn is_hit(blocks: &DigestBlocks, number: u8) -> bool {
    let mut found = [0; BYTES];
    let is_hit = blocks.get_into(&[key(number)], &mut [&mut found]).expect("a batch")[0].is_hit();
    assert!(!is_hit || found == bytes(number), "wrong bytes of block {number}");
    is_hit
}

/// A test's own region, a living process, and one that others will consider dead.
struct Scene {
    path: PathBuf,
    survivor: Arc<DigestRegion>,
}

impl Scene {
    fn new(test: &str) -> Self {
        let path = env::temp_dir().join(format!("radixkv-region-digest-{test}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let survivor = Self::file(&path, DigestRegion::create(&path, &layout()).expect("created"), ProcessId::own());
        Self { path, survivor }
    }

    /// The region in a file, opened by a process without a lock: only its pid says whether it
    /// lives.
    fn file(path: &PathBuf, created: impl Sized, own: ProcessId) -> Arc<DigestRegion> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("opened");
        drop(created);
        let (memory, geometry) =
            (Memory::of_file(&file).expect("mapped"), Geometry::of(&layout().0).expect("a layout"));
        let region = Region::join(memory, None, &layout().0, geometry, own).expect("a slot");
        Arc::new(DigestRegion::over(region))
    }

    fn open_doomed(&self) -> Arc<DigestRegion> {
        Self::file(&self.path, (), ProcessId::gone(1))
    }

    /// Checks what the survivor finds.
    fn check(&self, at: u64) {
        let blocks = [open(&self.survivor, "one"), open(&self.survivor, "two")];
        for blocks in &blocks {
            // Nothing waits for the dead process, and every hit is right.
            let hits = (0..16).filter(|number| is_hit(blocks, *number)).count();
            let full = (0..3).filter(|number| put(blocks, *number) == DigestPut::NoRoom).count();
            assert!(hits <= CAPACITY && full <= 3);
        }
        self.survivor.recover();
        let stats = self.survivor.stats();
        assert_eq!((stats.in_flight, stats.processes), (0, 1), "killed at write {at}");
        self.check_counts(at);
        blocks[0].set_quota(2);
        for number in 0..8 {
            let there = put(&blocks[0], number);
            assert!(matches!(there, DigestPut::Stored | DigestPut::Present), "killed at write {at}: {there:?}");
            assert!(is_hit(&blocks[0], number), "block {number}, killed at write {at}");
            let present =
                (0..16).filter(|number| blocks[0].exists(&[key(*number)]) == Ok(vec![Presence::Stored])).count();
            assert!(present <= 2 || number == 0, "{present} blocks of 2, killed at write {at}");
        }
        blocks[0].set_quota(0);
        (0..12).for_each(|number| assert_ne!(put(&blocks[1], number), DigestPut::NoRoom));
        assert_eq!(self.survivor.stats().blocks, CAPACITY, "killed at write {at}");
        self.check_counts(at);
    }

    /// Checks that the counters that quotas are compared with agree with the entries.
    fn check_counts(&self, at: u64) {
        Self::check_counts_of(&self.survivor, at);
    }

    fn check_counts_of(process: &DigestRegion, at: u64) {
        let (region, census) = (&process.region, process.census());
        for counted in census.namespaces {
            let number = region.table().open(&counted.namespace).expect("it is there");
            let charged = region.count_of_namespace(number, 0).expect("a namespace").blocks();
            assert_eq!(
                charged,
                counted.blocks as i64,
                "blocks of {:?}, killed at write {at}",
                counted.namespace.name()
            );
        }
        let own = census.processes.iter().find(|process| process.is_own).expect("it is open");
        let charged = region.count_of_process(region.slot(), 0, 0).blocks();
        assert_eq!(charged, own.blocks as i64, "blocks of the process, killed at write {at}");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Kills a process that runs `verb` before each of its writes, in a region that `begin` has filled.
fn kill_everywhere(test: &str, begin: impl Fn(&DigestBlocks), verb: impl Fn(&Arc<DigestRegion>)) {
    let ended = (0..MOST).find(|writes| {
        let scene = Scene::new(test);
        begin(&open(&scene.survivor, "one"));
        let doomed = scene.open_doomed();
        let ended = killed_after(*writes, || verb(&doomed));
        // As in a kill, nothing is given back.
        mem::forget(doomed);
        scene.check(*writes);
        ended.is_some()
    });
    assert!(ended.is_some_and(|writes| writes > 0), "the verb writes nothing, or without end");
}

fn fill(blocks: &DigestBlocks) {
    (0..4).for_each(|number| assert_eq!(put(blocks, number), DigestPut::Stored));
}

// Holds: RG14.
#[test]
fn killed_in_a_put_into_free_room() {
    kill_everywhere("put", |_| {}, |region| assert_eq!(put(&open(region, "one"), 7), DigestPut::Stored));
}

// Holds: RG14.
#[test]
fn killed_in_a_put_that_evicts_from_another_namespace() {
    kill_everywhere("evict", fill, |region| assert_eq!(put(&open(region, "two"), 7), DigestPut::Stored));
}

// Holds: RG14.
#[test]
fn killed_in_a_put_beyond_the_quotas() {
    let begin = |blocks: &DigestBlocks| {
        (0..3).for_each(|number| assert_eq!(put(blocks, number), DigestPut::Stored));
    };
    kill_everywhere("quota", begin, |region| {
        let blocks = open(region, "one");
        blocks.set_quota(3);
        assert_eq!(put(&blocks, 7), DigestPut::Stored);
        region.quota.store(1, gauge::Relaxed);
        assert_eq!(put(&blocks, 8), DigestPut::Stored);
        assert_eq!(put(&open(region, "two"), 9), DigestPut::Stored);
        blocks.set_quota(0);
    });
}

// Holds: RG14.
#[test]
fn killed_in_filling_room_and_in_giving_it_back() {
    kill_everywhere("room", fill, |region| {
        let blocks = Arc::new(open(region, "one"));
        let mut room = blocks.reserve(&key(9), None).expect("a key").expect("room");
        room.write(0, &bytes(9));
        room.publish();
        let mut room = blocks.reserve(&key(10), None).expect("a key").expect("room");
        room.write(0, &bytes(9));
        drop(room);
        // Closing the region would add more writes.
        mem::forget(blocks);
    });
}

// Holds: RG14.
#[test]
fn killed_in_removing_and_clearing() {
    kill_everywhere("remove", fill, |region| {
        let blocks = open(region, "one");
        assert_eq!((blocks.remove(&[key(1)]), blocks.clear()), (Ok(1), 3));
    });
}

// Holds: RG14.
#[test]
fn killed_in_opening_a_namespace() {
    kill_everywhere("open", fill, |region| drop(open(region, "two")));
}

#[test]
fn killed_in_opening_and_closing_the_region() {
    let ended = (0..MOST).find(|writes| {
        let scene = Scene::new("opening");
        fill(&open(&scene.survivor, "one"));
        let ended = killed_after(*writes, || drop(scene.open_doomed()));
        scene.check(*writes);
        ended.is_some()
    });
    assert!(ended.is_some_and(|writes| writes > 3), "opening writes nothing, or without end");
}

/// The recovering process is killed itself.
// Holds: RG14.
#[test]
fn killed_in_recovering_and_counting_again() {
    let ended = (0..MOST).find(|writes| {
        let scene = Scene::new("recover");
        let mut second = Scene::file(&scene.path, (), ProcessId::own());
        let first = scene.open_doomed();
        let blocks = Arc::new(open(&first, "one"));
        mem::forget(blocks.reserve(&key(9), None).expect("a key").expect("room"));
        let left = killed_after(5, || put(&blocks, 3));
        assert!(left.is_none(), "killed in a put, a block charged and not there");
        mem::forget((first, blocks));
        // The second process has the id of one that has ended.
        let doomed = Arc::get_mut(&mut second).expect("no other owner");
        doomed.region.own = ProcessId::gone(2);
        let slot = doomed.region.geometry.slot(doomed.region.slot());
        doomed.region.memory.words(slot..slot + 1)[0].store(doomed.region.own.word(), Relaxed);
        let ended = killed_after(*writes, || second.recover());
        mem::forget(second);
        scene.check(*writes);
        ended.is_some()
    });
    assert!(ended.is_some_and(|writes| writes > 3), "recovering writes nothing, or without end: {ended:?}");
}

/// A process recovers before it has a slot: killed then, only the slot that it recovers says so.
// Holds: RG14.
#[test]
fn killed_in_opening_a_region_and_counting_again() {
    let ended = (0..MOST).find(|writes| {
        let scene = Scene::new("opening-counts");
        let first = scene.open_doomed();
        let blocks = open(&first, "one");
        let left = killed_after(5, || put(&blocks, 3));
        assert!(left.is_none(), "killed in a put, a block charged and not there");
        mem::forget((first, blocks));
        // The second process has the id of another one that has ended, and closes nothing.
        let ended = killed_after(*writes, || mem::forget(Scene::file(&scene.path, (), ProcessId::gone(2))));
        scene.check(*writes);
        ended.is_some()
    });
    assert!(ended.is_some_and(|writes| writes > 3), "opening writes nothing, or without end: {ended:?}");
}

/// Stops a process before each of its writes, and the process that recovers another one before each
/// of its own: the stopped process goes on in the middle of the recovery. Afterwards all counts are
/// right, also that of the process that `verb` returns.
fn stop_everywhere(
    test: &str,
    begin: impl Fn(&DigestBlocks),
    verb: fn(&PathBuf, Arc<DigestRegion>) -> Arc<DigestRegion>,
) {
    let ended = (0..MOST).find(|stop| {
        // A new epoch sets many counts to 0; one in some of these writes is enough.
        let turns = (0..12).chain((12..MOST).step_by(211));
        let mut was_stopped = false;
        for turn in turns {
            let scene = Scene::new(test);
            begin(&open(&scene.survivor, "one"));
            let other = Scene::file(&scene.path, (), ProcessId::own());
            let doomed = scene.open_doomed();
            let blocks = open(&doomed, "one");
            let left = killed_after(8, || put(&blocks, 14));
            assert!(left.is_none(), "killed in a put, a block counted and not there");
            mem::forget((doomed, blocks));
            let ((stopped, is_stopped), (go, may_go), (done, is_done)) =
                (mpsc::channel(), mpsc::channel(), mpsc::channel());
            let (at, path, busy) = (*stop, scene.path.clone(), other);
            let thread = thread::spawn(move || {
                let tell = stopped.clone();
                let wait = move || {
                    tell.send(true).expect("the test waits");
                    may_go.recv().expect("the test goes on");
                };
                let mut process = None;
                let was_stopped = stopped_after(at, wait, || process = Some(verb(&path, busy)));
                let _ = stopped.send(false);
                done.send(()).expect("the test waits");
                (was_stopped, process.expect("it ended"))
            });
            was_stopped = is_stopped.recv().expect("stopped, or done");
            let go_on = move || {
                if was_stopped {
                    go.send(()).expect("it waits");
                }
                is_done.recv().expect("it ends");
                go
            };
            let go_on = std::rc::Rc::new(std::cell::RefCell::new(Some(go_on)));
            let meanwhile = std::rc::Rc::clone(&go_on);
            let run = move || drop(meanwhile.take().map(|go_on| go_on()));
            let is_in_turn = stopped_after(turn, run, || _ = scene.survivor.recover());
            go_on.take().map(|go_on| go_on());
            let (ended_stopped, process) = thread.join().expect("no panic");
            assert_eq!(ended_stopped, was_stopped);
            Scene::check_counts_of(&scene.survivor, *stop);
            Scene::check_counts_of(&process, *stop);
            if !is_in_turn || !was_stopped {
                break;
            }
        }
        !was_stopped
    });
    assert!(ended.is_some_and(|writes| writes > 3), "the verb writes nothing, or without end: {ended:?}");
}

// Holds: RG14.
#[test]
fn counts_are_right_after_a_recovery_beside_a_put_that_is_stopped() {
    stop_everywhere(
        "stopped-put",
        |_| {},
        |_, region| {
            assert_eq!(put(&open(&region, "one"), 7), DigestPut::Stored);
            region
        },
    );
}

// Holds: RG14.
#[test]
fn counts_are_right_after_a_recovery_beside_a_put_beyond_a_quota_that_is_stopped() {
    let begin = |blocks: &DigestBlocks| {
        fill(blocks);
        blocks.set_quota(2);
    };
    stop_everywhere("stopped-quota", begin, |_, region| {
        _ = put(&open(&region, "one"), 7);
        region
    });
}

// Holds: RG14.
#[test]
fn counts_are_right_after_a_recovery_beside_a_removal_that_is_stopped() {
    stop_everywhere("stopped-remove", fill, |_, region| {
        assert!(open(&region, "one").clear() > 0);
        _ = put(&open(&region, "two"), 7);
        region
    });
}

/// The process takes the slot of one that had blocks.
// Holds: RG14.
#[test]
fn counts_are_right_after_a_recovery_beside_a_process_that_is_stopped_while_it_opens_the_region() {
    stop_everywhere(
        "stopped-open",
        |_| {},
        |path, other| {
            assert_eq!(put(&open(&other, "two"), 8), DigestPut::Stored);
            drop(other);
            let again = Scene::file(path, (), ProcessId::own());
            assert_eq!(put(&open(&again, "two"), 9), DigestPut::Stored);
            again
        },
    );
}

/// The life number of a slot has the same low bits as that of an earlier life, whose count and
/// blocks do not belong to the new owner.
// Holds: RG14.
#[test]
fn a_slot_that_had_as_many_lives_as_a_count_can_tell_apart_begins_with_no_blocks() {
    let scene = Scene::new("lives");
    let other = Scene::file(&scene.path, (), ProcessId::own());
    (0..3).for_each(|number| assert_eq!(put(&open(&other, "one"), number), DigestPut::Stored));
    let (slot, line) = (other.region.slot(), other.region.geometry.slot_line(other.region.slot()));
    drop(other);
    // A process that stores nothing, and many more. The next life has the same 14 low bits.
    drop(Scene::file(&scene.path, (), ProcessId::own()));
    scene.survivor.region.memory.words(line)[1].fetch_add((1 << 14) - 2, Relaxed);
    let again = Scene::file(&scene.path, (), ProcessId::own());
    assert_eq!(again.region.slot(), slot);
    Scene::check_counts_of(&again, 0);
    assert_eq!(put(&open(&again, "two"), 9), DigestPut::Stored);
    again.region.recount();
    Scene::check_counts_of(&again, 1);
    assert_eq!(open(&again, "one").clear(), 3);
    Scene::check_counts_of(&again, 2);
}
