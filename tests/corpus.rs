//! Replays the kept corpus of every fuzz target: fuzz/corpus/<target>, without a fuzzer.

#[path = "model/driver.rs"]
mod driver;
#[path = "../fuzz/src/key.rs"]
mod key;
#[path = "model/step.rs"]
mod step;
#[path = "model/subject.rs"]
mod subject;
#[path = "../fuzz/src/trace.rs"]
mod trace;
#[path = "../fuzz/src/verbs.rs"]
mod verbs;

use std::fs;
use std::path::Path;

/// Runs `target` on each of its files, and names the one that fails.
fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("a corpus is kept for every target") {
        let path = entry.expect("a file").path();
        let data = fs::read(&path).expect("readable");
        files += 1;
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            panic!("{} fails, see above", path.display());
        }
    }
    assert!(files >= 10, "{files} files are no corpus");
}

#[test]
fn verbs_agree_with_the_reference() {
    replay("verbs", verbs::run);
}

#[test]
fn the_trace_reader_survives_garbage() {
    replay("trace", trace::run);
}

#[test]
fn keys_compare_as_the_plain_loop_does() {
    replay("key", key::run);
}
