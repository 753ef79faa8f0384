//! Replays the stored corpus of the core's fuzz targets (fuzz/corpus/<target>) without a fuzzer.

#[path = "../fuzz/src/corpus.rs"]
mod corpus;
#[path = "model/driver.rs"]
mod driver;
#[path = "../fuzz/src/key.rs"]
mod key;
#[path = "model/step.rs"]
mod step;
#[path = "model/subject.rs"]
mod subject;
#[path = "../fuzz/src/verbs.rs"]
mod verbs;

use std::path::Path;

fn replay(name: &str, target: fn(&[u8])) {
    corpus::replay(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus"), name, target);
}

#[test]
fn verbs_agree_with_the_reference() {
    replay("verbs", verbs::run);
}

// Holds: MA3.
#[test]
fn keys_compare_as_the_plain_loop_does() {
    replay("key", key::run);
}
