use radixkv::*;
fn main() {
    let n: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let e: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let cache = PrefixCache::builder(16, n).clock(Clock::Logical).build().unwrap();
    let s = cache.session();
    let ns = cache.default_namespace();
    for i in 0..n as u32 {
        cache.set_time(u64::from(i.wrapping_mul(0x9e37_79b9)));
        let t: Vec<u32> = (0..16u32).map(|j| i.wrapping_mul(0x9e37_79b9) ^ (j * 77 + 1)).collect();
        let m = s.match_prefix(&ns, &t);
        let r = s.reserve(1).unwrap();
        drop(s.insert(m.lease(), &t, r));
    }
    cache.settle();
    for _ in 0..e {
        assert_eq!(cache.evict(1), 1);
    }
}
