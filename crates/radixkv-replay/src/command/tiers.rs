//! The options of a host tier below the cache, and of a remote tier below that.

use clap::{Args, ValueEnum};
use radixkv_host::{TierMode, WritePolicy};
use radixkv_replay::replay::{Capacity, HostKind, MAX_INSTANCES, Route, Tiers};

use crate::{
    bytes::Bytes,
    serving::{count, set},
};

/// The heading of these options in the help.
const HEADING: &str = "Host tier and remote tier";

/// A host tier, the caches over it, and a remote tier below it.
#[derive(Args)]
pub(crate) struct TierOptions {
    /// Add a host tier below the cache: its size in host blocks, or in percent of the distinct full
    /// blocks of all prompts
    #[arg(long, help_heading = HEADING, value_name = "BLOCKS|N%", requires = "trace")]
    host_capacity: Option<Capacity>,
    /// Tokens per host block: a multiple or a divisor of --block-size [default: as --block-size]
    #[arg(long, help_heading = HEADING, value_name = "TOKENS", value_parser = count, requires = "host_capacity")]
    host_block_size: Option<usize>,
    /// Memory of the host tier: main memory (50 GB/s, 5 us), or behind CXL (25 GB/s, 10 us)
    #[arg(long, help_heading = HEADING, value_enum, default_value_t, requires = "host_capacity")]
    host_kind: Kind,
    /// Whether a block is in one tier (exclusive) or may be in both (shared)
    #[arg(long, help_heading = HEADING, value_enum, default_value_t, requires = "host_capacity")]
    tier_mode: Mode,
    /// When a block is copied to the host: when the device evicts it, or when it is inserted
    /// (for --tier-mode shared)
    #[arg(long, help_heading = HEADING, value_enum, default_value_t, requires = "host_capacity")]
    write_policy: Write,
    /// Caches of --capacity over the host tier, at most 1024
    #[arg(long, help_heading = HEADING, default_value = "1", value_name = "K", value_parser = instances, requires = "host_capacity")]
    instances: usize,
    /// Which instance serves a request: in turn, a random one, or the one that caches the longest
    /// prefix
    #[arg(long, help_heading = HEADING, value_enum, default_value_t, requires = "host_capacity")]
    route: Routing,
    /// Bandwidth of copies to and from the host, such as 50GB/s [default: by --host-kind]
    #[arg(long, help_heading = HEADING, value_name = "RATE", value_parser = bandwidth, requires = "host_capacity")]
    bandwidth_host: Option<f64>,
    /// Latency of a copy, such as 5us [default: by --host-kind]
    #[arg(long, help_heading = HEADING, value_name = "TIME", value_parser = latency, requires = "host_capacity")]
    latency_host: Option<f64>,
    /// Add a remote tier below the host tier: its size in host blocks, or in percent as for
    /// --host-capacity
    #[arg(long, help_heading = HEADING, value_name = "BLOCKS|N%", requires = "host_capacity")]
    remote_capacity: Option<Capacity>,
    /// Bandwidth of reads from the remote tier, such as 3GB/s [default: 12.5GB/s]
    #[arg(long, help_heading = HEADING, value_name = "RATE", value_parser = bandwidth, requires = "remote_capacity")]
    bandwidth_remote: Option<f64>,
    /// Latency of reads from the remote tier, such as 1ms [default: 100us]
    #[arg(long, help_heading = HEADING, value_name = "TIME", value_parser = latency, requires = "remote_capacity")]
    latency_remote: Option<f64>,
    /// Bytes of a token's keys and values, such as 128KiB; `radixkv size` computes them for a model
    /// [default: 128KiB]
    #[arg(long, help_heading = HEADING, value_name = "BYTES", requires = "host_capacity")]
    token_bytes: Option<Bytes>,
    /// Print a line on standard error for each second of the trace's time
    #[arg(long, help_heading = HEADING, requires = "host_capacity")]
    pub(crate) log: bool,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Kind {
    #[default]
    Cpu,
    Cxl,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Mode {
    #[default]
    Exclusive,
    Shared,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Write {
    #[default]
    Back,
    Through,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Routing {
    #[default]
    RoundRobin,
    Random,
    Prefix,
}

fn instances(text: &str) -> Result<usize, String> {
    match count(text)? {
        instances if instances > MAX_INSTANCES => {
            Err(format!("{instances} instances requested, a replay has at most {MAX_INSTANCES}"))
        }
        instances => Ok(instances),
    }
}

/// Parses a bandwidth to bytes per second.
fn bandwidth(text: &str) -> Result<f64, &'static str> {
    const WANTED: &str = "not a number of bytes a second above zero, such as 50GB/s";
    let Bytes(bytes) = text.strip_suffix("/s").and_then(|bytes| bytes.parse().ok()).ok_or(WANTED)?;
    if bytes == 0 { Err(WANTED) } else { Ok(bytes as f64) }
}

/// Parses a latency to seconds.
fn latency(text: &str) -> Result<f64, &'static str> {
    const WANTED: &str = "not a time, such as 5us, 300ns or 1ms";
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let unit = units.into_iter().find_map(|(name, seconds)| Some((text.strip_suffix(name)?, seconds)));
    let (number, seconds) = unit.ok_or(WANTED)?;
    let latency = number.trim_end().parse::<f64>().map_err(|_| WANTED)? * seconds;
    // A day: far more than any copy takes, and below it `f64` is exact enough.
    if (0.0..86_400.0).contains(&latency) { Ok(latency) } else { Err(WANTED) }
}

impl TierOptions {
    /// The configured tiers; `None` without a host tier.
    pub(crate) fn tiers(&self) -> Option<Tiers> {
        let tiers = Tiers::new(self.host_capacity?)
            .kind(match self.host_kind {
                Kind::Cpu => HostKind::Cpu,
                Kind::Cxl => HostKind::Cxl,
            })
            .mode(match self.tier_mode {
                Mode::Exclusive => TierMode::Exclusive,
                Mode::Shared => TierMode::Shared,
            })
            .write(match self.write_policy {
                Write::Back => WritePolicy::Back,
                Write::Through => WritePolicy::Through,
            })
            .instances(self.instances)
            .route(match self.route {
                Routing::RoundRobin => Route::RoundRobin,
                Routing::Random => Route::Random,
                Routing::Prefix => Route::Prefix,
            });
        let tiers = set(tiers, self.host_block_size, Tiers::host_block_size);
        let tiers = set(tiers, self.bandwidth_host, Tiers::bandwidth);
        let tiers = set(tiers, self.latency_host, Tiers::latency);
        let tiers = set(tiers, self.remote_capacity, Tiers::remote_capacity);
        let tiers = set(tiers, self.bandwidth_remote, Tiers::remote_bandwidth);
        let tiers = set(tiers, self.latency_remote, Tiers::remote_latency);
        Some(set(tiers, self.token_bytes, |tiers, Bytes(bytes)| tiers.token_bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_have_units() {
        assert_eq!((bandwidth("50GB/s"), bandwidth("1.5 KiB/s")), (Ok(50e9), Ok(1536.0)));
        for wrong in ["", "50GB", "0B/s", "-1GB/s", "fast/s"] {
            assert!(bandwidth(wrong).is_err(), "{wrong}");
        }
        assert_eq!((latency("2ms"), latency("0s"), latency("300 ns")), (Ok(2e-3), Ok(0.0), Ok(300.0 * 1e-9)));
        for wrong in ["", "5", "-5us", "long", "NaNs", "1e9s"] {
            assert!(latency(wrong).is_err(), "{wrong}");
        }
    }
}
