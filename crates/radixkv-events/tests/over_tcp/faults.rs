//! What is refused, and what strangers send.

use std::{sync::mpsc, thread};

use radixkv_events::{
    Batch, Event, FollowError, HoldError, Numbered, PublishError, Publisher, Snapshot, SubscribeError, Subscriber, now,
    wire::{self, Format},
};
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::source::{Worker, stored, wait};

const ANY: &str = "tcp://127.0.0.1:0";

// Holds: WE13.
#[test]
fn a_port_that_is_taken_is_named() {
    let first = Publisher::builder(ANY).replay(ANY).build().unwrap();
    for builder in [Publisher::builder(first.endpoint()), Publisher::builder(ANY).replay(first.endpoint())] {
        match builder.build() {
            Err(error @ PublishError::Taken { .. }) => {
                assert_eq!(error.to_string(), format!("{} is in use by another program", first.endpoint()));
            }
            other => panic!("{other:?}"),
        }
    }
}

// Holds: WE13.
#[test]
fn an_endpoint_that_is_none_is_named() {
    let error = Publisher::builder("5557").build().unwrap_err();
    assert_eq!(error.to_string(), "\"5557\" is not an endpoint, such as tcp://127.0.0.1:5557");
    let error = Subscriber::builder(ANY).replay("udp://127.0.0.1:1").start().unwrap_err();
    assert!(matches!(error, SubscribeError::Endpoint(_)), "{error}");
    // An address that is no machine's: for documentation.
    let error = Publisher::builder("tcp://192.0.2.1:5557").build().unwrap_err();
    assert!(matches!(error, PublishError::System { .. }), "{error}");
}

