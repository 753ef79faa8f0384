//! Spans for the crate `tracing`, of what is off the hot path: the evictor's steps, settling, clearing, waits. Nothing at all
//! without the feature `tracing`.

/// Opens a span for the rest of the block.
macro_rules! within_span {
    ($name:literal) => {
        #[cfg(feature = "tracing")]
        let _span = tracing::debug_span!(target: "radixkv", $name).entered();
    };
}
pub(super) use within_span;

/// The span of a wait, which is open as long as this lives. No thread is within it: a task that waits may go from one to another.
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
