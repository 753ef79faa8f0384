//! The layout of keys and values in memory: element types, sizes, strides and indices.
//!
//! Backends compute every position in their storage from a [`Layout`].

use std::fmt;
use std::str::FromStr;

use crate::shape::ShapeError;
use radixkv::BlockId;

/// The type of a stored element.
///
/// ```
/// use radixkv_attention::Dtype;
///
/// assert_eq!("bf16".parse(), Ok(Dtype::Bf16));
/// assert_eq!((Dtype::Bf16.to_string(), Dtype::Bf16.bytes()), ("bf16".to_owned(), 2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// 32 bits, IEEE 754.
    F32,
    /// 16 bits, IEEE 754: 5 of exponent, 10 of fraction.
    F16,
    /// 16 bits: the upper half of an `F32`.
    Bf16,
    /// 8 bits: an integer from -127 to 127, times a scale. Each head of each token has one scale
    /// for its key and one for its value. See [`element::quantize`](crate::element::quantize) for
    /// the stored form.
    I8,
    /// 8 bits, the `E4M3FN` of FP8: 4 of exponent, 3 of fraction, up to 448, no infinities; times a
    /// scale for each head of each token, as with [`I8`](Self::I8). See
    /// [`element::quantize_e4m3`](crate::element::quantize_e4m3).
    E4m3,
    /// As [`I8`](Self::I8), but with one scale for each head of a layer's keys, and one for each
    /// head of its values. The caller sets these static scales; they are 1 at first.
    I8Static,
    /// As [`E4m3`](Self::E4m3), with the static scales of [`I8Static`](Self::I8Static).
    E4m3Static,
}

/// Order of tokens and heads within a block.
///
/// ```
/// use radixkv_attention::{Dtype, Layout, Order};
///
/// let (dtype, order) = (Dtype::F16, Order::Nhd);
/// let nhd = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
/// assert_eq!((nhd.token_stride(), nhd.head_stride()), (2 * 64, 64));
/// let hnd = Layout { order: Order::Hnd, ..nhd };
/// assert_eq!((hnd.token_stride(), hnd.head_stride()), (64, 16 * 64));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Order {
    /// Tokens, then heads: `[block_size, kv_heads, head_dim]`. The heads of a token are adjacent.
    #[default]
    Nhd,
    /// Heads, then tokens: `[kv_heads, block_size, head_dim]`. The tokens of a head are adjacent.
    Hnd,
    /// Latent vectors, for multi-head latent attention (MLA) in its absorbed form:
    /// `[block_size, head_dim]`. Each token has one vector. The vector is the token's key for all
    /// query heads, at most [`MAX_LATENT_HEADS`](crate::MAX_LATENT_HEADS), and its first
    /// `value_dim` elements are the token's value. So `kv_heads` is 1, no values are stored beside
    /// the keys, and operations that append take no values.
    ///
    /// ```
    /// use radixkv_attention::{Dtype, Half, Layout, Order};
    ///
    /// // DeepSeek-V3 and Kimi K2: 512 elements that keys and values are computed from, and 64 with rotary positions.
    /// let (dtype, order) = (Dtype::Bf16, Order::Latent);
    /// let layout = Layout { layers: 61, blocks: 4096, block_size: 64, kv_heads: 1, head_dim: 576, value_dim: 512, dtype, order };
    /// assert_eq!(layout.check(), Ok(()));
    /// assert_eq!(layout.bytes() / (61 * 4096 * 64), 1152); // bytes of a token in a layer
    /// assert_eq!(layout.halves(), [Half::Keys]);
    /// ```
    Latent,
}

/// A half of the storage: the keys or the values.
///
/// ```
/// use radixkv_attention::{Dtype, Half, Layout, Order};
///
/// let (dtype, order) = (Dtype::F16, Order::Nhd);
/// let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
/// let [keys, values] = [Half::Keys, Half::Values].map(|half| layout.index(0, half, 0, 0, 0));
/// assert_eq!((keys, values), (0, layout.plane_elements()));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// Keys.
    Keys,
    /// Values.
    Values,
}

