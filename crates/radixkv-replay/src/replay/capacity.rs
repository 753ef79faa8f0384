//! The capacity of a replay's cache: blocks, tokens or percent of the working set.

use std::str::FromStr;

use crate::request::Trace;

/// The capacity of the cache.
///
/// # Examples
///
/// ```
/// use radixkv_replay::replay::{Capacity, CapacityError};
///
/// assert_eq!("4096".parse(), Ok(Capacity::Blocks(4096)));
/// assert_eq!("12.5%".parse(), Ok(Capacity::Percent(12.5)));
/// assert_eq!("0%".parse::<Capacity>(), Err(CapacityError::Zero));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Capacity {
    /// This number of blocks.
    Blocks(usize),
    /// As many whole blocks as this number of tokens fills, at least one.
    Tokens(usize),
    /// Percent of the trace's [working set](Trace::working_set_blocks), rounded to the nearest
    /// block, at least one.
    Percent(f64),
}

impl Capacity {
    /// The capacity in blocks for a trace.
    ///
    /// # Panics
    ///
    /// Panics if `block_size` is zero, unless the capacity is a number of blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use radixkv_replay::{Trace, replay::Capacity};
    ///
    /// let row = r#"{"timestamp": 0, "input_tok_ids": [1, 2, 3, 4, 5, 6, 7, 8]}"#;
    /// let trace = Trace::from_reader(row.as_bytes(), "row", None)?;
    /// assert_eq!(Capacity::Percent(50.0).blocks(&trace, 2), 2); // half of four blocks
    /// # Ok::<_, radixkv_replay::TraceError>(())
    /// ```
    #[must_use]
    pub fn blocks(self, trace: &Trace, block_size: usize) -> usize {
        match self {
            Self::Percent(percent) => Self::share(percent, trace.working_set_blocks(block_size)),
            Self::Blocks(_) | Self::Tokens(_) => self.of_working_set(0, block_size),
        }
    }

    /// The capacity in blocks, for a working set of `working_set` blocks.
    pub(crate) fn of_working_set(self, working_set: usize, block_size: usize) -> usize {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Tokens(tokens) => (tokens / block_size).max(1),
            Self::Percent(percent) => Self::share(percent, working_set),
        }
    }

    /// `percent` of a working set in blocks, at least one.
    fn share(percent: f64, working_set: usize) -> usize {
        ((working_set as f64 * percent / 100.0).round_ties_even() as usize).max(1)
    }
}

/// Why a capacity is invalid.
///
/// # Examples
///
/// ```
/// use radixkv_replay::replay::{Capacity, CapacityError};
///
/// assert_eq!("many".parse::<Capacity>(), Err(CapacityError::Malformed));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// Neither a number of blocks nor a percentage.
    #[error("not a number of blocks, such as 4096, or a percentage, such as 10%")]
    Malformed,
    /// A cache needs at least one block.
    #[error("capacity must be more than zero")]
    Zero,
}

impl FromStr for Capacity {
    type Err = CapacityError;

    fn from_str(text: &str) -> Result<Self, CapacityError> {
        let capacity = match text.strip_suffix('%') {
            Some(percent) => Self::Percent(percent.trim().parse().map_err(|_| CapacityError::Malformed)?),
            None => Self::Blocks(text.parse().map_err(|_| CapacityError::Malformed)?),
        };
        match capacity {
            Self::Blocks(0) | Self::Percent(0.0) => Err(CapacityError::Zero),
            Self::Percent(percent) if !(percent.is_finite() && percent > 0.0) => Err(CapacityError::Malformed),
            capacity => Ok(capacity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_blocks_or_percent() {
        assert_eq!("100".parse(), Ok(Capacity::Blocks(100)));
        assert_eq!("12.5%".parse(), Ok(Capacity::Percent(12.5)));
        for zero in ["0", "0%", "0.0%"] {
            assert_eq!(zero.parse::<Capacity>(), Err(CapacityError::Zero));
        }
        for bad in ["", "%", "-1", "-1%", "ten", "NaN%", "inf%", "1.5"] {
            assert_eq!(bad.parse::<Capacity>(), Err(CapacityError::Malformed), "{bad:?}");
        }
    }
}
