//! Servers that do everything wrong: no wrong byte, no panic, and no request that never ends.

use std::{net::TcpListener, time::Duration};

use radixkv_tiers::{Failure, Layout, NotGot, OpenError, Outcome, RedisTier, RemoteTier, Tier};

use super::{
    common::{Bytes, PATIENCE, blocks, checked, completions, get, layout, put},
    server::{Act, strange},
};

/// How long a request takes that gets no answer.
const BRIEF: Duration = Duration::from_millis(700);

/// What a proper server says to the commands that open a tier.
fn opening(command: &[Vec<u8>], layout: &Layout) -> Option<Act> {
    let is_manifest = command.get(1).is_some_and(|name| name.ends_with(b":manifest"));
    match &command[0][..] {
        b"GETRANGE" if is_manifest => {
            let manifest = manifest(layout);
            Some(Act::Say(format!("${}\r\n{manifest}\r\n", manifest.len()).into_bytes()))
        }
        b"ECHO" => Some(Act::Say([format!("${}\r\n", command[1].len()).as_bytes(), &command[1], b"\r\n"].concat())),
        b"GETRANGE" | b"EXISTS" | b"DEL" => None,
        b"SET" if !is_manifest => None,
        _ => Some(Act::Say(b"+OK\r\n".to_vec())),
    }
}

fn manifest(layout: &Layout) -> String {
    // As a tier of files writes it.
    let folder = tempfile::tempdir().unwrap();
    radixkv_tiers::FileTier::new(folder.path(), layout.clone(), 1 << 20).open::<Bytes>().unwrap();
    std::fs::read_to_string(folder.path().join("manifest")).unwrap()
}

/// A tier over a server that opens it and then does what `act` says.
fn over(act: impl Fn(&[Vec<u8>]) -> Act + Send + Sync + Clone + 'static) -> Tier<Bytes> {
    within(PATIENCE, act)
}

/// The same, with little patience: for what is silent.
fn within(timeout: Duration, act: impl Fn(&[Vec<u8>]) -> Act + Send + Sync + Clone + 'static) -> Tier<Bytes> {
    let layout = layout(4, 64);
    let told = layout.clone();
    let address = strange(move |command| opening(command, &told).unwrap_or_else(|| act(command)));
    let settings = RedisTier::new(format!("redis://{address}/"), "kv", layout).connections(1);
    settings.timeout(timeout).open().unwrap()
}

/// Everything at once, then one after another; what came of the gets.
fn ends(tier: &Tier<Bytes>) -> Vec<NotGot> {
    let layout = tier.layout().clone();
    let all = blocks(&layout, 3);
    tier.get_into(all.iter().map(|block| get(block, &layout)).collect()).unwrap();
    tier.put_from(all.iter().map(|block| put(block, &layout, None)).collect()).unwrap();
    tier.contains(all.iter().map(|block| block.key()).collect()).unwrap();
    tier.remove(all.iter().map(|block| block.key()).collect()).unwrap();
    let mut done = completions(tier, 12);
    let gets = done.drain(..3).map(|end| checked(end, &layout).unwrap_err());
    gets.collect()
}

#[test]
fn no_server_is_said() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = RedisTier::new(format!("redis://127.0.0.1:{port}/"), "kv", layout(4, 64)).open::<Bytes>().unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    assert!(error.to_string().starts_with(&format!("127.0.0.1:{port} kv: Connection refused")), "{error}");
    let error = RedisTier::new("no address", "kv", layout(4, 64)).open::<Bytes>().unwrap_err();
    assert!(error.to_string().starts_with("the Redis address: "), "{error}");
    // It is there, and silent.
    let address = strange(|_| Act::BeSilent);
    let silent = RedisTier::new(format!("redis://{address}/"), "kv", layout(4, 64)).timeout(Duration::from_millis(100));
    assert!(matches!(silent.open::<Bytes>().unwrap_err(), OpenError::Io { .. }));
}

#[test]
fn garbage_is_a_failure() {
    let garbage: [&[u8]; 15] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"$5\r\nab",
        b"$99999999999999999999\r\n",
        b"$9223372036854775807\r\nabc",
        b"*2000000000\r\n",
        b"*1000000000000000000\r\n:1\r\n",
        b"%9223372036854775807\r\n",
        b"~4611686018427387904\r\n",
        b"|1\r\n",
        b":99999999999999999999999\r\n",
        b"\0\0\0\0",
        b"+\r\n",
        b"-\r\n",
        b"=-1\r\nabc",
        b"\xff\xfe\r\n",
    ];
    for bytes in garbage {
        for closes in [true, false] {
            let act = move |_: &[Vec<u8>]| match closes {
                true => Act::SayAndClose(bytes.to_vec()),
                false => Act::Say(bytes.to_vec()),
            };
            let tier = within(BRIEF, act);
            for end in ends(&tier) {
                assert!(matches!(end, NotGot::Failed(_)), "{:?}: {end:?}", String::from_utf8_lossy(bytes));
            }
            assert_eq!(tier.stats().errors.panicked, 0);
            assert_eq!(tier.stats().hits, 0);
        }
    }
}

