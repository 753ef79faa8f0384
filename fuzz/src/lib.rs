//! What each fuzz target does with its bytes.
//!
//! tests/corpus.rs and the engine's tests take in the same files, and replay fuzz/corpus through
//! them without a fuzzer.

#[path = "../../tests/model/driver.rs"]
mod driver;
pub mod key;
pub mod model;
#[path = "../../tests/model/step.rs"]
mod step;
#[path = "../../tests/model/subject.rs"]
mod subject;
pub mod trace;
pub mod verbs;
