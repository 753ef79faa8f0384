use super::*;
use crate::sync::Arc;

#[test]
fn a_panicking_holder_poisons_nothing() {
    let mutex = Arc::new(Mutex::new(1));
    let holder = Arc::clone(&mutex);
    let broken = thread::spawn(move || {
        let mut held = holder.lock();
        *held = 2;
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(broken.join().is_err());
    assert_eq!(*mutex.lock(), 2);
    assert_eq!(mutex.try_lock().map(|held| *held), Some(2));
}

#[test]
fn a_hint_that_is_wrong_costs_time_alone() {
    let mutex = Mutex::new(1);
    let released = || mutex.hints.released.load(Relaxed);
    let held = mutex.lock();
    assert!(released() == 0 && mutex.try_lock().is_none());
    unlock_fairly(held);
    assert_eq!(released(), 1);
    // As if a holder had not finished its drop.
    mutex.hints.released.store(0, Relaxed);
    assert_eq!(mutex.look_for_it(|| false).map(|held| *held), Some(1));
    assert_eq!(*mutex.lock_asleep(), 1);
    let held = mutex.lock();
    mutex.hints.released.store(7, Relaxed);
    assert!(mutex.spin_for_it(|| false).is_none(), "the hint gives nobody the lock");
    drop(held);
    assert!(mutex.try_lock().is_some());
}

/// A thread that repeatedly locks again at once lets waiting threads have the lock.
#[test]
fn a_lock_that_is_unlocked_fairly_is_taken_by_a_waiting_thread() {
    let mutex = Mutex::new(0_u64);
    let stop = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while stop.load(Relaxed) == 0 {
                let mut held = mutex.lock();
                *held += 1;
                unlock_fairly(held);
            }
        });
        while *mutex.lock() == 0 {
            thread::yield_now();
        }
        for _ in 0..200 {
            drop(mutex.lock());
        }
        stop.store(1, Relaxed);
    });
}

/// Only a `measured` lock is measured, here by a clock that the test sets.
#[cfg(feature = "holds")]
#[test]
fn the_longest_hold_is_measured_since_it_was_asked_for_last() {
    thread_local!(static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
    crate::measure_holds(|| Duration::from_nanos(NOW.get()));
    let (measured, other) = (Mutex::measured(()), Mutex::new(()));
    for held_for in [3, 7, 5] {
        let held = (measured.lock(), other.lock());
        NOW.set(NOW.get() + held_for);
        drop(held);
        NOW.set(NOW.get() + 100);
    }
    let held = measured.lock();
    NOW.set(NOW.get() + 2);
    unlock_fairly(held);
    let longest = || [&measured, &other].map(|lock| lock.longest_hold().as_nanos());
    assert_eq!([longest(), longest()], [[7, 0], [0, 0]]);
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    let deadline = Instant::now() + std::time::Duration::from_millis(2);
    let mut held = mutex.lock();
    loop {
        let late;
        (held, late) = condvar.wait(held, Some(deadline));
        if late {
            break;
        }
    }
    drop(held);
    assert!(Instant::now() >= deadline);
}
