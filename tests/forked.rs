//! A child that is forked off the process has the cache and not the evictor's thread: it may drop its handles.
#![cfg(unix)]

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use radixkv::{Eviction, Lease, PrefixCache, Watermarks};

/// The child's end; a hang is one.
fn wait(child: &mut Child) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if let Some(status) = child.try_wait().expect("a child to wait for") {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("a child to end");
    child.wait().expect("a child to wait for");
    false
}

/// A cache with a thread, and a lease that keeps it after its handles have gone.
fn cached() -> (PrefixCache, Lease) {
    let thread = Eviction::Background(Watermarks { low: 2, high: 4 });
    let cache = PrefixCache::builder(4, 64).eviction(thread).build().expect("sound");
    let session = cache.session();
    let tokens: Vec<u32> = (0..16).collect();
    let miss = session.match_prefix(&cache.default_namespace(), &tokens);
    let inserted = session.insert(miss.lease(), &tokens, session.reserve(4).expect("room")).expect("fitting");
    (cache, inserted.lease)
}

/// Between `fork` and `exec` the child drops what is the last handle there too; the parent's cache goes on.
#[test]
fn a_forked_child_may_drop_the_last_handles() {
    let shared = Arc::new(Mutex::new(Some(cached())));
    let mut command = Command::new("true");
    let handles = Arc::clone(&shared);
    let drops = move || {
        drop(handles.lock().expect("no panic").take());
        Ok(())
    };
    #[allow(unsafe_code)]
    // SAFETY: the child uses locks of its own and the allocator's, which the C library takes in `fork`.
    unsafe {
        command.pre_exec(drops)
    };
    for _ in 0..4 {
        let mut child = command.spawn().expect("a child that comes as far as `exec`");
        assert!(wait(&mut child), "the child dropped the cache and went on");
    }
    let (cache, lease) = shared.lock().expect("no panic").take().expect("the child took its own");
    assert_eq!(lease.len_tokens(), 16);
    drop(lease);
    assert_eq!((cache.evict(4), cache.validate()), (4, Ok(())));
}
