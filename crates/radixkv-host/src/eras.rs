//! Clear epochs: they tell which arriving blocks left their cache before a clear, and must not be
//! stored. Used by `offload` and `kept_out`.
//!
//! A block may leave its cache just before its namespace is cleared, and arrive here after the
//! tier's own part of the clear. So an offload records the epoch when it begins, before a block is
//! evicted for it, and each namespace records the epoch since which its blocks are accepted. An
//! epoch is the number of clears so far.

use std::collections::{BTreeMap, HashMap};

use radixkv::NamespaceName;

#[derive(Debug, Default)]
pub(crate) struct Eras {
    now: u64,
    /// Namespaces that are kept out, each with the number of its `KeptOut` values.
    kept_out: HashMap<NamespaceName, usize>,
    /// How many `KeptOut` values keep all namespaces out.
    all_kept_out: usize,
    /// The epoch since which a namespace is let in, while an older offload is in progress.
    let_in: HashMap<NamespaceName, u64>,
    /// The epoch of the last clear of everything.
    cleared: u64,
    /// The number of offloads in progress, by the epoch in which they began.
    offloads: BTreeMap<u64, usize>,
    /// The latest epoch that was removed from `let_in`.
    forgotten: u64,
}

impl Eras {
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Begins an offload of blocks that left their cache in epoch `at`.
    pub(crate) fn begin(&mut self, at: u64) {
        *self.offloads.entry(at).or_default() += 1;
    }

    /// Ends an offload that began in epoch `began`.
    pub(crate) fn end(&mut self, began: u64) {
        if let Some(count) = self.offloads.get_mut(&began) {
            *count -= 1;
            if *count == 0 {
                self.offloads.remove(&began);
            }
        }
        self.forget();
    }

    /// Whether blocks of a namespace may be stored by an offload that began in epoch `began`.
    pub(crate) fn allows(&self, namespace: &NamespaceName, began: u64) -> bool {
        // A namespace without an entry was let in at `cleared` or `forgotten` at the latest. No
        // older offload was in progress when its entry was removed; one that begins later with an
        // older epoch is rejected, because its namespace's epoch is no longer known.
        let since = self.let_in.get(namespace).copied().unwrap_or(self.cleared.max(self.forgotten));
        began >= since && self.all_kept_out == 0 && !self.kept_out.contains_key(namespace)
    }

    pub(crate) fn keep_out(&mut self, namespace: &NamespaceName) {
        *self.kept_out.entry(namespace.clone()).or_default() += 1;
    }

    pub(crate) fn let_in(&mut self, namespace: &NamespaceName) {
        if let Some(count) = self.kept_out.get_mut(namespace) {
            *count -= 1;
            if *count > 0 {
                return;
            }
        }
        self.kept_out.remove(namespace);
        self.now += 1;
        self.let_in.insert(namespace.clone(), self.now);
        self.forget();
    }

    pub(crate) fn keep_all_out(&mut self) {
        self.all_kept_out += 1;
    }

    /// Ends one `keep_all_out`. Offloads that began earlier store nothing.
    pub(crate) fn let_all_in(&mut self) {
        self.all_kept_out -= 1;
        self.now += 1;
        self.cleared = self.now;
        self.let_in.clear();
    }

    /// Keeps only the entries that are newer than the oldest offload in progress.
    fn forget(&mut self) {
        let oldest = self.offloads.first_key_value().map_or(u64::MAX, |(&began, _)| began);
        self.let_in.retain(|_, since| {
            let is_kept = *since > oldest;
            if !is_kept {
                self.forgotten = self.forgotten.max(*since);
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Holds: HT12.
    #[test]
    fn what_began_before_a_namespace_was_let_in_stays_out() {
        let cache = radixkv::PrefixCache::builder(1, 1).build().expect("a cache");
        let [one, two] = ["one", "two"].map(|name| cache.namespace(&[name]).name());
        let mut eras = Eras::default();
        let begin = |eras: &mut Eras| {
            eras.begin(eras.now());
            eras.now()
        };
        let before = begin(&mut eras);
        eras.keep_out(&one);
        eras.keep_out(&one);
        let between = begin(&mut eras);
        eras.let_in(&one);
        assert!(!eras.allows(&one, between), "it is kept out for another reason");
        eras.let_in(&one);
        let after = begin(&mut eras);
        assert_eq!([before, between, after].map(|began| eras.allows(&one, began)), [false, false, true]);
        assert_eq!([before, between, after].map(|began| eras.allows(&two, began)), [true; 3]);
        eras.end(before);
        assert!(!eras.allows(&one, between));
        eras.end(between);
        assert!(eras.let_in.is_empty(), "no offload is older");
        for _ in 0..2 {
            eras.keep_all_out();
        }
        let between = begin(&mut eras);
        eras.let_all_in();
        assert!(!eras.allows(&two, eras.now), "all are kept out for another reason");
        eras.let_all_in();
        assert_eq!([after, between, eras.now].map(|began| eras.allows(&two, began)), [false, false, true]);
    }

    #[test]
    fn what_left_its_cache_before_a_clear_that_is_forgotten_stays_out() {
        let cache = radixkv::PrefixCache::builder(1, 1).build().expect("a cache");
        let [one, two] = ["one", "two"].map(|name| cache.namespace(&[name]).name());
        let mut eras = Eras::default();
        let evicted = eras.now();
        // No offload is in progress.
        eras.keep_out(&one);
        eras.let_in(&one);
        assert!(eras.let_in.is_empty());
        eras.begin(evicted);
        assert_eq!(
            [&one, &two].map(|name| eras.allows(name, evicted)),
            [false; 2],
            "it is not known which was cleared"
        );
        let now = eras.now();
        eras.begin(now);
        assert_eq!([&one, &two].map(|name| eras.allows(name, now)), [true; 2]);
    }
}