/// The queue in front of the thread is bounded; what does not fit comes back, and its number is a
/// gap.
// Holds: WE12.
#[test]
fn a_full_queue_loses_whole_batches_and_waits_for_nothing() {
    let (entered, at_snapshot) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    let builder = Publisher::builder(ANY).replay(ANY).queue(3).snapshot(move || {
        entered.send(()).unwrap();
        let _ = left.recv();
        Default::default()
    });
    let publisher = builder.build().unwrap();
    // The publisher's thread stands still while it makes a snapshot.
    let replay = publisher.replay_endpoint().unwrap().to_owned();
    let subscriber = Subscriber::builder(publisher.endpoint()).replay(replay).start().unwrap();
    at_snapshot.recv().unwrap();
    let mut worker = Worker::new();
    let lost: Vec<_> = (0..10).filter_map(|_| publisher.publish(worker.batch()).err()).collect();
    assert_eq!(lost.iter().map(|lost| lost.numbered.seq).collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(lost[0].to_string(), "batch 3 was dropped: the queue holds 3 batches");
    assert_eq!(publisher.lost_batches(), 7);
    drop(leave);
    drop(subscriber);
}

/// Sends messages of a stranger's again and again until the follower has what it waits for.
fn strange(messages: &[Vec<Vec<u8>>], is_done: impl Fn(&Subscriber) -> bool, subscribe: impl Fn(&str) -> Subscriber) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (mut socket, endpoint) = runtime.block_on(async {
        let mut socket = PubSocket::new();
        let endpoint = socket.bind(ANY).await.unwrap().to_string();
        (socket, endpoint)
    });
    let subscriber = subscribe(&endpoint);
    let mut round = 0;
    while !is_done(&subscriber) {
        for frames in messages {
            let frames: Vec<_> = frames.iter().cloned().map(bytes::Bytes::from).collect();
            let message = ZmqMessage::try_from(frames).unwrap();
            runtime.block_on(async { socket.send(message).await.unwrap() });
        }
        round += 1;
        assert!(round < 10_000, "{:?}", subscriber.with(|follower| format!("{follower:?}")));
        thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn garbage_is_counted_and_following_goes_on() {
    let batch = Batch { time: now(), events: vec![stored(5, 2)], ..Batch::default() };
    let number = |seq: u64| seq.to_be_bytes().to_vec();
    let messages = [
        vec![b"topic".to_vec()],
        vec![b"topic".to_vec(), b"no number".to_vec(), b"payload".to_vec()],
        vec![b"topic".to_vec(), number(0), b"no batch".to_vec()],
        vec![b"topic".to_vec(), number(0), wire::encode(&batch, Format::Arrays)],
    ];
    let is_done = |subscriber: &Subscriber| {
        subscriber.with(|follower| follower.counts().garbage > 1 && follower.holdings().len() == 1)
    };
    strange(&messages, is_done, |endpoint| Subscriber::builder(endpoint).start().unwrap());
}

/// Callers' functions that panic end neither the publisher's nor the subscriber's thread.
#[test]
fn panics_of_snapshots_and_watchers_are_counted() {
    let builder = Publisher::builder(ANY).replay(ANY).snapshot(|| panic!("a snapshot's panic"));
    let publisher = builder.build().unwrap();
    let mut worker = Worker::new();
    worker.publish(&publisher, 3);
    let builder = Subscriber::builder(publisher.endpoint()).replay(publisher.replay_endpoint().unwrap());
    let subscriber = builder.watched(|_| panic!("a watcher's panic")).start().unwrap();
    wait(&subscriber, "the first batches", |follower| follower.next_seq() == Some(3));
    worker.publish(&publisher, 1);
    wait(&subscriber, "one more batch", |follower| follower.next_seq() == Some(4));
    assert!(publisher.snapshot_panics() >= 1 && publisher.sent_batches() == 4);
    subscriber.with(|follower| assert!(follower.counts().watcher_panics >= 4 && follower.is_complete()));
    assert_eq!(subscriber.failure(), None);
}

/// What an earlier publisher sent may come after the snapshot of its successor: it is passed over.
#[test]
fn an_earlier_life_does_not_come_back() {
    let events = vec![stored(9, 2)];
    let builder = Publisher::builder(ANY).replay(ANY);
    let builder = builder.snapshot(move || Snapshot { next: 1, epoch: Some(2), events: events.clone() });
    let successor = builder.build().unwrap();
    let message = |seq: u64, epoch: u64, hash: u64| {
        let batch = Batch { time: now(), events: vec![stored(hash, 2)], rank: None, epoch: Some(epoch) };
        vec![Vec::new(), seq.to_be_bytes().to_vec(), wire::encode(&batch, Format::Maps)]
    };
    let is_done = |subscriber: &Subscriber| {
        subscriber.with(|follower| follower.holdings().len() == 2 && follower.epoch() == Some(2))
    };
    let replay = successor.replay_endpoint().unwrap();
    let subscribe = |endpoint: &str| Subscriber::builder(endpoint).replay(replay).start().unwrap();
    strange(&[message(7, 1, 5), message(1, 2, 6)], is_done, subscribe);
}

/// A publisher that does not answer a replay is asked for a snapshot before the gap is given up.
// Holds: WE8, WE11.
#[test]
fn a_replay_without_an_answer_is_followed_by_a_snapshot() {
    let message = |seq: u64, events: Vec<Event>| {
        let batch = Batch { time: now(), events, rank: None, epoch: Some(1) };
        [seq.to_be_bytes().to_vec(), wire::encode(&batch, Format::Maps)]
    };
    let snapshots = [message(1, vec![stored(5, 2)]), message(4, vec![stored(5, 2), stored(9, 2)])];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (send, receive) = mpsc::channel();
    runtime.spawn(async move {
        let mut socket = RouterSocket::new();
        send.send(socket.bind(ANY).await.unwrap().to_string()).unwrap();
        let mut asked = 0;
        while let Ok(request) = socket.recv().await {
            let request = request.into_vec();
            if request[2] != wire::SNAPSHOT[..] {
                continue;
            }
            let snapshot = snapshots[usize::from(asked > 0)].clone();
            asked += 1;
            for [seq, payload] in [snapshot, [wire::END.to_vec(), Vec::new()]] {
                let frames = vec![request[0].clone(), Vec::new().into(), seq.into(), payload.into()];
                socket.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
            }
        }
    });
    let replay = receive.recv().unwrap();
    let [seq, payload] = message(3, vec![stored(9, 2)]);
    let is_done = |subscriber: &Subscriber| {
        subscriber.with(|follower| {
            let is_past = follower.next_seq() == Some(4);
            assert!(!is_past || (follower.is_complete() && follower.holdings().len() == 2), "{follower:?}");
            is_past
        })
    };
    strange(&[vec![Vec::new(), seq, payload]], is_done, |endpoint| {
        Subscriber::builder(endpoint).replay(replay.as_str()).start().unwrap()
    });
}

// Holds: WE13.
#[test]
fn another_block_size_ends_following_with_both_numbers() {
    let batch = Batch { time: now(), events: vec![stored(5, 2)], ..Batch::default() };
    let messages = [vec![Vec::new(), 0_u64.to_be_bytes().to_vec(), wire::encode(&batch, Format::Maps)]];
    let refused = FollowError::Refused(HoldError::BlockSize { expected: 16, got: 2 });
    let is_done = |subscriber: &Subscriber| subscriber.failure() == Some(refused);
    strange(&messages, is_done, |endpoint| Subscriber::builder(endpoint).block_size(16).start().unwrap());
}

/// Older publishers answer without the topic, and know no snapshots: they end an answer at once.
#[test]
fn older_publishers_are_asked_too() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut worker = Worker::new();
    let batches: Vec<Numbered> = (0..5).map(|_| worker.batch()).collect();
    let (send, receive) = mpsc::channel();
    runtime.spawn(async move {
        let mut socket = RouterSocket::new();
        send.send(socket.bind(ANY).await.unwrap().to_string()).unwrap();
        while let Ok(message) = socket.recv().await {
            let request = message.into_vec();
            let start = u64::from_be_bytes(request[2].as_ref().try_into().unwrap());
            let payloads = batches.iter().filter(|numbered| numbered.seq >= start);
            let answers =
                payloads.map(|numbered| (numbered.seq.to_be_bytes(), wire::encode(&numbered.batch, Format::Arrays)));
            for (seq, payload) in answers.chain([(wire::END, Vec::new())]) {
                let frames = vec![request[0].clone(), Vec::new().into(), seq.to_vec().into(), payload.into()];
                socket.send(ZmqMessage::try_from(frames).unwrap()).await.unwrap();
            }
        }
    });
    let publisher = Publisher::builder(ANY).build().unwrap();
    let replay = receive.recv().unwrap();
    let subscriber = Subscriber::builder(publisher.endpoint()).replay(replay).start().unwrap();
    wait(&subscriber, "an answer", |follower| follower.next_seq() == Some(5));
    subscriber.with(|follower| assert_eq!(super::source::sorted(follower.holdings()), worker.names()));
}
