//! Replays the kept corpus of the trace reader's fuzz target: fuzz/corpus/trace, without a fuzzer.

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/trace.rs"]
mod trace;

use std::path::Path;

// Holds: RP7.
#[test]
fn the_trace_reader_survives_garbage() {
    corpus::replay(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus"), "trace", trace::run);
}
