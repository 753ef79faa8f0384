//! The options of `radixkv sweep`.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use radixkv::PolicyKind;
use radixkv_replay::{
    Limits,
    model::KvDtype,
    replay::{Capacity, CapacityError},
    sweep::SweepConfig,
};

use crate::{
    bytes::Bytes,
    serving::{count, policies, threads, unit},
};

/// Replay a trace through many caches: the hit rate by capacity, policy and block size.
///
/// The policies are compared with reference lines: a flat cache of block hashes (apc), the same
/// with vLLM's accounting (apc-vllm: a partly filled last block takes a slot, the last token of a
/// prompt is always computed), the optimum for a cache that knows the future (belady), and a cache
/// that never evicts (infinite).
///
/// All cores are used. The policy lru costs one pass over the trace for all capacities.
///
/// Exit status: 0 on success, 2 if the command line, the trace or the system is at fault.
#[derive(Args)]
pub(crate) struct Arguments {
    /// File of the trace, or - for standard input
    pub(crate) trace: PathBuf,
    /// Tokens per hash id [default: inferred from the rows; 512 in Mooncake's traces]
    #[arg(long, value_name = "TOKENS", value_parser = unit)]
    pub(crate) unit: Option<u32>,
    /// Sizes of the caches, separated by commas: blocks, percent of the distinct full blocks of all
    /// prompts, or bytes such as 40GiB, which need --model-config
    #[arg(long, default_value = "1%,5%,10%,25%", value_name = "BLOCKS|N%|BYTES", value_delimiter = ',')]
    pub(crate) capacity: Vec<SweepCapacity>,
    #[arg(long, default_value = "lru,lfu,slru", value_name = "POLICY", value_delimiter = ',', help = format!("{}; separated by commas", policies()))]
    policy: Vec<PolicyKind>,
    /// Tokens per block, separated by commas
    #[arg(long, default_value = "16", value_name = "TOKENS", value_delimiter = ',', value_parser = count)]
    block_size: Vec<usize>,
    /// Also cache generated tokens
    #[arg(long)]
    outputs: bool,
    /// config.json of the model, for capacities in bytes
    #[arg(long, value_name = "FILE")]
    pub(crate) model_config: Option<PathBuf>,
    /// Element type of the KV: fp32, fp16, bf16, fp8, int8 [default: the type of the weights, or
    /// fp16]
    #[arg(long, value_name = "TYPE", requires = "model_config")]
    pub(crate) kv_dtype: Option<KvDtype>,
    /// Worker threads [default: the machine's parallelism]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a CSV row for every point; an existing file is replaced only on success
    #[arg(long, value_name = "FILE.csv")]
    pub(crate) csv: Option<PathBuf>,
    /// Draw the miss ratio over the capacity; an existing file is replaced only on success
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) svg: Option<PathBuf>,
    /// Bytes of a line of the trace, decompressed [default: 64 MiB]
    #[arg(long, value_name = "BYTES", value_parser = count)]
    max_line_bytes: Option<usize>,
    /// Rows of the trace, blank lines included [default: 10 million]
    #[arg(long, value_name = "ROWS", value_parser = count)]
    max_rows: Option<usize>,
    /// Hash ids and tokens of the trace, and tokens that a cache may hold [default: 2^28]
    #[arg(long, value_name = "TOKENS", value_parser = count)]
    max_tokens: Option<usize>,
}

/// The capacity of a cache: one that a replay accepts, or bytes of KV memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SweepCapacity {
    Counted(Capacity),
    Bytes(u64),
}

impl FromStr for SweepCapacity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match (text.parse(), text.parse()) {
            (Ok(capacity), _) => Ok(Self::Counted(capacity)),
            (Err(CapacityError::Zero), _) | (_, Ok(Bytes(0))) => Err("capacity must be more than zero"),
            (_, Ok(Bytes(bytes))) => Ok(Self::Bytes(bytes)),
            _ => Err("not a number of blocks, such as 4096, a percentage, such as 10%, or bytes, such as 40GiB"),
        }
    }
}

impl Arguments {
    /// The configuration of the sweep; `kv_bytes` is the size of a token's KV, for capacities in
    /// bytes.
    pub(crate) fn config(&self, kv_bytes: Option<u64>) -> Result<SweepConfig, String> {
        let defaults = SweepConfig::default();
        let capacity = |capacity: &SweepCapacity| match *capacity {
            SweepCapacity::Counted(capacity) => Ok(capacity),
            SweepCapacity::Bytes(bytes) => match bytes / kv_bytes.unwrap_or(1).max(1) {
                0 => Err(format!("capacity of {bytes} bytes requested, less than one token of the model")),
                tokens => Ok(Capacity::Tokens(usize::try_from(tokens).unwrap_or(usize::MAX))),
            },
        };
        Ok(SweepConfig {
            capacities: self.capacity.iter().map(capacity).collect::<Result<_, _>>()?,
            policies: distinct(&self.policy),
            block_sizes: distinct(&self.block_size),
            outputs: self.outputs,
            max_cached_tokens: self.max_tokens.unwrap_or(defaults.max_cached_tokens),
        })
    }

    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.line_bytes = self.max_line_bytes.unwrap_or(limits.line_bytes);
        limits.rows = self.max_rows.unwrap_or(limits.rows);
        limits.tokens = self.max_tokens.unwrap_or(limits.tokens);
        limits
    }
}

/// The distinct values, in the order of the command line.
fn distinct<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let mut distinct = Vec::new();
    for &value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_blocks_percent_or_bytes() {
        assert_eq!("10%".parse(), Ok(SweepCapacity::Counted(Capacity::Percent(10.0))));
        assert_eq!("4096".parse(), Ok(SweepCapacity::Counted(Capacity::Blocks(4096))));
        assert_eq!("2GiB".parse(), Ok(SweepCapacity::Bytes(2 << 30)));
        for wrong in ["0", "0%", "0GiB", "", "many", "10 %%"] {
            assert!(wrong.parse::<SweepCapacity>().is_err(), "{wrong}");
        }
    }
}
