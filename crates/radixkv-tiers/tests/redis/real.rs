//! A real server: contract, layouts, time to live, no room, and an end in the middle of the work.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use radixkv_tiers::{Failure, Layout, Miss, NotGot, OpenError, Outcome, RedisTier, RemoteTier, Tier};

use super::{
    common::{
        ABSENT, Bytes, PATIENCE, blocks, checked, completions, does_what_a_tier_does, get, get_all, layout,
        other_layouts, put, put_all,
    },
    server::Real,
};

fn open(server: &Real, layout: &Layout) -> Tier<Bytes> {
    RedisTier::new(server.url(), "kv", layout.clone()).timeout(PATIENCE).open().unwrap()
}

#[test]
fn a_tier_in_redis_does_what_a_tier_does() {
    let Some(server) = Real::start(&[]) else { return };
    let layouts = [vec![layout(1, 1), layout(16, 5000), layout(16, 3_000_000)], other_layouts()].concat();
    for (number, layout) in layouts.iter().enumerate() {
        let prefix = format!("kv:{number}");
        let open = || RedisTier::new(server.url(), &prefix, layout.clone()).timeout(PATIENCE).open::<Bytes>();
        let tier = open().unwrap();
        does_what_a_tier_does(&tier);
        // Shared by all that open it, and found again.
        let all = blocks(layout, 3);
        put_all(&tier, &all, None);
        drop(tier);
        assert_eq!(get_all(&open().unwrap(), &all), vec![Ok(()); 3]);
    }
}

#[test]
fn a_prefix_of_another_layout_is_refused_with_both_values() {
    let Some(server) = Real::start(&[]) else { return };
    drop(open(&server, &layout(16, 64)));
    let error = RedisTier::new(server.url(), "kv", layout(32, 64)).open::<Bytes>().unwrap_err().to_string();
    let place = server.url().replace("redis://", "").replace('/', "");
    let what = "holds blocks of block size \"16\", this layout has \"32\": open another place, or empty this one";
    assert_eq!(error, format!("{place} kv {what}"));
    RedisTier::new(server.url(), "other", layout(32, 64)).open::<Bytes>().unwrap();
    server.say("SET kv2:manifest text");
    server.say("LPUSH kv3:manifest text");
    for prefix in ["kv2", "kv3"] {
        let error = RedisTier::new(server.url(), prefix, layout(32, 64)).open::<Bytes>().unwrap_err();
        assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    }
}

#[test]
fn the_server_knows_the_time_to_live() {
    let Some(server) = Real::start(&[]) else { return };
    let layout = layout(16, 64);
    let (tier, all) = (open(&server, &layout), blocks(&layout, 3));
    put_all(&tier, &all[..1], Some(Duration::from_secs(1000)));
    put_all(&tier, &all[1..2], None);
    put_all(&tier, &all[2..], Some(Duration::MAX));
    let left = |index: usize| server.say(&format!("TTL kv:{}", all[index].key()));
    let seconds: i64 = left(0).trim_start_matches(':').trim().parse().unwrap();
    assert!((1..=1000).contains(&seconds), "{seconds}");
    assert_eq!((left(1), left(2)), (":-1\r\n".to_owned(), ":-1\r\n".to_owned()));
}

#[test]
fn what_others_wrote_under_a_key_is_a_miss() {
    let Some(server) = Real::start(&[]) else { return };
    let layout = layout(16, 3000);
    let (tier, all) = (open(&server, &layout), blocks(&layout, 4));
    put_all(&tier, &all[3..], None);
    let name = |index: usize| format!("kv:{}", all[index].key());
    server.say(&format!("SET {} text", name(0)));
    server.say(&format!("LPUSH {} text", name(1)));
    server.say(&format!("COPY {} {}", name(3), name(2)));
    // Far longer than an object; only a byte more than an object comes.
    let ends = get_all(&tier, &all);
    let torn = Miss::Torn { bytes: 4, expected: layout.object_bytes() };
    assert_eq!(ends, [Err(torn.into()), Err(Miss::NotAnObject.into()), Err(Miss::WrongKey.into()), Ok(())]);
    server.say(&format!("SETRANGE {} 100000 x", name(3)));
    let torn = Miss::Torn { bytes: layout.object_bytes() + 1, expected: layout.object_bytes() };
    assert_eq!(get_all(&tier, &all[3..]), [Err(NotGot::Miss(torn))]);
    put_all(&tier, &all, None);
    assert_eq!(get_all(&tier, &all), vec![Ok(()); 4]);
}