/// Shape of the paged keys and values:
/// `layers x {keys, values} x blocks x block_size x kv_heads x head_dim` elements, `block_size` and
/// `kv_heads` in the order that [`Order`] names; values have `value_dim` in place of `head_dim`.
/// Latent vectors ([`Order::Latent`]) are stored only as keys.
///
/// A *plane* is one layer's keys, or its values: `blocks x block_size x kv_heads x head_dim`
/// elements. The methods about a plane, a block or a token describe keys; [`of`](Self::of) gives
/// the layout that describes values.
///
/// A plain struct without a constructor: no field has a default, because each follows from the
/// model or the cache, and a literal names the six sizes. A new element type or order will be a new
/// variant of [`Dtype`] or [`Order`].
///
/// ```
/// use radixkv_attention::{Dtype, Layout, Order};
///
/// // Qwen3 0.6B in 4,096 blocks of 16 tokens: 7.5 GB.
/// let (dtype, order) = (Dtype::Bf16, Order::Nhd);
/// let layout = Layout { layers: 28, blocks: 4096, block_size: 16, kv_heads: 8, head_dim: 128, value_dim: 128, dtype, order };
/// assert_eq!(layout.check(), Ok(()));
/// assert_eq!(layout.bytes(), 7_516_192_768);
/// // Half of the blocks: half of the bytes.
/// assert_eq!(Layout { blocks: 2048, ..layout }.bytes(), layout.bytes() / 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Layers of the model.
    pub layers: usize,
    /// Blocks: the cache's capacity.
    pub blocks: usize,
    /// Tokens in a block: the cache's block size.
    pub block_size: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Elements of a head of keys, and of queries: a multiple of 4, or of 8 if an element has 8
    /// bits.
    pub head_dim: usize,
    /// Elements of a head of values, and of outputs: mostly the same as `head_dim`.
    pub value_dim: usize,
    /// Type of an element.
    pub dtype: Dtype,
    /// Order within a block.
    pub order: Order,
}

impl Dtype {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I8 | Self::E4m3 | Self::I8Static | Self::E4m3Static => 1,
        }
    }

    /// Whether elements are multiplied by a scale when they are read.
    pub fn has_scales(self) -> bool {
        self.bytes() == 1
    }

    /// Whether the caller sets the scales, one for each head of a layer, and the backend computes
    /// none.
    ///
    /// ```
    /// use radixkv_attention::Dtype;
    ///
    /// assert!(Dtype::E4m3Static.has_static_scales() && Dtype::E4m3Static.has_scales());
    /// assert!(!Dtype::E4m3.has_static_scales() && Dtype::E4m3.has_scales() && !Dtype::Bf16.has_scales());
    /// ```
    pub fn has_static_scales(self) -> bool {
        matches!(self, Self::I8Static | Self::E4m3Static)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
            Self::E4m3 => "e4m3",
            Self::I8Static => "i8-static",
            Self::E4m3Static => "e4m3-static",
        })
    }
}

/// An unknown name of an element type.
///
/// ```
/// use radixkv_attention::{Dtype, UnknownDtype};
///
/// assert_eq!("int8".parse::<Dtype>(), Err(UnknownDtype));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownDtype;

impl fmt::Display for UnknownDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown element type: use f32, f16, bf16, i8, e4m3, i8-static or e4m3-static")
    }
}

impl std::error::Error for UnknownDtype {}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(name: &str) -> Result<Self, UnknownDtype> {
        match name {
            "f32" => Ok(Self::F32),
            "f16" => Ok(Self::F16),
            "bf16" => Ok(Self::Bf16),
            "i8" => Ok(Self::I8),
            "e4m3" => Ok(Self::E4m3),
            "i8-static" => Ok(Self::I8Static),
            "e4m3-static" => Ok(Self::E4m3Static),
            _ => Err(UnknownDtype),
        }
    }
}

