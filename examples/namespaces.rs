//! 2. Namespaces: the same tokens under two adapters share nothing, and one can be dropped without
//!    the other.
//!
//! `cargo run --example namespaces`

use std::error::Error;

use radixkv::{Namespace, PrefixCache, Session, Token};

/// Caches `prompt` in a namespace as an engine would, and keeps no lease.
fn serve(session: &Session, space: &Namespace, prompt: &[Token]) -> Result<(), Box<dyn Error>> {
    let hit = session.match_prefix(space, prompt);
    let fill = session.reserve(prompt.len() / 16 - hit.blocks().len())?;
    drop(session.insert(hit.lease(), prompt, fill)?);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let cache = PrefixCache::builder(16, 64).build()?;
    let session = cache.session();
    // Make these handles once, not per request: a name is looked up under a lock. Names are
    // compared part by part.
    let base = cache.default_namespace();
    let adapter = cache.namespace(&["lora-7"]);
    let tenant = cache.namespace(&["lora-7", "tenant-a"]);
    let prompt: Vec<Token> = (0..160).collect();

    println!("{:<36} {:>6} {:>8} {:>8} {:>6}", "", "base", "adapter", "tenant", "free");
    let show = |what: &str| {
        let [base, adapter, tenant] = [&base, &adapter, &tenant].map(|space| session.peek(space, &prompt));
        let free = cache.stats().free_blocks;
        println!("{what:<36} {base:>6} {adapter:>8} {tenant:>8} {free:>6}");
    };

    // 1. A prefix cached in one namespace is not found in any other.
    serve(&session, &base, &prompt)?;
    show("cached for the base model");
    serve(&session, &adapter, &prompt)?;
    serve(&session, &tenant, &prompt[..80])?;
    show("and for the adapter and a tenant");

    // 2. Clearing frees idle blocks at once, and leased blocks when their leases are released.
    let held = session.match_prefix(&tenant, &prompt[..48]);
    tenant.clear();
    show("tenant cleared, three blocks leased");
    drop(held);
    cache.settle();
    show("the lease released");

    // 3. A removed namespace matches nothing and refuses inserts; its name may be used again.
    adapter.remove();
    show("adapter dropped");
    Ok(())
}
