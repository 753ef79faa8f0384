//! Callers that do what they should not: in numbers, at once, and in the wrong order.

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use common::{Bytes, blocks, checked, get, get_all, layout, put, put_all};
use radixkv_tiers::{FileTier, Get, Outcome, Put, Refusal, RemoteTier, Tier};

fn open(folder: &std::path::Path, max_in_flight: usize) -> Tier<Bytes> {
    FileTier::new(folder, layout(4, 5000), 1 << 24).max_in_flight(max_in_flight).open().unwrap()
}

/// Eight threads submit and poll one small queue: each item that was accepted ends once, with what
/// was submitted.
#[test]
fn each_item_ends_once() {
    let folder = tempfile::tempdir().unwrap();
    let (tier, layout) = (open(folder.path(), 16), layout(4, 5000));
    let all = blocks(&layout, 8);
    let (accepted, ended, refused) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let caller = |number: usize| {
        let mut done = Vec::new();
        for round in 0..200 {
            let count = 1 + (round * 7 + number) % 5;
            let puts: Vec<_> = (0..count).map(|at| put(&all[(round + at) % 8], &layout, None)).collect();
            let gets: Vec<_> = (0..count).map(|at| get(&all[(round + at) % 8], &layout)).collect();
            let submitted = match round % 2 {
                0 => tier.put_from(puts).map_err(|back| (back.batch.len(), back.reason)),
                _ => tier.get_into(gets).map_err(|back| (back.batch.len(), back.reason)),
            };
            match submitted {
                Ok(_) => drop(accepted.fetch_add(count, Relaxed)),
                Err((came_back, Refusal::Full { asked, in_flight, max: 16 })) => {
                    assert!(came_back == count && asked == count && in_flight <= 16 && in_flight + asked > 16);
                    refused.fetch_add(1, Relaxed);
                }
                other => panic!("{other:?}"),
            }
            assert!(tier.stats().in_flight <= 16);
            tier.poll(&mut done, Duration::from_micros(50));
            ended.fetch_add(done.len(), Relaxed);
            for end in done.drain(..) {
                if matches!(end.outcome, Outcome::Got(..)) {
                    let _ = checked(end, &layout);
                }
            }
        }
    };
    thread::scope(|scope| (0..8).for_each(|number| drop(scope.spawn(move || caller(number)))));
    let mut done = Vec::new();
    while tier.stats().in_flight > 0 {
        tier.poll(&mut done, common::PATIENCE);
    }
    assert_eq!(ended.into_inner() + done.len(), accepted.into_inner());
    assert_eq!(tier.stats().refused_batches as usize, refused.into_inner());
    assert_eq!(tier.poll(&mut done, Duration::MAX), 0);
}

/// Threads that wait for one completion: one gets it, and the others stop waiting.
#[test]
fn waiting_for_what_another_thread_got_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (tier, layout) = (open(folder.path(), 16), layout(4, 5000));
    let got = AtomicUsize::new(0);
    for block in blocks(&layout, 20) {
        thread::scope(|scope| {
            tier.put_from(vec![put(&block, &layout, None)]).unwrap();
            for _ in 0..4 {
                scope.spawn(|| got.fetch_add(tier.poll(&mut Vec::new(), Duration::MAX), Relaxed));
            }
        });
    }
    assert_eq!(got.into_inner(), 20);
}

