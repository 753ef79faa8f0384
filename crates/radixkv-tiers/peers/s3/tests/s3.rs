//! A tier in S3, over HTTP to a server on this machine: contract, layouts, and an end in the middle
//! of the work.

#[path = "../../../tests/common/mod.rs"]
mod common;
mod server;

use std::time::Duration;

use common::{ABSENT, PATIENCE, blocks, checked, completions, does_what_a_tier_does, get, layout, put, put_all};
use radixkv_tiers::{NotGot, Outcome, RemoteTier};
use server::Server;

#[test]
fn a_tier_in_s3_does_what_a_tier_does() {
    let server = Server::start();
    let small = layout(16, 5000);
    does_what_a_tier_does(&server.open(&small, PATIENCE).unwrap());
    let error = server.open(&layout(32, 5000), PATIENCE).unwrap_err().to_string();
    assert!(error.contains("holds blocks of block size \"16\", this layout has \"32\""), "{error}");
    // Found again.
    let all = blocks(&small, 3);
    put_all(&server.open(&small, PATIENCE).unwrap(), &all, None);
    assert_eq!(common::get_all(&server.open(&small, PATIENCE).unwrap(), &all), vec![Ok(()); 3]);
}

/// The server is killed in the middle of the work, and forgets everything: failures, then misses,
/// then hits; no wrong byte.
#[test]
fn a_server_that_is_killed_and_restarted() {
    let mut server = Server::start();
    let layout = layout(16, 100_000);
    let tier = server.open(&layout, Duration::from_secs(2)).unwrap();
    let all = blocks(&layout, 16);
    put_all(&tier, &all, None);
    tier.get_into(all.iter().map(|block| get(block, &layout)).collect()).unwrap();
    server.kill();
    tier.get_into(all.iter().map(|block| get(block, &layout)).collect()).unwrap();
    tier.put_from(all.iter().map(|block| put(block, &layout, None)).collect()).unwrap();
    let mut failed = 0;
    for end in completions(&tier, 48) {
        match &end.outcome {
            Outcome::Got(..) => match checked(end, &layout) {
                Ok(()) => {}
                Err(NotGot::Failed(_)) => failed += 1,
                other => panic!("{other:?}"),
            },
            Outcome::Put(_, Err(_)) => failed += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(failed >= 32, "{failed}");
    server.restart();
    // A put that was on its way may have arrived.
    assert!(common::get_all(&tier, &all).iter().all(|end| matches!(*end, Ok(()) | ABSENT)));
    put_all(&tier, &all, None);
    assert_eq!(common::get_all(&tier, &all), vec![Ok(()); 16]);
    println!("{:?}", tier.stats());
}
