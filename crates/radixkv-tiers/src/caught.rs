//! Calls into code of other packages, which may panic.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Calls `act`; `None` if it panics. The panic hook has reported the panic.
///
/// Dropping a panic's payload may panic as well: then that payload is leaked.
pub fn caught<R>(act: impl FnOnce() -> R) -> Option<R> {
    let payload = match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => return Some(result),
        Err(payload) => payload,
    };
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(again);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dropping it panics, with another one.
    struct Nested(u32);

    impl Drop for Nested {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Nested(self.0 - 1));
            }
        }
    }

    #[test]
    fn no_payload_panics_in_the_caller() {
        assert_eq!(caught(|| 7), Some(7));
        (0..4).for_each(|depth| assert_eq!(caught(|| std::panic::panic_any(Nested(depth))), None::<()>));
    }
}
