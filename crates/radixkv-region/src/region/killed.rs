//! Kills a process before each of its writes in turn, and checks that the others recover everything
//! and find no wrong byte.

use std::{env, fs, mem, path::PathBuf, sync::Arc, thread, time::Duration};

use super::{Get, Put, Region, Reserve, files};
use crate::{
    geometry::Geometry,
    key::{Key, Token},
    layout::Layout,
    memory::Memory,
    process::ProcessId,
    sync::{
        Relaxed,
        killed::{killed_after, stopped_after},
    },
};

/// So few entries that a verb meets cells and entries of other blocks.
const CAPACITY: usize = 4;
const BLOCKS: u32 = 12;
/// More than the writes of any verb.
const MOST: u64 = 1000;

fn layout() -> Layout {
    Layout::new(2, 20, CAPACITY as u32)
}

fn block(block: u32) -> (Key, [Token; 2], Vec<u8>) {
    let tokens = [block, !block];
    (layout().chain(b"").next(&tokens), tokens, (0..20).map(|at| (block as u8) << 4 | at).collect())
}

fn put(region: &Region, number: u32) -> Put {
    let (key, tokens, bytes) = block(number);
    region.put(&key, &tokens, &bytes).expect("room")
}

/// Looks for a block; if it is found, its bytes must be right.
fn get(region: &Region, number: u32) -> Get {
    let (key, tokens, expected) = block(number);
    let mut bytes = [0; 20];
    let got = region.get_into(&key, &tokens, &mut bytes).expect("one block");
    assert!(!got.is_hit() || bytes == *expected, "wrong bytes of block {number}");
    got
}

/// How other processes detect that a process is dead.
#[derive(Debug, Clone, Copy)]
enum Seen {
    /// By its pid: the region is in memory that the caller mapped.
    ByPid,
    /// By its lock on the region's file, whatever its namespace.
    ByLock,
}

/// A test's own region, and a way to open it as a process that others will consider dead.
struct Scene {
    path: PathBuf,
    survivor: Region,
    seen: Seen,
}

