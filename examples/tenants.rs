//! 3. Tenants: quotas on the blocks that a tenant may cache and pin, a change of the policy at run
//!    time, and the removal of idle prefixes.
//!
//! `cargo run --example tenants`

use std::error::Error;
use std::time::Duration;

use radixkv::{BlockRequest, Clock, Namespace, PolicyKind, PrefixCache, Quota, ReserveError, Session, Token};

/// Serves `prompt` as an engine would. Returns the number of blocks that it had to compute, or the
/// reason for a refusal.
fn serve(session: &Session, tenant: &Namespace, prompt: &[Token]) -> Result<usize, ReserveError> {
    let hit = session.match_prefix(tenant, prompt);
    let missing = prompt.len() / 16 - hit.blocks().len();
    let fill = session.reserve(BlockRequest::new(missing).paid_by(tenant))?;
    let inserted = session.insert(hit.lease(), prompt, fill);
    drop(inserted.expect("whole blocks beyond the lease"));
    Ok(missing)
}

fn main() -> Result<(), Box<dyn Error>> {
    let builder = PrefixCache::builder(16, 64).clock(Clock::Logical);
    let cache = builder.time_to_idle(Duration::from_nanos(100)).build()?;
    let session = cache.session();
    let [greedy, modest] = ["greedy", "modest"].map(|name| cache.namespace(&[name]));
    greedy.set_quota(Quota::default().cached_blocks(24).pinned_blocks(16));
    let prompt = |key: Token, blocks: Token| -> Vec<Token> { (0..16 * blocks).map(|i| key << 16 | i).collect() };
    let show = |what: &str| {
        let [greedy, modest] = [&greedy, &modest].map(|tenant| tenant.stats().cached_blocks);
        println!("{what:<48} {greedy:>6} {modest:>6}");
    };
    println!("{:<48} {:>6} {:>6}", "blocks cached by", "greedy", "modest");

    // 1. Ten prompts of eight blocks would fill the cache. The quota makes them replace the
    //    tenant's own earlier prompts.
    serve(&session, &modest, &prompt(100, 20))?;
    for key in 0..10 {
        cache.set_time(u64::from(key));
        serve(&session, &greedy, &prompt(key, 8))?;
    }
    show("ten prompts of eight blocks");

    // 2. A request for more blocks than the tenant may pin is refused, even if blocks are free. The
    //    error says why.
    let refused = serve(&session, &greedy, &prompt(77, 17)).expect_err("more than it may pin");
    println!("refused: {refused}");
    assert_eq!(refused, ReserveError::OverQuota { requested: 17, pinned: 0, limit: 16 });

    // 3. Changes the policy; no thread waits for the change.
    cache.settings().set_policy(PolicyKind::Lfu);
    serve(&session, &greedy, &prompt(9, 8))?;
    show("under lfu, one prompt served again");

    // 4. A prefix that was not used for a hundred units of the clock is removed by `settle`, or by
    //    the background evictor.
    cache.set_time(110);
    serve(&session, &modest, &prompt(100, 20))?;
    cache.settle();
    show("a hundred units later, modest served again");
    println!("{} blocks were evicted, {} were too old", cache.stats().evicted_blocks, cache.stats().aged_blocks);
    Ok(())
}