impl Layout {
    /// Checks that no size is zero, heads are a multiple of 4 elements (8, if these have 8 bits),
    /// ids can name every block, and the bytes fit into an address space. A layout of latent
    /// vectors must have one vector for each token, no shorter than its value.
    ///
    /// # Errors
    ///
    /// The first of these conditions that does not hold.
    ///
    /// ```
    /// # use radixkv_attention::{Dtype, Layout, Order, ShapeError};
    /// # let (dtype, order) = (Dtype::F16, Order::Nhd);
    /// let layout = Layout { layers: 0, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
    /// assert_eq!(layout.check(), Err(ShapeError::Zero { what: "layers" }));
    /// ```
    pub fn check(&self) -> Result<(), ShapeError> {
        let named = [
            ("layers", self.layers),
            ("blocks", self.blocks),
            ("block_size", self.block_size),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("value_dim", self.value_dim),
        ];
        if let Some((what, _)) = named.into_iter().find(|(_, size)| *size == 0) {
            return Err(ShapeError::Zero { what });
        }
        // No two heads share a 64-bit word, and 32-bit elements are read four at a time.
        let multiple = (8 / self.dtype.bytes()).max(4);
        if let Some(head_dim) = [self.head_dim, self.value_dim].into_iter().find(|dim| dim % multiple != 0) {
            return Err(ShapeError::HeadDim { head_dim, multiple });
        }
        if !self.has_values() && (self.kv_heads != 1 || self.value_dim > self.head_dim) {
            let Self { kv_heads, head_dim, value_dim, .. } = *self;
            return Err(ShapeError::Latent { kv_heads, head_dim, value_dim });
        }
        let widest =
            self.head_dim.max(self.value_dim).checked_mul(self.dtype.bytes()).and_then(|row| row.checked_add(4));
        let rows = named[..4].iter().try_fold(2_usize, |rows, (_, size)| rows.checked_mul(*size));
        let bytes = widest.zip(rows).and_then(|(widest, rows)| rows.checked_mul(widest));
        if self.blocks > BlockId::MAX as usize || bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(ShapeError::TooLarge { blocks: self.blocks });
        }
        Ok(())
    }

    /// Returns the layout whose methods describe the planes of this half: for `Half::Keys` the
    /// layout itself, for `Half::Values` one whose `head_dim` is that of values.
    ///
    /// ```
    /// # use radixkv_attention::{Dtype, Half, Layout, Order};
    /// # let (dtype, order) = (Dtype::F16, Order::Nhd);
    /// let layout = Layout { layers: 2, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 192, value_dim: 128, dtype, order };
    /// assert_eq!(layout.of(Half::Keys).row_elements(), 2 * 192);
    /// assert_eq!(layout.of(Half::Values).row_elements(), 2 * 128);
    /// assert_eq!(layout.elements(), 2 * 8 * 16 * 2 * (192 + 128));
    /// ```
    #[must_use]
    pub fn of(&self, half: Half) -> Self {
        match half {
            Half::Keys => *self,
            // The sizes are swapped, since the longer one is the token stride of latent vectors.
            Half::Values => Self { head_dim: self.value_dim, value_dim: self.head_dim, ..*self },
        }
    }

    /// Whether values are stored beside keys. The value of a latent vector is a part of its key:
    /// [`Order::Latent`].
    pub fn has_values(&self) -> bool {
        self.order != Order::Latent
    }

    /// The halves for which each layer has a plane.
    pub fn halves(&self) -> &'static [Half] {
        if self.has_values() { &[Half::Keys, Half::Values] } else { &[Half::Keys] }
    }

    /// Elements that a token appends to a half: `kv_heads * head_dim` keys, and
    /// `kv_heads * value_dim` values, or 0 values to latent vectors.
    ///
    /// ```
    /// # use radixkv_attention::{Dtype, Half, Layout, Order};
    /// # let (dtype, order) = (Dtype::F16, Order::Nhd);
    /// let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 1, head_dim: 192, value_dim: 128, dtype, order };
    /// assert_eq!([Half::Keys, Half::Values].map(|half| layout.appended_elements(half)), [192, 128]);
    /// let latent = Layout { order: Order::Latent, ..layout };
    /// assert_eq!([Half::Keys, Half::Values].map(|half| latent.appended_elements(half)), [192, 0]);
    /// ```
    pub fn appended_elements(&self, half: Half) -> usize {
        if self.halves().contains(&half) { self.of(half).row_elements() } else { 0 }
    }

    /// Elements of one token in a plane: `kv_heads * head_dim`.
    ///
    /// ```
    /// # use radixkv_attention::{Dtype, Layout, Order};
    /// # let (dtype, order) = (Dtype::F16, Order::Nhd);
    /// let layout = Layout { layers: 2, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
    /// assert_eq!(layout.row_elements(), 2 * 64);
    /// assert_eq!(layout.block_elements(), 16 * layout.row_elements());
    /// assert_eq!(layout.plane_elements(), 8 * layout.block_elements());
    /// assert_eq!(layout.elements(), 2 * 2 * layout.plane_elements()); // layers, keys and values
    /// ```
    pub fn row_elements(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Elements of one block in a plane: `block_size * row_elements`.
    pub fn block_elements(&self) -> usize {
        self.block_size * self.row_elements()
    }

    /// Elements of a plane, which is one layer's keys or its values: `blocks * block_elements`.
    pub fn plane_elements(&self) -> usize {
        self.blocks * self.block_elements()
    }

    /// Elements of all planes.
    pub fn elements(&self) -> usize {
        let planes = self.halves().iter().map(|half| self.of(*half).plane_elements());
        self.layers * planes.sum::<usize>()
    }

    /// Number of scales of all planes, four bytes each. 8-bit elements have one for each head of
    /// each token, or one for each head if scales are static; other elements have none.
    pub fn scales(&self) -> usize {
        let of_a_token = self.halves().len() * self.layers * self.kv_heads;
        match self.dtype {
            Dtype::I8 | Dtype::E4m3 => of_a_token * self.blocks * self.block_size,
            Dtype::I8Static | Dtype::E4m3Static => of_a_token,
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => 0,
        }
    }

    /// Checks the static scales of a layer's keys or values: one for each head, or one for all.
    /// Returns one for each head.
    ///
    /// # Errors
    ///
    /// If the element type has no static scales, there is no such layer, the number of scales is
    /// wrong, or a scale is not positive and finite.
    ///
    /// ```
    /// # use radixkv_attention::{Dtype, Layout, Order, ShapeError};
    /// # let (dtype, order) = (Dtype::I8Static, Order::Nhd);
    /// let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
    /// assert_eq!(layout.static_scales(0, &[0.5]).map(Iterator::collect), Ok(vec![0.5, 0.5]));
    /// let error = ShapeError::Length { what: "scales", given: 3, needed: 2 };
    /// assert_eq!(layout.static_scales(0, &[0.5; 3]).err(), Some(error));
    /// ```
    pub fn static_scales<'a>(
        &self,
        layer: usize,
        scales: &'a [f32],
    ) -> Result<impl Iterator<Item = f32> + use<'a>, ShapeError> {
        let Self { layers, kv_heads, dtype, .. } = *self;
        if !dtype.has_static_scales() {
            return Err(ShapeError::NotStatic { dtype });
        }
        if layer >= layers {
            return Err(ShapeError::Layer { layer, layers });
        }
        if scales.len() != kv_heads && scales.len() != 1 {
            return Err(ShapeError::Length { what: "scales", given: scales.len(), needed: kv_heads });
        }
        if let Some(&scale) = scales.iter().find(|scale| !(scale.is_finite() && **scale > 0.0)) {
            return Err(ShapeError::KvScale { scale });
        }
        Ok(scales.iter().copied().cycle().take(kv_heads))
    }

    /// Bytes of all planes and scales.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.bytes() + self.scales() * size_of::<f32>()
    }

    /// Number of slots. A slot is the position of one token:
    /// `block * block_size + offset in the block`.
    ///
    /// ```
    /// # use radixkv_attention::{Dtype, Layout, Order};
    /// # let (dtype, order) = (Dtype::F16, Order::Nhd);
    /// let layout = Layout { layers: 1, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
    /// assert_eq!(layout.slots(), 8 * 16);
    /// ```
    pub fn slots(&self) -> u64 {
        self.blocks as u64 * self.block_size as u64
    }

    /// Elements from one token to the next, in the same head and block.
    pub fn token_stride(&self) -> usize {
        match self.order {
            Order::Nhd => self.row_elements(),
            Order::Hnd => self.head_dim,
            Order::Latent => self.head_dim.max(self.value_dim),
        }
    }

    /// Elements from one head to the next, in the same token.
    pub fn head_stride(&self) -> usize {
        match self.order {
            Order::Nhd | Order::Latent => self.head_dim,
            Order::Hnd => self.block_size * self.head_dim,
        }
    }

    /// Index of the first element of a head. The arguments must be within the layout; this is not
    /// checked.
    ///
    /// ```
    /// # use radixkv_attention::{Dtype, Half, Layout, Order};
    /// # let (dtype, order) = (Dtype::F16, Order::Nhd);
    /// let layout = Layout { layers: 2, blocks: 8, block_size: 16, kv_heads: 2, head_dim: 64, value_dim: 64, dtype, order };
    /// let (block, token, head) = (3, 5, 1);
    /// let index = layout.index(0, Half::Values, block, token, head);
    /// assert_eq!(index, layout.plane_elements() + 3 * layout.block_elements() + 5 * 128 + 64);
    /// ```
    pub fn index(&self, layer: usize, half: Half, block: BlockId, token: usize, head: usize) -> usize {
        if !self.has_values() {
            return ((layer * self.blocks + block as usize) * self.block_size + token) * self.token_stride();
        }
        let (values, ours) = (self.of(Half::Values), self.of(half));
        let keys_before = match half {
            Half::Keys => layer,
            Half::Values => layer + 1,
        };
        keys_before * self.plane_elements()
            + layer * values.plane_elements()
            + block as usize * ours.block_elements()
            + token * ours.token_stride()
            + head * ours.head_stride()
    }
}

#[cfg(test)]
mod tests;