impl Scene {
    fn new(test: &str, present: u32, seen: Seen) -> Self {
        let path = env::temp_dir().join(format!("radixkv-region-{test}-{seen:?}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let survivor = Region::create(&path, &layout()).expect("created");
        (0..present).for_each(|number| assert_eq!(put(&survivor, number), Put::Stored));
        Self { path, survivor, seen }
    }

    /// Opens the region as a process that is identified by its lock, or else by its process id.
    fn open(&self, by_name: ProcessId, number: u64) -> Region {
        let geometry = Geometry::of(&layout()).expect("a layout");
        let (memory, file) = files::open(&self.path).expect("opened");
        let (file, own) = match self.seen {
            Seen::ByPid => (None, by_name),
            Seen::ByLock => (Some(file), ProcessId::elsewhere(number)),
        };
        Region::join(memory, file, &layout(), geometry, own).expect("a slot")
    }

    fn open_doomed(&self, number: u64) -> Region {
        self.open(ProcessId::gone(number), number)
    }

    /// Gives a process the id of a dead one.
    fn doom(&self, region: &mut Region, number: u64) {
        if matches!(self.seen, Seen::ByPid) {
            region.own = ProcessId::gone(number);
            let word = region.geometry.slot(region.slot);
            region.memory.words(word..word + 1)[0].store(region.own.word(), Relaxed);
        }
    }

    /// Checks what the survivor finds.
    fn check(&self, at: u64) {
        let region = &self.survivor;
        (0..BLOCKS).for_each(|number| drop(format!("{:?}", get(region, number))));
        region.recover();
        let stats = region.stats();
        assert_eq!((stats.in_flight, stats.processes), (0, 1), "killed at write {at}");
        for number in 0..BLOCKS {
            assert!(matches!(put(region, number), Put::Stored | Put::Present), "killed at write {at}");
            assert!(get(region, number).is_hit(), "block {number}, killed at write {at}");
        }
        assert_eq!(region.stats().blocks, CAPACITY, "killed at write {at}");
    }
}

/// Ends a process as a kill does: it gives nothing back, but the system unmaps its memory and
/// closes its files.
fn end(mut doomed: Region) {
    doomed.memory = Memory::anonymous(1).expect("memory");
    doomed.file = None;
    mem::forget(doomed);
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Kills a process that runs `verb` before each of its writes, in a region with `present` blocks.
fn kill_everywhere(test: &str, present: u32, verb: impl Fn(&Region)) {
    for seen in [Seen::ByPid, Seen::ByLock] {
        let ended = (0..MOST).find(|writes| {
            let scene = Scene::new(test, present, seen);
            let doomed = scene.open_doomed(1);
            let ended = killed_after(*writes, || verb(&doomed));
            end(doomed);
            scene.check(*writes);
            ended.is_some()
        });
        assert!(ended.is_some_and(|writes| writes > 0), "the verb writes nothing, or without end");
    }
}

// Holds: RG3.
#[test]
fn killed_in_a_put_into_free_room() {
    kill_everywhere("put", 2, |region| assert_eq!(put(region, 7), Put::Stored));
}

// Holds: RG3.
#[test]
fn killed_in_a_put_that_evicts() {
    kill_everywhere("evict", CAPACITY as u32, |region| assert_eq!(put(region, 7), Put::Stored));
}

// Holds: RG3.
#[test]
fn killed_in_a_put_whose_room_is_given_back() {
    kill_everywhere("abort", 2, |region| {
        let (key, tokens, bytes) = block(7);
        let Ok(Reserve::Room(mut room)) = region.reserve(&key, &tokens, None) else { panic!("there is room") };
        room.write(3, &bytes[..11]);
    });
}

// Holds: RG3.
#[test]
fn killed_in_putting_what_has_expired() {
    kill_everywhere("expired", 1, |region| {
        let (key, tokens, bytes) = block(7);
        region.put_expiring(&key, &tokens, &bytes, Duration::ZERO).expect("room");
        assert_eq!(put(region, 7), Put::Stored);
    });
}

// Holds: RG3.
#[test]
fn killed_in_a_removal() {
    kill_everywhere("remove", 3, |region| assert!(region.remove(&block(1).0)));
}

#[test]
fn killed_in_clearing() {
    kill_everywhere("clear", 4, |region| assert_eq!(region.clear(), 4));
}

#[test]
fn killed_in_noting_a_use() {
    kill_everywhere("get", 4, |region| {
        (8..10).for_each(|number| assert_eq!(put(region, number), Put::Stored));
        (0..BLOCKS).for_each(|number| drop(format!("{:?}", get(region, number))));
    });
}

/// The process that recovers a dead one is itself killed at every write; a third process recovers
/// both.
// Holds: RG3.
#[test]
fn killed_in_giving_back_what_another_one_held() {
    for seen in [Seen::ByPid, Seen::ByLock] {
        let ended = (0..MOST).find(|writes| {
            let scene = Scene::new("recover", 2, seen);
            // Both open it before either is dead.
            let [mut first, mut second] = [3, 4].map(|number| scene.open(ProcessId::own(), number));
            let (key, tokens, _) = block(9);
            mem::forget(first.reserve(&key, &tokens, None).expect("room"));
            scene.doom(&mut first, 1);
            end(first);
            scene.doom(&mut second, 2);
            let ended = killed_after(*writes, || second.recover());
            end(second);
            scene.check(*writes);
            ended.is_some()
        });
        assert!(ended.is_some_and(|writes| writes > 3), "recovering writes nothing, or without end: {ended:?}");
    }
}

// Holds: RG3.
#[test]
fn killed_in_opening_and_closing() {
    for seen in [Seen::ByPid, Seen::ByLock] {
        let ended = (0..MOST).find(|writes| {
            let scene = Scene::new("open", 2, seen);
            let ended = killed_after(*writes, || drop(scene.open_doomed(1)));
            scene.check(*writes);
            ended.is_some()
        });
        assert!(ended.is_some_and(|writes| writes > 1), "opening writes nothing, or without end");
    }
}

/// However a process is killed that gives entries back and claims some, a put finds every free entry.
// Holds: RG9.
#[test]
fn killed_anywhere_a_process_hides_no_free_entry() {
    const LARGE: u32 = 130;
    let layout = Layout::new(2, 8, LARGE);
    let put = |region: &Region, number: u32| {
        let tokens = [number, !number];
        region.put(&layout.chain(b"").next(&tokens), &tokens, &[7; 8]).expect("room")
    };
    let remove = |region: &Region, number: u32| region.remove(&layout.chain(b"").next(&[number, !number]));
    let ended = (0..MOST).find(|writes| {
        let path = env::temp_dir().join(format!("radixkv-region-hidden-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let survivor = Region::create(&path, &layout).expect("created");
        (0..LARGE).for_each(|number| assert_eq!(put(&survivor, number), Put::Stored));
        let (memory, _) = files::open(&path).expect("opened");
        let geometry = Geometry::of(&layout).expect("a layout");
        let doomed = Region::join(memory, None, &layout, geometry, ProcessId::gone(1)).expect("a slot");
        let ended = killed_after(*writes, || {
            [3, 70, 129].iter().for_each(|number| _ = remove(&doomed, *number));
            (1000..1003).for_each(|number| _ = put(&doomed, number));
            _ = remove(&doomed, 71);
        });
        end(doomed);
        survivor.recover();
        let free = LARGE - survivor.stats().blocks as u32;
        (2000..2000 + free).for_each(|number| assert_eq!(put(&survivor, number), Put::Stored));
        let stats = survivor.stats();
        assert_eq!((stats.blocks, stats.evicted), (LARGE as usize, 0), "killed at write {writes}");
        let _ = fs::remove_file(&path);
        ended.is_some()
    });
    assert!(ended.is_some_and(|writes| writes > 3), "the verbs write nothing, or without end");
}

/// A process is killed between setting the bit of an entry that another one gives back meanwhile, and
/// its second look.
// Holds: RG9.
#[test]
fn killed_after_setting_the_bit_of_an_entry_that_is_given_back() {
    let scene = Scene::new("bit", CAPACITY as u32, Seen::ByPid);
    let (doomed, survivor, (key, tokens, _)) = (scene.open_doomed(1), &scene.survivor, block(1));
    let number = survivor.find(&key, &tokens).expect("it is there").0.number();
    assert!(survivor.remove(&key));
    doomed.taken().set(number);
    end(doomed);
    assert!(survivor.taken().is_hidden(number));
    survivor.recover();
    assert!(!survivor.taken().is_hidden(number));
}

/// Threads of one process and another process find the same dead process: only one of them recovers
/// its entry.
// Holds: RG8.
#[test]
fn many_that_recover_at_once_give_each_entry_back_once() {
    for round in 0..200 {
        let scene = Scene::new("at-once", 0, if round % 2 == 0 { Seen::ByPid } else { Seen::ByLock });
        let other = Region::open(&scene.path, &layout()).expect("opened");
        let mut doomed = scene.open(ProcessId::own(), 1);
        let (key, tokens, _) = block(9);
        mem::forget(doomed.reserve(&key, &tokens, None).expect("room"));
        scene.doom(&mut doomed, 1);
        end(doomed);
        let recovered: usize = thread::scope(|scope| {
            let all = [&scene.survivor, &scene.survivor, &other, &other];
            let threads = all.map(|region| scope.spawn(|| region.recover()));
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(recovered, 1, "round {round}");
        assert_eq!((other.stats().in_flight, other.stats().processes), (0, 2));
    }
}

/// A thread recovers a dead process, and is stopped before each of its writes; meanwhile another
/// thread of its process recovers. Only one of them gives the entry back.
// Holds: RG8.
#[test]
fn a_thread_beside_one_that_is_stopped_while_it_recovers_gives_nothing_back() {
    for seen in [Seen::ByPid, Seen::ByLock] {
        let ended = (0..MOST).find(|writes| {
            let scene = Arc::new(Scene::new("beside", 2, seen));
            let mut doomed = scene.open(ProcessId::own(), 1);
            let (key, tokens, _) = block(9);
            mem::forget(doomed.reserve(&key, &tokens, None).expect("room"));
            scene.doom(&mut doomed, 1);
            end(doomed);
            let meanwhile = {
                let scene = Arc::clone(&scene);
                move || assert_eq!(scene.survivor.recover(), 0)
            };
            let is_stopped = stopped_after(*writes, meanwhile, || assert_eq!(scene.survivor.recover(), 1));
            scene.check(*writes);
            !is_stopped
        });
        assert!(ended.is_some_and(|writes| writes > 3), "recovering writes nothing, or without end: {ended:?}");
    }
}

/// A living process's entries are not recovered: either it has its lock, or it is in another
/// namespace, whose pids cannot be judged.
// Holds: RG8.
#[test]
fn what_cannot_be_judged_is_alive() {
    for seen in [Seen::ByPid, Seen::ByLock] {
        let scene = Scene::new("alive", 2, seen);
        let other = scene.open(ProcessId::elsewhere(1), 1);
        let (key, tokens, bytes) = block(9);
        let Ok(Reserve::Room(mut room)) = other.reserve(&key, &tokens, None) else { panic!("there is room") };
        assert_eq!((scene.survivor.recover(), put(&scene.survivor, 9)), (0, Put::InFlight));
        // Without the file its lock cannot be tried.
        let without = Region::attach(files::open(&scene.path).expect("opened").0, &layout()).expect("attached");
        assert_eq!((without.recover(), put(&without, 9)), (0, Put::InFlight));
        room.write(0, &bytes);
        room.publish();
        assert!(get(&scene.survivor, 9).is_hit());
    }
}

/// A forked child shares its parent's locks: looking at slots, it unlocks none of them.
// Holds: RG8.
#[test]
fn a_forked_child_that_looks_at_slots_unlocks_none() {
    let scene = Scene::new("forked", 0, Seen::ByLock);
    let [doomed, mut parent] = [1, 2].map(|number| scene.open(ProcessId::own(), number));
    let dead = doomed.slot;
    end(doomed);
    assert!(parent.slots().take_over(dead, parent.own));
    // From here on it is used as in a child: the calling process is not the opener.
    parent.own = ProcessId::from_word(parent.own.word() ^ 1);
    for slot in [dead, parent.slot] {
        assert!(matches!(parent.owner_of(slot), Some((_, false))));
    }
    // The parent recovers the dead process, and is itself alive.
    scene.survivor.recover();
    assert_eq!(scene.survivor.stats().processes, 3);
    end(parent);
    scene.survivor.recover();
    assert_eq!(scene.survivor.stats().processes, 1);
}
