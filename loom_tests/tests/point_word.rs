#![cfg(radixkv_loom)]
#[test]
fn t() { radixkv::PrefixCache::builder(1, 4).build().unwrap(); }
