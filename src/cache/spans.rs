//! Spans for the crate `tracing`, for work off the hot path: the evictor's steps, settling,
//! clearing, waits. Without the feature `tracing` they compile to nothing.

/// Opens a span for the rest of the block. Open it under no lock: the subscriber is the caller's
/// code.
macro_rules! within_span {
    ($name:literal) => {
        #[cfg(feature = "tracing")]
        let _span = tracing::debug_span!(target: "radixkv", $name).entered();
    };
}
pub(super) use within_span;

/// The span of a wait, open as long as this lives. No thread enters it, because a waiting task may
/// move between threads.
#[derive(Debug)]
pub(super) struct WaitSpan {
    #[cfg(feature = "tracing")]
    _span: tracing::Span,
}

impl WaitSpan {
    pub(super) fn open() -> Self {
        Self {
            #[cfg(feature = "tracing")]
            _span: tracing::debug_span!(target: "radixkv", "wait"),
        }
    }
}
