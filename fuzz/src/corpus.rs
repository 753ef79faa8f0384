//! Replaying what is kept of a target's inputs, without a fuzzer.

use std::fs;
use std::path::Path;

/// Runs `target` on each file of `corpus`, which lies in the folder of the corpora, and names the
/// one that fails.
pub fn replay(corpora: &Path, corpus: &str, target: fn(&[u8])) {
    let mut files = 0;
    for entry in fs::read_dir(corpora.join(corpus)).expect("a corpus is kept for every target") {
        let path = entry.expect("a file").path();
        let data = fs::read(&path).expect("readable");
        files += 1;
        if std::panic::catch_unwind(|| target(&data)).is_err() {
            panic!("{} fails, see above", path.display());
        }
    }
    assert!(files >= 10, "{files} files are no corpus");
}