#[test]
fn a_server_without_room_or_that_asks_for_a_password_says_so() {
    let Some(server) = Real::start(&["--maxmemory", "3mb"]) else { return };
    let layout = layout(16, 200_000);
    let (tier, all) = (open(&server, &layout), blocks(&layout, 30));
    tier.put_from(all.iter().map(|block| put(block, &layout, None)).collect()).unwrap();
    let mut full = 0;
    for end in completions(&tier, 30) {
        match end.outcome {
            Outcome::Put(_, Ok(())) => {}
            Outcome::Put(_, Err(Failure::NoRoom)) => full += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(full > 0 && tier.stats().errors.no_room == full);
    assert!(get_all(&tier, &all).iter().all(|end| matches!(*end, Ok(()) | ABSENT)));

    let Some(server) = Real::start(&["--requirepass", "secret"]) else { return };
    let error = RedisTier::new(server.url(), "kv", layout.clone()).open::<Bytes>().unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }) && error.to_string().contains("uthentication"), "{error}");
    let with_password = server.url().replace("redis://", "redis://:secret@");
    let tier = RedisTier::new(with_password.clone(), "kv", layout.clone()).timeout(PATIENCE).open::<Bytes>().unwrap();
    put_all(&tier, &all[..1], None);
    let settings = RedisTier::new(with_password.replace("secret", "wrong"), "kv", layout);
    assert!(!format!("{settings:?} {}", settings.clone().open::<Bytes>().unwrap_err()).contains("wrong@"));
}

/// The server is killed and started again while two threads work: no wrong byte, no call that
/// waits, hits again after it.
#[test]
fn a_server_that_is_killed_and_restarted() {
    let Some(mut server) = Real::start(&[]) else { return };
    let layout = layout(16, 20_000);
    let tier = RedisTier::new(server.url(), "kv", layout.clone()).timeout(Duration::from_millis(500)).open().unwrap();
    let (all, stop, is_down) = (blocks(&layout, 50), AtomicBool::new(false), AtomicBool::new(false));
    let work = |seed| {
        let (mut random, mut done) = (fastrand::Rng::with_seed(seed), Vec::new());
        // Of calls while the server is there, and while it is not.
        let mut longest = [Duration::ZERO; 2];
        while !stop.load(Relaxed) {
            let block = random.choice(&all).unwrap();
            let (puts, gets) = (vec![put(block, &layout, None)], vec![get(block, &layout)]);
            let began = Instant::now();
            let _ = match random.bool() {
                true => tier.put_from(puts).is_ok(),
                false => tier.get_into(gets).is_ok(),
            };
            let longest = &mut longest[usize::from(is_down.load(Relaxed))];
            *longest = began.elapsed().max(*longest);
            tier.poll(&mut done, Duration::from_millis(1));
            for end in done.drain(..) {
                match &end.outcome {
                    Outcome::Got(..) => {
                        let got = checked(end, &layout);
                        assert!(matches!(got, Ok(()) | ABSENT | Err(NotGot::Failed(_))), "{got:?}");
                    }
                    Outcome::Put(..) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        println!("the longest call took {:?}, and {:?} without a server", longest[0], longest[1]);
    };
    thread::scope(|scope| {
        let workers = [1, 2].map(|seed| scope.spawn(move || work(seed)));
        let reached = |what: &str, is_so: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !is_so() {
                assert!(began.elapsed() < PATIENCE, "{what}: {:?}", tier.stats());
                assert!(!workers.iter().any(|worker| worker.is_finished()), "a worker ended");
                thread::sleep(Duration::from_millis(5));
            }
        };
        for _ in 0..3 {
            let hits = tier.stats().hits;
            reached("hits", &|| tier.stats().hits > hits + 20);
            let failed = tier.stats().errors.total();
            is_down.store(true, Relaxed);
            server.kill();
            reached("failures", &|| tier.stats().errors.total() > failed + 20);
            server.restart();
            is_down.store(false, Relaxed);
        }
        let hits = tier.stats().hits;
        reached("hits at the end", &|| tier.stats().hits > hits + 20);
        stop.store(true, Relaxed);
    });
    let stats = tier.stats();
    assert!(stats.errors.unreachable > 0 && stats.errors.protocol == 0 && stats.errors.panicked == 0, "{stats:?}");
    assert_eq!(stats.misses.total(), stats.misses.absent);
}

/// Started again, and taken by an engine of another layout: nothing is read or written under its
/// prefix.
#[test]
fn a_prefix_that_another_layout_took_meanwhile() {
    let Some(mut server) = Real::start(&[]) else { return };
    let layout = layout(16, 64);
    let (tier, all) = (open(&server, &layout), blocks(&layout, 1));
    put_all(&tier, &all, None);
    server.kill();
    server.restart();
    let other = RedisTier::new(server.url(), "kv", Layout::new("other", "bf16", 16, 64).unwrap());
    let _other = other.open::<Bytes>().unwrap();
    let began = Instant::now();
    loop {
        match get_all(&tier, &all)[0] {
            Err(NotGot::Failed(Failure::OtherLayout)) => break,
            Err(NotGot::Failed(Failure::Unreachable)) => assert!(began.elapsed() < PATIENCE),
            other => panic!("{other:?}"),
        }
    }
    assert!(tier.stats().errors.other_layout > 0);
}
