//! Panics that a test expects, and that its output says nothing of.

use std::cell::Cell;
use std::panic;
use std::path::Path;
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `test` without a word of the panics in libraries on this thread; those of the engine and of
/// its tests are told.
pub(crate) fn quietly<T>(test: impl FnOnce() -> T) -> T {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |told| {
            // The sources of this repository have relative paths.
            let in_library = told.location().is_some_and(|place| Path::new(place.file()).is_absolute());
            if !(QUIET.get() && in_library) {
                hook(told);
            }
        }));
    });
    struct Until;
    impl Drop for Until {
        fn drop(&mut self) {
            QUIET.set(false);
        }
    }
    QUIET.set(true);
    let _until = Until;
    test()
}
