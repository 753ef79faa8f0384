//! The kept corpus of the fuzz target that reads a model's directory, without a fuzzer.

#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/src/model.rs"]
mod model;

use std::path::Path;

#[test]
fn a_directory_of_garbage_is_refused_by_the_name_of_its_file() {
    corpus::replay(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus"), "model", model::run);
}
