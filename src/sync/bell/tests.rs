use super::*;
use std::sync::Arc;

#[test]
fn no_ring_is_lost_and_the_end_ends() {
    let bell = Arc::new(Bell::new());
    let work = Arc::new(AtomicUsize::new(0));
    let worker = std::thread::spawn({
        let (bell, work) = (Arc::clone(&bell), Arc::clone(&work));
        move || {
            let mut done = 0;
            while bell.wait(None) {
                done += work.swap(0, Relaxed);
            }
            done
        }
    });
    let unpark = || worker.thread().unpark();
    for _ in 0..10_000 {
        work.fetch_add(1, Relaxed);
        bell.ring(unpark);
    }
    while work.load(Relaxed) > 0 {
        std::thread::yield_now();
    }
    bell.end(unpark);
    assert_eq!(worker.join().expect("the worker ends"), 10_000);
}

#[test]
fn a_sleep_ends_by_itself_and_the_end_ends_it() {
    let bell = Bell::new();
    assert!(bell.wait(Some(Duration::from_millis(1))));
    bell.ring(|| ());
    assert!(bell.wait(Some(Duration::from_secs(1_000))), "rung before");
    bell.end(|| ());
    assert!(!bell.wait(Some(Duration::from_millis(1))));
}

/// Other code on the worker's thread may park and consume the permit; no ring is lost.
#[test]
fn a_permit_that_was_used_up_elsewhere_loses_no_ring() {
    let bell = Bell::new();
    bell.ring(|| std::thread::current().unpark());
    std::thread::park();
    assert!(bell.wait(Some(Duration::from_secs(1_000))));
}