/// A buffer that panics while the call looks at it: the caller's own panic, and nothing is in
/// flight.
#[test]
fn a_buffer_that_panics_in_the_call_is_the_callers() {
    struct Panics(bool);
    impl AsRef<[u8]> for Panics {
        fn as_ref(&self) -> &[u8] {
            assert!(!self.0, "as told");
            &[0; 64]
        }
    }
    impl AsMut<[u8]> for Panics {
        fn as_mut(&mut self) -> &mut [u8] {
            panic!("as told")
        }
    }
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 64));
    let tier = FileTier::new(folder.path(), layout.clone(), 1 << 20).open::<Panics>().unwrap();
    let all = blocks(&layout, 1);
    let put = |panics| vec![Put { block: all[0].clone(), buffer: Panics(panics), time_to_live: None }];
    assert!(catch_unwind(AssertUnwindSafe(|| tier.put_from(put(true)).is_ok())).is_err());
    assert_eq!(tier.stats().in_flight, 0);
    assert!(tier.put_from(put(false)).is_ok());
    let mut done = Vec::new();
    tier.poll(&mut done, common::PATIENCE);
    // And one that panics when it is written to.
    assert!(tier.get_into(vec![Get { block: all[0].clone(), buffer: Panics(false) }]).is_ok());
    tier.poll(&mut done, common::PATIENCE);
    assert!(matches!(&done[..], [put, get] if matches!(put.outcome, Outcome::Put(_, Ok(())))
        && matches!(get.outcome, Outcome::Got(_, Err(radixkv_tiers::NotGot::Failed(radixkv_tiers::Failure::Buffer))))));
}

/// Dropped with a full queue, again and again: the folder can be opened at once, and has whole
/// blocks or none.
#[test]
fn a_tier_is_dropped_with_work_in_flight() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 5000));
    let all = blocks(&layout, 64);
    for round in 0..20 {
        let tier = open(folder.path(), 64);
        tier.put_from(all.iter().map(|block| put(block, &layout, None)).collect()).unwrap();
        tier.poll(&mut Vec::new(), Duration::from_micros(round * 100));
    }
    let tier = open(folder.path(), 64);
    let ends = get_all(&tier, &all);
    assert!(ends.iter().all(|end| matches!(*end, Ok(()) | common::ABSENT)), "{ends:?}");
    put_all(&tier, &all, None);
    assert_eq!(get_all(&tier, &all), vec![Ok(()); 64]);
}

/// The folder is removed, its parts are replaced by files, while the tier is open: failures and
/// misses, and it goes on when it can.
#[test]
fn a_folder_that_vanishes_is_made_again() {
    let (folder, layout) = (tempfile::tempdir().unwrap(), layout(4, 5000));
    let path = folder.path().join("tier");
    let (tier, all) = (open(&path, 64), blocks(&layout, 4));
    put_all(&tier, &all, None);
    std::fs::remove_dir_all(path.join("objects")).unwrap();
    assert_eq!(get_all(&tier, &all), vec![common::ABSENT; 4]);
    assert_eq!(tier.stats().held_blocks, 0);
    put_all(&tier, &all, None);
    assert_eq!(get_all(&tier, &all), vec![Ok(()); 4]);
    std::fs::remove_dir_all(path.join("objects")).unwrap();
    std::fs::write(path.join("objects"), "a file").unwrap();
    tier.put_from(vec![put(&all[0], &layout, None)]).unwrap();
    let end = common::completions(&tier, 1).remove(0).outcome;
    assert!(matches!(end, Outcome::Put(_, Err(_))), "{end:?}");
    std::fs::remove_dir_all(&path).unwrap();
    tier.put_from(vec![put(&all[0], &layout, None)]).unwrap();
    let end = common::completions(&tier, 1).remove(0).outcome;
    assert!(matches!(end, Outcome::Put(_, Err(_))), "{end:?}");
}

/// Flags at their ends.
#[test]
fn settings_at_their_ends() {
    let layout = layout(4, 64);
    for (threads, items, timeout, capacity) in [
        (0, 0, Duration::ZERO, 4096),
        (usize::MAX, usize::MAX, Duration::MAX, u64::MAX),
        (3, 1, Duration::from_nanos(1), 5000),
    ] {
        // One each: a thread of a tier with so short a timeout may have its folder a moment longer.
        let folder = tempfile::tempdir().unwrap();
        let settings = FileTier::new(folder.path(), layout.clone(), capacity).threads(threads).max_in_flight(items);
        let tier: Tier<Bytes> = settings.timeout(timeout).open().unwrap();
        tier.put_from(vec![put(&blocks(&layout, 1)[0], &layout, None)]).unwrap();
        let end = common::completions(&tier, 1).remove(0).outcome;
        assert!(matches!(end, Outcome::Put(_, Ok(()) | Err(radixkv_tiers::Failure::TimedOut))), "{end:?}");
    }
}