#[test]
fn nested_garbage_ends() {
    let tier = over(|_| Act::SayAndClose(b"*1\r\n".repeat(100_000)));
    assert!(ends(&tier).iter().all(|end| matches!(end, NotGot::Failed(_))));
}

#[test]
fn an_object_that_stops_half_way_or_is_another_is_no_hit() {
    let whole = format!("${}\r\n{}\r\n", 184, "x".repeat(184)).into_bytes();
    let tier = over(move |_| Act::SayAndClose(whole[..100].to_vec()));
    assert!(ends(&tier).iter().all(|end| matches!(end, NotGot::Failed(_))));
    let tier = over(|_| Act::Say(format!("${}\r\n{}\r\n", 184, "x".repeat(184)).into_bytes()));
    assert!(ends(&tier).iter().all(|end| matches!(end, NotGot::Miss(_))));
    assert_eq!(tier.stats().misses.not_an_object, 3);
    // Errors of the server's are answers.
    for (text, failure) in
        [("-LOADING x", Failure::Unreachable), ("-NOPERM x", Failure::Denied), ("-ERR x", Failure::Denied)]
    {
        let tier = over(move |_| Act::Say(format!("{text}\r\n").into_bytes()));
        assert_eq!(ends(&tier), vec![NotGot::Failed(failure); 3]);
    }
}

/// Whatever an error says, nothing was stored or removed.
#[test]
fn an_error_for_one_command_is_a_failure_of_its_request() {
    for (text, failure) in
        [("-WRONGTYPE x", Failure::Denied), ("-OOM x", Failure::NoRoom), ("-ASK 1 x", Failure::Unreachable)]
    {
        // To each second command of an exchange.
        let number = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let tier = over(move |command| {
            let is_error = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2 == 1;
            match &command[0][..] {
                _ if is_error => Act::Say(format!("{text}\r\n").into_bytes()),
                b"SET" => Act::Say(b"+OK\r\n".to_vec()),
                _ => Act::Say(b":1\r\n".to_vec()),
            }
        });
        let layout = tier.layout().clone();
        let all = blocks(&layout, 4);
        let keys = || all.iter().map(|block| block.key()).collect::<Vec<_>>();
        tier.put_from(all.iter().map(|block| put(block, &layout, None)).collect()).unwrap();
        let puts = completions(&tier, 4);
        tier.remove(keys()).unwrap();
        let removed = completions(&tier, 4);
        tier.contains(keys()).unwrap();
        let contained = completions(&tier, 4);
        for (index, ends) in puts.into_iter().zip(removed).zip(contained).enumerate() {
            let ((put, removed), contained) = ends;
            let expected = if index % 2 == 1 { Err(failure) } else { Ok(()) };
            assert!(matches!(put.outcome, Outcome::Put(_, end) if end == expected), "{text}: {:?}", put.outcome);
            assert_eq!(removed.outcome, Outcome::Removed(all[index].key(), expected), "{text}");
            assert_eq!(contained.outcome, Outcome::Contained(all[index].key(), expected.map(|()| true)), "{text}");
        }
        let stats = tier.stats();
        assert_eq!((stats.stored_blocks, stats.removed_blocks, stats.errors.total()), (2, 2, 6), "{text}");
    }
}

#[test]
fn a_server_that_dribbles_or_is_silent_holds_no_request() {
    for dribbles in [true, false] {
        let tier = within(BRIEF, move |_| match dribbles {
            // Each byte comes in time, and all of them do not.
            true => Act::Dribble(b"$184\r\n".iter().copied().chain([b'x'; 100]).collect(), Duration::from_millis(50)),
            false => Act::BeSilent,
        });
        assert!(ends(&tier).iter().all(|end| matches!(end, NotGot::Failed(_))));
        assert!(tier.stats().errors.timed_out > 0);
        assert_eq!(tier.stats().in_flight, 0);
    }
}

#[test]
fn a_reply_too_many_is_taken_for_no_answer_to_the_next_request() {
    let replies = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let tier = over(move |_| match replies.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => Act::Say(b":1\r\n:1\r\n".to_vec()),
        _ => Act::Say(b":0\r\n".to_vec()),
    });
    let key = blocks(tier.layout(), 1)[0].key();
    let answers = [(); 4].map(|()| {
        tier.contains(vec![key]).unwrap();
        completions(&tier, 1).remove(0).outcome
    });
    let contained = |answer| Outcome::Contained(key, answer);
    assert_eq!(answers[0], contained(Ok(true)));
    assert!(matches!(answers[1], Outcome::Contained(_, Err(_))), "{answers:?}");
    assert_eq!(answers[2..], [contained(Ok(false)), contained(Ok(false))]);
}
