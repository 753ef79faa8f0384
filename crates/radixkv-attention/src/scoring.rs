//! The scoring options of a model besides the softmax scale. Every batch has a [`Scoring`].

use crate::layout::Layout;
use crate::shape::ShapeError;

/// How a model turns scaled products into scores: sliding window, soft-cap, ALiBi slopes, sinks,
/// and masks for trees of drafted tokens. The default has none of these.
///
/// With scores `s = scale * (q . k)` for the tokens that a row sees, the row's output is the mean
/// of their values, weighted by `exp(s)`. The source of [`cpu`](crate::cpu) defines every sum, and
/// every backend must follow it; a backend that cannot compute an option refuses the batch.
///
/// A plain struct: its fields are independent, and all of them have a default.
///
/// ```
/// use radixkv_attention::Scoring;
///
/// // Every row sees itself and the 1,023 tokens before it.
/// let sliding = Scoring { window: Some(1024), ..Scoring::default() };
/// assert_eq!(sliding.seen(5000), 3976..5000);
/// assert_eq!(Scoring::default().seen(5000), 0..5000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Scoring<'a> {
    /// Number of tokens that a row sees: itself and those right before it; `None` means all. Layers
    /// with another window need a separate batch.
    pub window: Option<u32>,
    /// Bounds scores smoothly: `s` becomes `soft_cap * tanh(s / soft_cap)`.
    pub soft_cap: Option<f32>,
    /// An additional score for each query head, `[layers, query heads]`, or empty. Its weight
    /// counts in the sum and in the log-sum-exp, and has no value. Negative infinity means no sink.
    pub sinks: &'a [f32],
    /// ALiBi slopes, `[query heads]`, or empty: `slope * (position - key)` is subtracted from a
    /// score after the soft-cap, with the positions of the row and of the key in the sequence.
    pub alibi_slopes: &'a [f32],
    /// For speculation: a mask for each row, `[rows]`, or empty. If bit `i` is set, the row sees
    /// the `i`-th row of its sequence, in addition to all tokens before these rows; a row sees
    /// itself and no later row. Such a sequence has at most 32 rows, and there are no slopes. A
    /// window has at least 32 tokens, and counts from the row as if it followed directly the tokens
    /// that it sees.
    pub trees: &'a [u32],
}

impl Scoring<'_> {
    /// The range of tokens that a row attends to, if `end` is the first token that it does not see.
    pub fn seen(&self, end: usize) -> std::ops::Range<usize> {
        self.window.map_or(0, |window| end.saturating_sub(window as usize))..end
    }

    /// Whether the scoring is the default.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn check(&self, layout: &Layout, query_heads: usize) -> Result<(), ShapeError> {
        if self.window == Some(0) {
            return Err(ShapeError::Zero { what: "window" });
        }
        if let Some(soft_cap) = self.soft_cap.filter(|cap| !(cap.is_finite() && *cap > 0.0)) {
            return Err(ShapeError::SoftCap { soft_cap });
        }
        let (given, needed) = (self.sinks.len(), layout.layers * query_heads);
        if given != 0 && given != needed {
            return Err(ShapeError::Length { what: "sinks", given, needed });
        }
        let (given, needed) = (self.alibi_slopes.len(), query_heads);
        if given != 0 && given != needed {
            return Err(ShapeError::Length { what: "ALiBi slopes", given, needed });
        }
        if let Some(&slope) = self.alibi_slopes.iter().find(|slope| !slope.is_finite()) {
            return Err(ShapeError::Slope { slope });
        }
        Ok(())
    }
}
