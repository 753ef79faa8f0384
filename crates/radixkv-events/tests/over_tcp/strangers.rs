//! Peers that speak ZMTP, or nothing, to harm the other side: they are cut off, and the other side
//! goes on.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use radixkv_events::{Numbered, Publisher, Subscriber, wire};

use super::source::{Worker, sorted, wait};

const ANY: &str = "tcp://127.0.0.1:0";
/// Longer than anything takes: a hang fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A greeting of ZMTP 3.0, and the command that says what the peer is.
fn greeting(kind: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    (bytes[0], bytes[9], bytes[10]) = (0xff, 0x7f, 3);
    bytes[12..16].copy_from_slice(b"NULL");
    let ready = [b"\x05READY\x0bSocket-Type\0\0\0", &[kind.len() as u8][..], kind.as_bytes()].concat();
    bytes.extend([4, ready.len() as u8]);
    [bytes, ready].concat()
}

/// The beginning of a frame that announces so many bytes.
fn announced(bytes: u64) -> Vec<u8> {
    [&[2][..], &bytes.to_be_bytes()].concat()
}

fn connect(endpoint: &str) -> TcpStream {
    let stream = TcpStream::connect(endpoint.strip_prefix("tcp://").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether the other side ends the connection after these bytes, again and again.
fn is_cut_off(mut stream: TcpStream, first: &[u8], again: &[u8]) -> bool {
    let mut reader = stream.try_clone().unwrap();
    let read = thread::spawn(move || {
        let mut part = [0; 1 << 10];
        loop {
            match reader.read(&mut part) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) => break error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    });
    let _ = stream.write_all(first);
    for _ in 0..1 << 16 {
        if again.is_empty() || stream.write_all(again).is_err() {
            break;
        }
    }
    read.join().unwrap()
}

/// A subscriber that comes now gets everything.
fn goes_on(publisher: &Publisher, worker: &mut Worker) {
    worker.publish(publisher, 10);
    let replay = publisher.replay_endpoint().unwrap();
    let subscriber = Subscriber::builder(publisher.endpoint()).replay(replay).start().unwrap();
    let next = worker.recorder.next_seq();
    wait(&subscriber, "all batches", |follower| follower.next_seq() == Some(next));
    subscriber.with(|follower| assert_eq!(sorted(follower.holdings()), worker.names()));
}

/// `zeromq` would ask the system for as much as is announced, and end the process.
#[test]
fn what_a_stranger_announces_is_not_believed() {
    let mut worker = Worker::new();
    let publisher = Publisher::builder(ANY).replay(ANY).build().unwrap();
    let sides = [(publisher.endpoint(), "SUB"), (publisher.replay_endpoint().unwrap(), "DEALER")];
    for (endpoint, kind) in sides {
        for bytes in [1 << 17, 1 << 34, 1 << 44, u64::MAX >> 1, u64::MAX] {
            let first = [greeting(kind), announced(bytes)].concat();
            assert!(is_cut_off(connect(endpoint), &first, &[]), "{kind}: {bytes}");
            // Before it says what it is, too.
            let first = [&greeting(kind)[..64], &announced(bytes)].concat();
            assert!(is_cut_off(connect(endpoint), &first, &[]), "{kind}: {bytes} at once");
        }
    }
    goes_on(&publisher, &mut worker);
}

#[test]
fn what_a_stranger_sends_without_end_is_cut_off() {
    let mut worker = Worker::new();
    let publisher = Publisher::builder(ANY).replay(ANY).build().unwrap();
    let (endpoint, replay) = (publisher.endpoint(), publisher.replay_endpoint().unwrap());
    // A message of frames that each say that there is one more.
    assert!(is_cut_off(connect(endpoint), &greeting("SUB"), &[1, 1, 1]));
    assert!(is_cut_off(connect(replay), &greeting("DEALER"), &[1, 0]));
    // Subscriptions, each of which is kept.
    assert!(is_cut_off(connect(endpoint), &greeting("SUB"), b"\x00\x05\x01many"));
    goes_on(&publisher, &mut worker);
}

#[test]
fn a_publisher_hears_any_bytes_and_goes_on() {
    let mut worker = Worker::new();
    let publisher = Publisher::builder(ANY).replay(ANY).build().unwrap();
    let mut dice = fastrand::Rng::with_seed(11);
    let mut kept = Vec::new();
    for round in 0..200 {
        let (endpoint, kind) = if round % 2 == 0 {
            (publisher.endpoint(), "SUB")
        } else {
            (publisher.replay_endpoint().unwrap(), "DEALER")
        };
        let mut bytes = match round % 5 {
            0 => Vec::new(),
            1 => greeting(kind)[..dice.usize(..64)].to_vec(),
            2 => greeting("NONE"),
            _ => greeting(kind),
        };
        if round % 5 > 2 {
            (0..dice.usize(..40)).for_each(|_| bytes.push(dice.u8(..)));
        }
        let mut stream = connect(endpoint);
        // It may be cut off before its last byte.
        let _ = stream.write_all(&bytes);
        if round % 7 == 0 {
            kept.push(stream);
        }
    }
    goes_on(&publisher, &mut worker);
}

/// More of them than there may be peers, whether anything is published meanwhile or not.
#[test]
fn subscribers_that_do_not_read_lock_out_nobody() {
    let mut worker = Worker::new();
    let publisher = Publisher::builder(ANY).replay(ANY).build().unwrap();
    let subscribed = [&greeting("SUB")[..], b"\x00\x01\x01"].concat();
    let stuck: Vec<_> = [publisher.endpoint(), publisher.replay_endpoint().unwrap()]
        .repeat(200)
        .into_iter()
        .map(|endpoint| {
            let mut stream = connect(endpoint);
            stream.write_all(&subscribed).unwrap();
            stream
        })
        .collect();
    goes_on(&publisher, &mut worker);
    goes_on(&publisher, &mut worker);
    drop(stuck);
}

/// Requests that are none, beside one that is.
#[test]
fn what_is_no_request_is_passed_over() {
    let mut worker = Worker::new();
    let publisher = Publisher::builder(ANY).replay(ANY).build().unwrap();
    let mut asker = connect(publisher.replay_endpoint().unwrap());
    let number = |seq: u64| [&[1, 0, 0, 8][..], &seq.to_be_bytes()].concat();
    asker.write_all(&greeting("DEALER")).unwrap();
    // One frame; a number of seven bytes; three frames; no empty frame first.
    for wrong in
        [&b"\x00\x01x"[..], b"\x01\x00\x00\x071234567", b"\x01\x00\x01\x00\x00\x01x", b"\x01\x01y\x00\x0812345678"]
    {
        asker.write_all(wrong).unwrap();
    }
    asker.write_all(&number(u64::MAX)).unwrap();
    // The answer to the only request: that there is nothing.
    let mut answer = vec![0; greeting("ROUTER").len() + 16];
    asker.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[answer.len() - 16..], [&[1, 0, 1, 0, 1, 8][..], &wire::END, &[0, 0]].concat());
    goes_on(&publisher, &mut worker);
}

/// A publisher that announces a message without bound is cut off, and followed again.
#[test]
fn what_a_publisher_announces_is_not_believed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    let is_over = Arc::new(AtomicBool::new(false));
    let mut worker = Worker::new();
    let numbered = worker.batch();
    let liar = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let Numbered { seq, batch } = &numbered;
            let payload = wire::encode(batch, wire::Format::Maps);
            let message =
                [&[1, 0, 1, 8][..], &seq.to_be_bytes(), &[2], &(payload.len() as u64).to_be_bytes(), &payload].concat();
            let lies = [announced(1 << 44), announced(u64::MAX), [1, 0].repeat(1 << 21)];
            for round in 0.. {
                let (mut stream, _) = listener.accept().unwrap();
                if is_over.load(Relaxed) {
                    break;
                }
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let _ = stream.write_all(&greeting("PUB"));
                // Its greeting, what it is, and its subscription.
                let mut heard = vec![0; greeting("SUB").len() + 3];
                if stream.read_exact(&mut heard).is_err() {
                    continue;
                }
                match lies.get(round) {
                    Some(lie) => drop(is_cut_off(stream, lie, &[])),
                    // At last it tells the truth.
                    None => {
                        let _ = stream.write_all(&message);
                        let _ = stream.read(&mut heard);
                    }
                }
            }
        }
    });
    let subscriber = Subscriber::builder(endpoint.as_str()).start().unwrap();
    wait(&subscriber, "the truth", |follower| follower.next_seq() == Some(1));
    subscriber.with(|follower| assert_eq!(sorted(follower.holdings()), worker.names()));
    is_over.store(true, Relaxed);
    drop(subscriber);
    let _ = connect(&endpoint);
    liar.join().unwrap();
}
