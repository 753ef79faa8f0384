//! What a model does with scores beside scaling them.

use crate::layout::Layout;
use crate::shape::ShapeError;

/// The scoring of a model in addition to the softmax scale: sliding window, soft-cap, ALiBi slopes, sinks; and which rows of a
/// tree of drafted tokens see which. The default is none of them.
///
/// With scores `s = scale * (q . k)` of the tokens that a row sees, its output is the mean of their values, weighted by
/// `exp(s)`. The definition, sum by sum, is in the source of [`cpu`](crate::cpu), and every backend is held to it; one that
/// cannot compute one of these refuses the batch.
///
/// Plain: its fields are independent, and all of them have a default.
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
    /// Tokens that a row sees, itself and those right before it; without, all. Layers with other windows take a batch of
    /// their own.
    pub window: Option<u32>,
    /// Bounds scores smoothly: `s` becomes `soft_cap * tanh(s / soft_cap)`.
    pub soft_cap: Option<f32>,
    /// One more score for each query head, whose weight counts in the sum and in the log-sum-exp and which has no value:
    /// `[layers, query heads]`, or empty. Negative infinity is none.
    pub sinks: &'a [f32],
    /// ALiBi: for each query head what is taken from a score, after the soft-cap, for each token that lies between the key and
    /// the row: `slope * (position - key)`. `[query heads]`, or empty.
    pub alibi_slopes: &'a [f32],
    /// For speculation: a mask of each row, `[rows]`, or empty. Bit `i` of it says that the row sees the `i`-th row of its
    /// sequence, beside all tokens before these; a row sees itself and none after itself. A sequence has 32 rows at most then. There are
    /// no slopes, and the window, of 32 tokens at least, counts from the row as if it followed the tokens that it sees.
    pub trees: &'a [u32],
}

impl Scoring<'_> {
    /// The range of tokens that a row attends to if it attends to none from `end` on.
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
