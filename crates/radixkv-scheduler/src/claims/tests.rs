use radixkv::{Namespace, PrefixCache, Token};

use super::*;
use crate::request::testing::numbered;

const BLOCK: usize = 4;

fn space() -> (PrefixCache, Namespace) {
    let cache = PrefixCache::builder(BLOCK, 1).build().expect("sound");
    let space = cache.default_namespace();
    (cache, space)
}

/// `shared` tokens of a common prompt, then `own` others.
fn prompt(shared: Token, own: Token) -> Vec<Token> {
    (0..shared).chain(1_000..1_000 + own).collect()
}

#[test]
fn a_waiter_waits_for_the_deepest_block_shared_and_no_longer() {
    let (_cache, space) = space();
    let mut claims = PrefixClaims::default();
    assert_eq!(claims.claim(SequenceId(1), &numbered(1, &space, &prompt(40, 0)), 0, BLOCK), ClaimReply::Granted);
    let mut id = 9;
    let mut waits = |claims: &mut PrefixClaims, shared, own, cached| {
        id += 1;
        let asks = numbered(id, &space, &prompt(shared, own));
        let asked = claims.claim(SequenceId(99), &asks, cached, BLOCK);
        assert!(claims.give_up(SequenceId(99)).is_empty());
        (asked == ClaimReply::Waits).then_some(asks)
    };
    assert!(waits(&mut claims, 3, 9, 0).is_none(), "less than a block is shared");
    assert!(waits(&mut claims, 18, 9, 16).is_none(), "what is shared is cached");
    let [short, long] = [(18, 9), (40, 1)].map(|(shared, own)| waits(&mut claims, shared, own, 0).expect("waits"));
    // The last token is always computed, so only nine of the ten blocks are useful.
    let equal = waits(&mut claims, 40, 0, 0).expect("waits");
    assert!(claims.commit(SequenceId(1), 12).is_empty());
    assert!(Arc::ptr_eq(&claims.commit(SequenceId(1), 16)[0], &short));
    assert!(waits(&mut claims, 18, 9, 0).is_none(), "what is shared is committed");
    assert!(Arc::ptr_eq(&claims.commit(SequenceId(1), 36)[0], &equal));
    assert!(Arc::ptr_eq(&claims.commit(SequenceId(1), 40)[0], &long));
    assert!(waits(&mut claims, 40, 4, 0).is_none(), "the claim is done");
    assert!(claims.pending.is_empty() && claims.waits.is_empty());
}

#[test]
fn claims_that_no_request_can_use_keep_none_waiting() {
    let (cache, space) = space();
    let mut claims = PrefixClaims::default();
    let mut secret = numbered(1, &space, &prompt(40, 0));
    Arc::get_mut(&mut secret).expect("alone").ticket.publish = false;
    assert_eq!(claims.claim(SequenceId(1), &secret, 0, BLOCK), ClaimReply::Granted);
    let other = cache.namespace(&["other"]);
    assert_eq!(claims.claim(SequenceId(2), &numbered(2, &other, &prompt(40, 0)), 0, BLOCK), ClaimReply::Granted);
    assert_eq!(claims.claim(SequenceId(3), &numbered(3, &space, &prompt(40, 0)), 0, BLOCK), ClaimReply::Granted);
    // A request that publishes nothing waits like others.
    assert_eq!(claims.claim(SequenceId(4), &secret, 0, BLOCK), ClaimReply::Waits);
    assert_eq!(claims.give_up(SequenceId(3)).len(), 1);
    claims.forget(secret.ticket.id);
}

#[test]
fn a_claim_given_up_wakes_all_but_those_that_are_gone() {
    let (_cache, space) = space();
    let mut claims = PrefixClaims::default();
    assert_eq!(claims.claim(SequenceId(1), &numbered(1, &space, &prompt(40, 0)), 0, BLOCK), ClaimReply::Granted);
    let asks: Vec<_> = (0..3).map(|own| numbered(2 + u64::from(own), &space, &prompt(20, own))).collect();
    for asks in &asks {
        assert_eq!(claims.claim(SequenceId(2), asks, 0, BLOCK), ClaimReply::Waits);
    }
    claims.forget(asks[1].ticket.id);
    claims.forget(SequenceId(99));
    let woken = claims.give_up(SequenceId(1));
    assert!(woken.len() == 2 && Arc::ptr_eq(&woken[0], &asks[0]) && Arc::ptr_eq(&woken[1], &asks[2]));
    assert!(claims.give_up(SequenceId(1)).is_empty());
}
