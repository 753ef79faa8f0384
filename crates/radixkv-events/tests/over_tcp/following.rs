//! What a subscriber rebuilds: from the start, late, over gaps and restarts.

use radixkv_events::{Publisher, Subscriber};

use super::source::{Worker, sorted, wait};

const ANY: &str = "tcp://127.0.0.1:0";

fn follow(publisher: &Publisher) -> Subscriber {
    let replay = publisher.replay_endpoint().unwrap();
    Subscriber::builder(publisher.endpoint()).replay(replay).block_size(2).start().unwrap()
}

fn reaches(subscriber: &Subscriber, worker: &Worker, seq: u64) {
    wait(subscriber, "all batches", |follower| follower.next_seq() == Some(seq));
    subscriber.with(|follower| {
        assert_eq!(sorted(follower.holdings()), worker.names());
        assert!(follower.is_complete(), "{follower:?}");
        assert_eq!(follower.holdings().unrooted(), 0);
    });
}

/// One that comes late and asks for all batches again.
#[test]
fn a_late_subscriber_is_complete_by_replay() {
    let mut worker = Worker::new();
    let publisher = Publisher::builder(ANY).replay(ANY).topic("kv-events").build().unwrap();
    worker.publish(&publisher, 100);
    let subscriber = follow(&publisher);
    reaches(&subscriber, &worker, 100);
    worker.publish(&publisher, 100);
    reaches(&subscriber, &worker, 200);
    assert_eq!(publisher.sent_batches(), 200);
    subscriber.with(|follower| {
        let counts = follower.counts();
        assert_eq!((counts.snapshots, counts.batches, counts.lost_batches), (0, 200, 0));
        assert_eq!(follower.epoch(), Some(worker.recorder.epoch()));
    });
}

/// One that comes late where the old batches are gone.
#[test]
fn a_late_subscriber_is_complete_by_a_snapshot() {
    let mut worker = Worker::new();
    let publisher = worker.with_snapshots(Publisher::builder(ANY).replay(ANY).ring(10, 1 << 20)).build().unwrap();
    worker.publish(&publisher, 300);
    let subscriber = follow(&publisher);
    reaches(&subscriber, &worker, 300);
    worker.publish(&publisher, 50);
    reaches(&subscriber, &worker, 350);
    subscriber.with(|follower| assert!(follower.counts().snapshots >= 1 && follower.counts().batches <= 50));
}

/// A batch that was lost before the publisher sent it is a gap that no replay fills.
// Holds: WE11.
#[test]
fn lost_batches_are_a_gap_that_a_snapshot_fills() {
    let mut worker = Worker::new();
    let publisher = worker.with_snapshots(Publisher::builder(ANY).replay(ANY)).build().unwrap();
    worker.publish(&publisher, 10);
    let subscriber = follow(&publisher);
    reaches(&subscriber, &worker, 10);
    (0..5).for_each(|_| drop(worker.batch()));
    worker.publish(&publisher, 10);
    reaches(&subscriber, &worker, 25);
    subscriber.with(|follower| assert_eq!(follower.counts().lost_batches, 0));
}

/// Without anybody to ask, a gap stays, is counted, and is said.
#[test]
fn a_gap_stays_where_nobody_can_be_asked() {
    let mut worker = Worker::new();
    let publisher = Publisher::builder(ANY).build().unwrap();
    let subscriber = Subscriber::builder(publisher.endpoint()).start().unwrap();
    while subscriber.with(|follower| follower.next_seq().is_none()) {
        worker.publish(&publisher, 1);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    (0..3).for_each(|_| drop(worker.batch()));
    worker.publish(&publisher, 1);
    wait(&subscriber, "the end", |follower| follower.next_seq() == Some(worker.recorder.next_seq()));
    subscriber.with(|follower| assert!(follower.counts().lost_batches >= 3 && !follower.is_complete(), "{follower:?}"));
}

/// Another publisher on the same port has another epoch: it is no gap of the first one, whatever
/// its numbers are.
// Holds: WE11.
#[test]
fn a_restart_is_followed_by_epoch_and_snapshot() {
    let mut worker = Worker::new();
    let publisher = worker.with_snapshots(Publisher::builder(ANY).replay(ANY)).build().unwrap();
    let (endpoint, replay) = (publisher.endpoint().to_owned(), publisher.replay_endpoint().unwrap().to_owned());
    let subscriber = follow(&publisher);
    worker.publish(&publisher, 20);
    reaches(&subscriber, &worker, 20);
    drop(publisher);

    let mut worker = Worker::new();
    // They come before it listens, so the subscriber learns of them only by its request.
    (0..30).for_each(|_| drop(worker.batch()));
    let again = || Publisher::builder(endpoint.clone()).replay(replay.clone());
    let publisher = worker.with_snapshots(again()).build().unwrap();
    // It connects again and asks, though no batch comes.
    reaches(&subscriber, &worker, 30);
    subscriber.with(|follower| assert_eq!((follower.counts().restarts, follower.counts().gaps), (1, 0)));
    worker.publish(&publisher, 10);
    reaches(&subscriber, &worker, 40);
    // The answer may come before the publisher has its subscription: then the first batches are asked
    // for, as after a gap.
    subscriber.with(|follower| assert_eq!((follower.counts().restarts, follower.counts().lost_batches), (1, 0)));
}

/// A subscriber that never reads costs the others no batch.
// Holds: WE12.
#[test]
fn a_subscriber_that_does_not_read_slows_nobody() {
    use zeromq::{Socket, SubSocket};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut worker = Worker::new();
    let publisher = Publisher::builder(ANY).replay(ANY).topic("t".repeat(20_000)).build().unwrap();
    let dead = runtime.block_on(async {
        let mut socket = SubSocket::new();
        socket.connect(publisher.endpoint()).await.unwrap();
        socket.subscribe("").await.unwrap();
        socket
    });
    let subscriber = follow(&publisher);
    worker.publish(&publisher, 2_000);
    reaches(&subscriber, &worker, 2_000);
    drop(dead);
}
