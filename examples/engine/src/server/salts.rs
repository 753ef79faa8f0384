//! Maps the request field `cache_salt` to namespaces of the cache.
//!
//! Salts keep clients from learning each other's prompts by timing: a prefix that another client
//! has computed is answered sooner. A client that chooses its own salt could use another client's
//! salt. So with untrusted tenants, a gateway must set the field and discard the client's value.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use radixkv::{Namespace, PrefixCache};
use radixkv_host::TieredCache;

use super::retention::Retention;

/// Maximum number of salts. Beyond it, the least recently used salt that is not in use is dropped,
/// with its cached blocks.
const REMEMBERED: usize = 1_024;

/// A namespace that a request uses. The namespace is not dropped while this exists.
#[derive(Debug, Clone)]
pub(super) struct Salt {
    pub(super) namespace: Namespace,
    _in_use: Arc<()>,
}

#[derive(Debug)]
struct Remembered {
    salt: Salt,
    used: u64,
}

pub(super) struct Salts {
    cache: PrefixCache,
    tiers: Option<TieredCache>,
    retention: Arc<Retention>,
    remembered: Mutex<(u64, HashMap<String, Remembered>)>,
}

impl Salts {
    /// Creates an empty map. `tiers` is the cache over a host tier, if there is one; `retention` is
    /// told which namespaces are dropped.
    pub(super) fn new(cache: PrefixCache, tiers: Option<TieredCache>, retention: Arc<Retention>) -> Self {
        Self { cache, tiers, retention, remembered: Mutex::default() }
    }

    /// The namespace of a salt. Requests without a salt share the default namespace.
    pub(super) fn salt(&self, salt: Option<&str>) -> Salt {
        let made = |namespace| Salt { namespace, _in_use: Arc::default() };
        let Some(salt) = salt else { return made(self.cache.default_namespace()) };
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let (uses, salts) = &mut *remembered;
        *uses += 1;
        if !salts.contains_key(salt) && salts.len() >= REMEMBERED {
            let idle = salts.iter().filter(|(_, known)| Arc::strong_count(&known.salt._in_use) == 1);
            if let Some(oldest) = idle.min_by_key(|(_, known)| known.used).map(|(name, _)| name.clone()) {
                let dropped = salts.remove(&oldest).expect("it was found");
                match &self.tiers {
                    Some(tiers) => tiers.drop_namespace(&dropped.salt.namespace),
                    None => dropped.salt.namespace.remove(),
                }
                self.retention.forget(&dropped.salt.namespace);
            }
        }
        let namespace = || self.cache.namespace(&["cache_salt", salt]);
        let known = salts.entry(salt.to_owned()).or_insert_with(|| Remembered { salt: made(namespace()), used: *uses });
        known.used = *uses;
        known.salt.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_dropped_salt_leaves_the_budget_of_what_is_retained() {
        const DAY: Duration = Duration::from_secs(86_400);
        let cache = PrefixCache::builder(4, 8).build().expect("a cache");
        let retention = Arc::new(Retention::new(2, 4));
        let salts = Salts::new(cache.clone(), None, Arc::clone(&retention));
        let session = cache.session();
        let protected_after = |salt: &str| {
            let namespace = salts.salt(Some(salt)).namespace;
            let miss = session.match_prefix(&namespace, &[1; 8]);
            let blocks = session.reserve(2).expect("blocks");
            drop(session.insert(miss.lease(), &[1; 8], blocks).expect("an insert"));
            drop(miss);
            retention.used(&session, &namespace, &[1; 8], Some((8, DAY)));
            cache.stats().protected_blocks
        };
        assert_eq!((protected_after("a"), protected_after("b")), (2, 2), "the budget is of two blocks");
        (0..REMEMBERED).for_each(|salt| drop(salts.salt(Some(&format!("salt {salt}")))));
        assert_eq!(protected_after("c"), 2, "the first is dropped");
    }

    #[test]
    fn salts_are_namespaces_and_no_more_are_remembered_than_are_allowed() {
        let cache = PrefixCache::builder(4, 8).build().expect("a cache");
        let salts = Salts::new(cache.clone(), None, Arc::new(Retention::new(0, 4)));
        let (a, b) = (salts.salt(Some("a")), salts.salt(Some("b")));
        assert!(a.namespace == salts.salt(Some("a")).namespace && a.namespace != b.namespace);
        assert!(salts.salt(None).namespace == cache.default_namespace());
        drop(b);
        (0..2 * REMEMBERED).for_each(|salt| drop(salts.salt(Some(&format!("salt {salt}")))));
        let remembered = salts.remembered.lock().expect("no panic");
        assert_eq!(remembered.1.len(), REMEMBERED);
        // The salt in use stays.
        assert!(remembered.1.contains_key("a") && !remembered.1.contains_key("b"));
    }
}
