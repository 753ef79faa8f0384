use radixkv::*;
use std::hint::black_box;
fn main() {
    let n: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let len: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let cache = PrefixCache::builder(16, 1000).build().unwrap();
    let s = cache.session();
    let ns = cache.default_namespace();
    let t: Vec<u32> = (0..len as u32).map(|i| i * 7 + len as u32).collect();
    let m = s.match_prefix(&ns, &t);
    let r = s.reserve(len / 16).unwrap();
    let _keep = s.insert(m.lease(), &t, r).unwrap();
    drop(m);
    let mut b = vec![];
    for _ in 0..n {
        black_box(s.match_prefix_into(&ns, black_box(&t), &mut b));
    }
}
