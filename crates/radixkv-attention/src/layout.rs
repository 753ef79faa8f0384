//! Where a key or a value lies in memory.

use std::fmt;
use std::str::FromStr;

use super::ShapeError;
use radixkv::BlockId;

/// Type of a stored element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// 32 bits, IEEE 754.
    F32,
    /// 16 bits, IEEE 754: 5 of exponent, 10 of fraction.
    F16,
    /// 16 bits: the upper half of an `F32`.
    Bf16,
}

/// Which comes first within a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Order {
    /// Tokens, then heads: `[block_size, kv_heads, head_dim]`. A token's heads lie together.
    #[default]
    Nhd,
    /// Heads, then tokens: `[kv_heads, block_size, head_dim]`. A head's tokens lie together.
    Hnd,
}

/// Which half of the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Half {
    /// Keys.
    Keys,
    /// Values.
    Values,
}

/// Shape of the paged keys and values: `layers x {keys, values} x blocks x block_size x kv_heads x head_dim` elements,
/// the two after `blocks` in the [`Order`] that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Layers of the model.
    pub layers: usize,
    /// Blocks: the cache's capacity.
    pub blocks: usize,
    /// Tokens in a block: the cache's block size.
    pub block_size: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Elements of a head: a multiple of 4.
    pub head_dim: usize,
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
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

/// A name that is no element type's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownDtype;

impl fmt::Display for UnknownDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the element types are f32, f16 and bf16")
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
            _ => Err(UnknownDtype),
        }
    }
}

impl Layout {
    /// Whether it is a shape at all: nothing is zero, heads are a multiple of 4 elements, ids name every block, and the
    /// bytes can be counted.
    ///
    /// # Errors
    ///
    /// The first that is not so.
    pub fn check(&self) -> Result<(), ShapeError> {
        let named = [
            ("layers", self.layers),
            ("blocks", self.blocks),
            ("block_size", self.block_size),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
        ];
        if let Some((what, _)) = named.into_iter().find(|(_, size)| *size == 0) {
            return Err(ShapeError::Zero { what });
        }
        if self.head_dim % 4 != 0 {
            return Err(ShapeError::HeadDim { head_dim: self.head_dim });
        }
        let bytes = named.iter().try_fold(2 * self.dtype.bytes(), |bytes, (_, size)| bytes.checked_mul(*size));
        if self.blocks > BlockId::MAX as usize || bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
            return Err(ShapeError::TooLarge { blocks: self.blocks });
        }
        Ok(())
    }

    /// Elements of one token in one layer and half: `kv_heads * head_dim`.
    pub fn row(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Elements of one block in one layer and half.
    pub fn block(&self) -> usize {
        self.block_size * self.row()
    }

    /// Elements of one half of one layer.
    pub fn half(&self) -> usize {
        self.blocks * self.block()
    }

    /// Elements of everything.
    pub fn elements(&self) -> usize {
        2 * self.layers * self.half()
    }

    /// Bytes of everything.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.bytes()
    }

    /// Slots: places of one token, `block * block_size + offset`.
    pub fn slots(&self) -> u64 {
        self.blocks as u64 * self.block_size as u64
    }

    /// Elements from one token of a head to its next within a block.
    pub fn token_stride(&self) -> usize {
        match self.order {
            Order::Nhd => self.row(),
            Order::Hnd => self.head_dim,
        }
    }

    /// Elements from one head of a token to the next within a block.
    pub fn head_stride(&self) -> usize {
        match self.order {
            Order::Nhd => self.head_dim,
            Order::Hnd => self.block_size * self.head_dim,
        }
    }

    /// Index of a head's first element. The arguments lie within the layout.
    pub fn index(&self, layer: usize, half: Half, block: BlockId, token: usize, head: usize) -> usize {
        let half = match half {
            Half::Keys => 0,
            Half::Values => 1,
        };
        (2 * layer + half) * self.half()
            + block as usize * self.block()
            + token * self.token_stride()
            + head * self.head_stride()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(order: Order) -> Layout {
        Layout { layers: 2, blocks: 3, block_size: 5, kv_heads: 2, head_dim: 4, dtype: Dtype::F16, order }
    }

    #[test]
    fn every_head_has_a_place_of_its_own() {
        for order in [Order::Nhd, Order::Hnd] {
            let layout = layout(order);
            let mut seen = vec![false; layout.elements() / layout.head_dim];
            for layer in 0..layout.layers {
                for half in [Half::Keys, Half::Values] {
                    for block in 0..layout.blocks as BlockId {
                        for token in 0..layout.block_size {
                            for head in 0..layout.kv_heads {
                                let index = layout.index(layer, half, block, token, head);
                                assert_eq!(index % layout.head_dim, 0);
                                assert!(!std::mem::replace(&mut seen[index / layout.head_dim], true));
                            }
                        }
                    }
                }
            }
            assert!(seen.into_iter().all(|seen| seen), "{order:?}");
        }
    }

    #[test]
    fn a_shape_that_is_none_is_refused() {
        let good = layout(Order::Nhd);
        assert_eq!(good.check(), Ok(()));
        assert_eq!(Layout { kv_heads: 0, ..good }.check(), Err(ShapeError::Zero { what: "kv_heads" }));
        assert_eq!(Layout { head_dim: 6, ..good }.check(), Err(ShapeError::HeadDim { head_dim: 6 }));
        let blocks = usize::MAX / 64;
        assert_eq!(Layout { blocks, ..good }.check(), Err(ShapeError::TooLarge { blocks }));
    }

    #[test]
    fn element_types_have_the_names_they_print() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            assert_eq!(dtype.to_string().parse(), Ok(dtype));
        }
        assert_eq!("int8".parse::<Dtype>(), Err(UnknownDtype));
    }
}
