//! Tiers over stores that hang, panic or do not reply, and callers whose buffers do the same.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    time::Instant,
};

use super::*;
use crate::{
    Failure, Miss, NotGot, Outcome,
    worker::{Reply, Step, Store},
};

/// A store that acts as the test tells it, once for each batch.
struct Scripted(Receiver<Act>);

enum Act {
    /// Waits until the sender is dropped, then answers nothing.
    Hang(Receiver<()>),
    Panic,
    /// The payload panics when it is dropped.
    PanicTwice,
    AnswerNothing,
    AnswerFirstThenPanic,
    /// As to a question whether the store has a key.
    AnswerThere,
    Answer,
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("as told");
    }
}

impl Store for Scripted {
    fn batch(&self) -> usize {
        4
    }

    fn carry_out(&mut self, steps: &[Step], reply: &mut dyn FnMut(usize, Reply<'_>)) {
        match self.0.recv().unwrap_or(Act::Answer) {
            Act::Hang(until) => drop(until.recv()),
            Act::Panic => panic!("as told"),
            Act::PanicTwice => std::panic::panic_any(PanicsWhenDropped),
            Act::AnswerNothing => {}
            Act::AnswerFirstThenPanic => {
                reply(0, Reply::Done);
                panic!("as told");
            }
            Act::AnswerThere => (0..steps.len()).for_each(|index| reply(index, Reply::Is(true))),
            Act::Answer => (0..steps.len()).for_each(|index| reply(index, Reply::Done)),
        }
    }

    fn discard(&mut self, _key: BlockKey, _why: Miss) {}
}

fn layout() -> Layout {
    Layout::new("m", "bf16", 1, 8).unwrap()
}

fn scripted<B: Buffer>(max_in_flight: usize, timeout: Duration) -> (Tier<B>, Sender<Act>) {
    let (acts, script) = channel();
    let mut tier = Tier::new(layout(), max_in_flight, timeout);
    tier.spawn("scripted", |queue, layout| worker::work(queue, layout, &mut Scripted(script))).unwrap();
    (tier, acts)
}

fn puts(count: u32) -> Vec<Put<Vec<u8>>> {
    let blocks = (0..count).map(|token| layout().blocks("", &[token]).remove(0));
    blocks.map(|block| Put { block, buffer: vec![7; 8], time_to_live: None }).collect()
}

fn gets(count: u32) -> Vec<Get<Vec<u8>>> {
    puts(count).into_iter().map(|put| Get { block: put.block, buffer: put.buffer }).collect()
}

fn drained<B: Buffer>(tier: &Tier<B>) -> Vec<Completion<B>> {
    let mut done = Vec::new();
    while tier.stats().in_flight > 0 {
        tier.poll(&mut done, Duration::from_secs(30));
    }
    done
}

#[test]
fn only_a_store_that_says_so_has_stored_or_removed() {
    let (tier, acts) = scripted(4, Duration::from_secs(60));
    for (act, expected) in [(Act::AnswerThere, Err(Failure::Protocol)), (Act::Answer, Ok(()))] {
        let key = puts(1)[0].block.key();
        acts.send(act).unwrap();
        tier.put_from(puts(1)).unwrap();
        let put = drained(&tier).remove(0).outcome;
        assert!(matches!(put, Outcome::Put(_, end) if end == expected), "{put:?}");
        acts.send(if expected.is_ok() { Act::Answer } else { Act::AnswerThere }).unwrap();
        tier.remove(vec![key]).unwrap();
        assert_eq!(drained(&tier).remove(0).outcome, Outcome::Removed(key, expected));
    }
    let stats = tier.stats();
    assert_eq!((stats.stored_blocks, stats.removed_blocks, stats.errors.protocol), (1, 1, 2));
}

// Holds: RT8.
#[test]
fn buffers_come_back_from_a_store_that_hangs() {
    let (tier, acts) = scripted(64, Duration::from_millis(30));
    let (release, until) = channel();
    acts.send(Act::Hang(until)).unwrap();
    tier.get_into(gets(10)).unwrap();
    tier.put_from(puts(2)).unwrap();
    let done = drained(&tier);
    assert_eq!(done.len(), 12);
    for end in &done {
        match &end.outcome {
            Outcome::Got(get, Err(NotGot::Failed(Failure::TimedOut))) => assert_eq!(get.buffer, [7; 8]),
            Outcome::Put(put, Err(Failure::TimedOut)) => assert_eq!(put.buffer, [7; 8]),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(tier.stats().errors.timed_out, 12);
    // Later requests are carried out once it replies, if they are still in time.
    drop((release, acts));
    while tier.stats().stored_blocks == 0 {
        tier.put_from(puts(1)).unwrap();
        drained(&tier);
    }
}

// Holds: RT8.
#[test]
fn a_store_that_panics_or_answers_nothing_keeps_nothing() {
    let (tier, acts) = scripted(64, Duration::from_secs(60));
    for act in [Act::Panic, Act::PanicTwice, Act::AnswerFirstThenPanic] {
        acts.send(act).unwrap();
        tier.put_from(puts(3)).unwrap();
        assert_eq!(drained(&tier).len(), 3);
    }
    assert_eq!((tier.stats().errors.panicked, tier.stats().stored_blocks), (8, 1));
    drop(acts);
    tier.put_from(puts(3)).unwrap();
    drained(&tier);
    assert_eq!(tier.stats().stored_blocks, 4);

    let (tier, acts) = scripted(64, Duration::from_millis(30));
    acts.send(Act::AnswerNothing).unwrap();
    tier.put_from(puts(3)).unwrap();
    assert_eq!((drained(&tier).len(), tier.stats().errors.timed_out), (3, 3));
}

// Holds: RT8.
#[test]
fn a_full_tier_says_the_numbers_and_gives_the_batch_back() {
    let (tier, acts) = scripted(10, Duration::from_secs(30));
    let refused = tier.put_from(puts(11)).unwrap_err();
    assert_eq!(refused.to_string(), "11 items in one batch, at most 10 may be in flight: use smaller batches");
    let (_hold, until) = channel();
    acts.send(Act::Hang(until)).unwrap();
    tier.put_from(puts(8)).unwrap();
    let refused = tier.get_into(gets(3)).unwrap_err();
    assert_eq!(refused.to_string(), "3 items requested, 8 of at most 10 are in flight: poll, then try again");
    assert_eq!(refused.batch, gets(3));
    tier.get_into(gets(2)).unwrap();
    let keys: Vec<_> = gets(2).iter().map(|get| get.block.key()).collect();
    assert_eq!(tier.contains(keys.clone()).unwrap_err().batch, keys);
    assert_eq!(tier.remove(keys.clone()).unwrap_err().batch, keys);
    assert_eq!((tier.stats().refused_batches, tier.stats().in_flight), (4, 10));
    // An empty batch puts nothing in flight.
    assert!(tier.get_into(Vec::new()).is_ok());
}

/// A completion that was not polled counts as in flight, so that memory is bounded even if the
/// caller does not poll.
// Holds: RT8.
#[test]
fn what_is_not_polled_stays_in_flight() {
    let (tier, acts) = scripted(4, Duration::from_secs(30));
    drop(acts);
    tier.put_from(puts(4)).unwrap();
    while tier.stats().stored_blocks < 4 {
        thread::yield_now();
    }
    assert!(matches!(tier.put_from(puts(1)).unwrap_err().reason, Refusal::Full { in_flight: 4, .. }));
    // A block counts as stored a moment before its completion can be polled.
    assert_eq!(drained(&tier).len(), 4);
    tier.put_from(puts(1)).unwrap();
}

#[test]
fn buffers_and_blocks_of_other_sizes_are_refused() {
    let (tier, _acts) = scripted(64, Duration::from_secs(30));
    let mut batch = puts(3);
    batch[1].buffer.pop();
    let refused = tier.put_from(batch).unwrap_err();
    assert_eq!(refused.to_string(), "the buffer of item 1 has 7 bytes, a block has 8");
    let other = Layout::new("m", "bf16", 1, 9).unwrap().blocks("", &[1]).remove(0);
    let refused = tier.get_into(vec![Get { block: other, buffer: vec![0; 8] }]).unwrap_err();
    assert_eq!(refused.to_string(), "the block of item 0 has another layout than the tier");
    assert_eq!((refused.batch.len(), tier.stats().in_flight), (1, 0));
}

/// A buffer whose methods act as the test tells them, once its request was submitted.
#[derive(Debug)]
struct Faulty {
    bytes: Vec<u8>,
    fault: &'static str,
    uses: std::cell::Cell<usize>,
}

impl Faulty {
    fn new(fault: &'static str) -> Self {
        Self { bytes: vec![7; 8], fault, uses: 0.into() }
    }
}

impl AsRef<[u8]> for Faulty {
    fn as_ref(&self) -> &[u8] {
        self.uses.set(self.uses.get() + 1);
        match self.fault {
            "panics" if self.uses.get() > 1 => panic!("as told"),
            "shrinks" if self.uses.get() > 1 => &self.bytes[..3],
            _ => &self.bytes,
        }
    }
}

impl AsMut<[u8]> for Faulty {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

// Holds: RT9.
#[test]
fn a_buffer_that_panics_or_shrinks_fails_alone() {
    let (tier, acts) = scripted(64, Duration::from_secs(30));
    drop(acts);
    let blocks: Vec<_> = gets(3).into_iter().map(|get| get.block).collect();
    let faults = ["panics", "none", "shrinks"].map(Faulty::new);
    let batch = blocks.into_iter().zip(faults).map(|(block, buffer)| Put { block, buffer, time_to_live: None });
    tier.put_from(batch.collect()).unwrap();
    for end in drained(&tier) {
        let Outcome::Put(put, end) = end.outcome else { panic!() };
        assert_eq!(end, if put.buffer.fault == "none" { Ok(()) } else { Err(Failure::Buffer) });
    }
}

// Holds: RT9.
#[test]
fn dropping_a_tier_waits_for_a_hanging_store_no_longer_than_its_timeout() {
    let (tier, acts) = scripted(64, Duration::from_millis(50));
    let (_hold, until) = channel();
    acts.send(Act::Hang(until)).unwrap();
    let buffer = Arc::new(());
    #[derive(Debug)]
    struct Counted(#[expect(dead_code, reason = "counts")] Arc<()>, [u8; 8]);
    impl AsRef<[u8]> for Counted {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }
    impl AsMut<[u8]> for Counted {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.1
        }
    }
    let batch = gets(20).into_iter().map(|get| Get { block: get.block, buffer: Counted(Arc::clone(&buffer), [0; 8]) });
    tier.get_into(batch.collect()).unwrap();
    let began = Instant::now();
    drop(tier);
    assert!(began.elapsed() < Duration::from_secs(20));
    // The hanging thread may hold four buffers.
    assert!(Arc::strong_count(&buffer) <= 5);
}

/// A buffer that keeps the tier alive: the last handle is dropped on the tier's own thread.
// Holds: RT9.
#[test]
fn a_tier_may_be_dropped_by_its_own_thread() {
    struct Keeps(Option<Arc<Tier<Keeps>>>, [u8; 8], Option<Sender<()>>);
    impl AsRef<[u8]> for Keeps {
        fn as_ref(&self) -> &[u8] {
            &self.1
        }
    }
    impl AsMut<[u8]> for Keeps {
        fn as_mut(&mut self) -> &mut [u8] {
            // Drops the buffer's handle of the tier while the thread copies.
            self.0 = None;
            let _ = self.2.take();
            &mut self.1
        }
    }
    struct Whole(Layout);
    impl Store for Whole {
        fn batch(&self) -> usize {
            1
        }

        fn carry_out(&mut self, steps: &[Step], reply: &mut dyn FnMut(usize, Reply<'_>)) {
            assert!(matches!(steps[0], Step::Fetch(..)));
            let mut object = vec![0; self.0.object_bytes()];
            crate::object::encode(&self.0, &self.0.blocks("", &[0])[0], 0, &[1; 8], &mut object).unwrap();
            reply(0, Reply::Object((&object[..]).into()));
        }

        fn discard(&mut self, _key: BlockKey, _why: Miss) {}
    }
    let mut tier = Tier::new(layout(), 4, Duration::from_secs(30));
    let (go, gate) = channel::<()>();
    tier.spawn("whole", move |queue, layout| {
        let _ = gate.recv();
        worker::work(queue, layout, &mut Whole(Layout::clone(layout)));
    })
    .unwrap();
    let tier = Arc::new(tier);
    let (dropped, seen) = channel();
    let buffer = Keeps(Some(Arc::clone(&tier)), [0; 8], Some(dropped));
    tier.get_into(vec![Get { block: layout().blocks("", &[0]).remove(0), buffer }]).unwrap_or_else(|_| panic!());
    drop(tier);
    drop(go);
    assert!(
        seen.recv_timeout(Duration::from_secs(20))
            .is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Disconnected)
    );
}
