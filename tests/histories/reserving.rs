//! Threads that reserve and give back.

use fastrand::Rng;
use radixkv::{PrefixCache, Reservation};

use crate::pool::{CAPACITY, Step};
use crate::record::{Event, Recorder, record};

const CALLS: usize = 8;

/// What the threads of one history share.
struct Shared {
    cache: PrefixCache,
    seed: u64,
}

/// Records one history.
pub fn history(seed: u64) -> Vec<Event<Step>> {
    let cache = PrefixCache::builder(1, CAPACITY).build().expect("a sound setting");
    record(3, Shared { cache, seed }, work)
}

fn work(shared: &Shared, thread: usize, recorder: &mut Recorder<'_, Step>) {
    let session = shared.cache.session();
    let mut dice = Rng::with_seed(shared.seed ^ (thread as u64) << 32);
    let mut held: Vec<Reservation> = Vec::new();
    for _ in 0..CALLS {
        if held.is_empty() || dice.bool() {
            let blocks = dice.usize(1..=3);
            let reserved = recorder.record(|| {
                let reserved = session.reserve(blocks);
                (Step::Reserve { blocks, granted: reserved.is_ok() }, reserved)
            });
            held.extend(reserved);
        } else {
            let reservation = held.swap_remove(dice.usize(..held.len()));
            let blocks = reservation.len();
            recorder.record(|| (Step::GiveBack { blocks }, drop(reservation)));
        }
    }
    // The rest goes back too, on the record: the history of a thread that is still at work needs
    // it.
    for reservation in held {
        let blocks = reservation.len();
        recorder.record(|| (Step::GiveBack { blocks }, drop(reservation)));
    }
}
