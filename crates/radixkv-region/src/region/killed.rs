//! A process is killed before each of its writes in turn: the others get everything back, and no byte is wrong.

use std::{env, fs, mem, path::PathBuf, time::Duration};

use super::{Get, Put, Region, Reserve, files};
use crate::{
    geometry::Geometry,
    key::{Key, Token},
    layout::Layout,
    process::ProcessId,
    sync::killed::killed_after,
};

/// Few enough entries that a verb meets cells and entries of others.
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

/// Looks for a block; what is found is right.
fn get(region: &Region, number: u32) -> Get {
    let (key, tokens, expected) = block(number);
    let mut bytes = [0; 20];
    let got = region.get_into(&key, &tokens, &mut bytes).expect("one block");
    assert!(!got.is_hit() || bytes == *expected, "wrong bytes of block {number}");
    got
}

/// A region of a test's own, and how to open it as a process that is dead when another one looks.
struct Scene {
    path: PathBuf,
    survivor: Region,
}

impl Scene {
    fn new(test: &str, present: u32) -> Self {
        let path = env::temp_dir().join(format!("radixkv-region-{test}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let survivor = Region::create(&path, &layout()).expect("created");
        (0..present).for_each(|number| assert_eq!(put(&survivor, number), Put::Stored));
        Self { path, survivor }
    }

    fn open_doomed(&self) -> Region {
        let geometry = Geometry::of(&layout()).expect("a layout");
        let memory = files::open(&self.path).expect("opened");
        Region::join(memory, &layout(), geometry, ProcessId::gone()).expect("a slot")
    }

    /// What the survivor finds.
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

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Kills a process that does `verb` before each of its writes, beside `present` blocks.
fn kill_everywhere(test: &str, present: u32, verb: impl Fn(&Region)) {
    for writes in 0..MOST {
        let scene = Scene::new(test, present);
        let doomed = scene.open_doomed();
        let ended = killed_after(writes, || verb(&doomed));
        // Dead processes close nothing.
        mem::forget(doomed);
        scene.check(writes);
        if ended.is_some() {
            assert!(writes > 0, "the verb writes nothing");
            return;
        }
    }
    panic!("the verb writes without end");
}

#[test]
fn killed_in_a_put_into_free_room() {
    kill_everywhere("put", 2, |region| assert_eq!(put(region, 7), Put::Stored));
}

#[test]
fn killed_in_a_put_that_evicts() {
    kill_everywhere("evict", CAPACITY as u32, |region| assert_eq!(put(region, 7), Put::Stored));
}

#[test]
fn killed_in_a_put_whose_room_is_given_back() {
    kill_everywhere("abort", 2, |region| {
        let (key, tokens, bytes) = block(7);
        let Ok(Reserve::Room(mut room)) = region.reserve(&key, &tokens, None) else { panic!("there is room") };
        room.write(3, &bytes[..11]);
    });
}

#[test]
fn killed_in_putting_what_has_expired() {
    kill_everywhere("expired", 1, |region| {
        let (key, tokens, bytes) = block(7);
        region.put_expiring(&key, &tokens, &bytes, Duration::ZERO).expect("room");
        assert_eq!(put(region, 7), Put::Stored);
    });
}

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

/// The one that gives back what a dead process held dies itself, anywhere; a third one does both.
#[test]
fn killed_in_giving_back_what_another_one_held() {
    for writes in 0..MOST {
        let scene = Scene::new("recover", 2);
        // They open it before either is dead.
        let [first, second] = [scene.open_doomed(), scene.open_doomed()];
        let (key, tokens, _) = block(9);
        mem::forget(first.reserve(&key, &tokens, None).expect("room"));
        mem::forget(first);
        let ended = killed_after(writes, || second.recover());
        mem::forget(second);
        scene.check(writes);
        if ended.is_some() {
            assert!(writes > 3);
            return;
        }
    }
    panic!("recovering writes without end");
}

/// Killed in opening, and in closing.
#[test]
fn killed_in_opening_and_closing() {
    for writes in 0..MOST {
        let scene = Scene::new("open", 2);
        let ended = killed_after(writes, || drop(scene.open_doomed()));
        scene.check(writes);
        if ended.is_some() {
            assert!(writes > 1);
            return;
        }
    }
    panic!("opening writes without end");
}
