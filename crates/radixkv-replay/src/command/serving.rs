//! The options for how the requests of a trace are served, and the limits on a trace.

use clap::{Args, ValueEnum};
use radixkv::PolicyKind;
use radixkv_replay::{
    Limits, ReplayConfig,
    replay::{CacheKind, Capacity, EvictionMode, MAX_THREADS, Service, TimeUnit},
};

/// The help of `--policy`, which lists all policies.
pub(crate) fn policies() -> String {
    let names: Vec<_> = PolicyKind::ALL.iter().map(|policy| policy.name()).collect();
    format!("Which blocks are evicted first, one of {}", names.join(", "))
}

/// How the requests of a trace are served.
#[derive(Args)]
pub(crate) struct Serving {
    /// Tokens per hash id [default: inferred from the rows; 512 in Mooncake's traces]
    #[arg(long, value_name = "TOKENS", value_parser = unit)]
    pub(crate) unit: Option<u32>,
    /// Tokens per block
    #[arg(long, default_value = "16", value_name = "TOKENS", value_parser = count)]
    pub(crate) block_size: usize,
    /// Size of the cache, in blocks or in percent of the distinct full blocks of all prompts
    /// [default: 10% for a trace, 100% for the built-in workloads]
    #[arg(long, value_name = "BLOCKS|N%")]
    capacity: Option<Capacity>,
    #[arg(long, default_value = "lru", help = policies())]
    policy: PolicyKind,
    /// The cache that serves the requests: the prefix cache (radix), or a baseline without reuse
    /// (naive)
    #[arg(long, value_enum, default_value_t)]
    cache: Cache,
    /// Scheduler threads that share the cache, at most 1024
    #[arg(long, default_value = "1", value_name = "N", value_parser = threads)]
    threads: usize,
    /// Which thread evicts: the one that reserves (inline), or a thread of the cache (background)
    #[arg(long, value_enum, default_value_t)]
    eviction: Eviction,
    /// Also cache generated tokens
    #[arg(long)]
    outputs: bool,
    /// Bypass the cache for requests of more than this many blocks
    /// [default: as many as the cache holds]
    #[arg(long, value_name = "BLOCKS", value_parser = natural)]
    longest: Option<usize>,
    /// Field of the rows with each request's priority, an integer; for --policy priority
    #[arg(long, value_name = "FIELD", requires = "trace")]
    pub(crate) priority_from: Option<String>,
    /// Hold each request's lease while the next output_length requests of the trace are served
    #[arg(long)]
    hold: bool,
    /// Serve requests in trace time, holding their leases: prefill tokens per second and request,
    /// generated tokens per second and request, and concurrent requests, such as 8000,50,16
    #[arg(
        long,
        value_name = "PREFILL,DECODE,SLOTS",
        requires = "trace",
        conflicts_with_all = ["hold", "threads", "eviction", "cache"]
    )]
    service: Option<Service>,
    /// The unit of the trace's timestamps
    #[arg(long, value_enum, default_value_t)]
    time_unit: Unit,
    #[command(flatten)]
    bounds: Bounds,
}

/// The heading of limits in the help.
const LIMITS: &str = "Limits (traces that exceed one are refused)";

/// Limits on the memory that a trace may need.
#[derive(Args)]
struct Bounds {
    /// Bytes of a line, decompressed [default: 64 MiB]
    #[arg(long, help_heading = LIMITS, value_name = "BYTES", value_parser = count)]
    max_line_bytes: Option<usize>,
    /// Rows, blank lines included [default: 10 million]
    #[arg(long, help_heading = LIMITS, value_name = "ROWS", value_parser = count)]
    max_rows: Option<usize>,
    /// Tokens of one request that does not bypass the cache [default: 2^24]
    #[arg(long, help_heading = LIMITS, value_name = "TOKENS", value_parser = count)]
    max_request_tokens: Option<usize>,
    /// Hash ids and tokens of the whole trace, and tokens that the cache may hold, at 4 to 16 bytes
    /// each [default: 2^28]
    #[arg(long, help_heading = LIMITS, value_name = "TOKENS", value_parser = count)]
    max_tokens: Option<usize>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Cache {
    #[default]
    Radix,
    Naive,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Eviction {
    #[default]
    Inline,
    Background,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Unit {
    S,
    #[default]
    Ms,
    Us,
}

pub(crate) fn natural(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "not a whole number from 0 to 2^64 - 1")
}

pub(crate) fn count(text: &str) -> Result<usize, &'static str> {
    match natural(text)? {
        0 => Err("must be more than zero"),
        count => Ok(count),
    }
}

pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match count(text)? {
        threads if threads > MAX_THREADS => {
            Err(format!("{threads} threads requested, a replay has at most {MAX_THREADS}"))
        }
        threads => Ok(threads),
    }
}

/// Parses an address of the form `HOST:PORT`; the host name is not resolved yet.
pub(crate) fn address(text: &str) -> Result<String, &'static str> {
    const WANTED: &str = "not HOST:PORT, such as 127.0.0.1:9400";
    let (host, port) = text.rsplit_once(':').ok_or(WANTED)?;
    let is_host = !host.is_empty()
        && !host.contains(|c: char| c.is_whitespace() || c == '/')
        && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')));
    if is_host && port.parse::<u16>().is_ok() { Ok(text.to_owned()) } else { Err(WANTED) }
}

pub(crate) fn unit(text: &str) -> Result<u32, &'static str> {
    count(text).and_then(|unit| u32::try_from(unit).map_err(|_| "must be less than 2^32"))
}

impl Serving {
    pub(crate) fn config(&self, default_capacity: Capacity) -> ReplayConfig {
        let config = ReplayConfig::default()
            .block_size(self.block_size)
            .capacity(self.capacity.unwrap_or(default_capacity))
            .policy(self.policy)
            .cache(match self.cache {
                Cache::Radix => CacheKind::Radix,
                Cache::Naive => CacheKind::Naive,
            })
            .threads(self.threads)
            .eviction(match self.eviction {
                Eviction::Inline => EvictionMode::Inline,
                Eviction::Background => EvictionMode::Background,
            })
            .outputs(self.outputs)
            .hold(self.hold)
            .time_unit(match self.time_unit {
                Unit::S => TimeUnit::Seconds,
                Unit::Ms => TimeUnit::Milliseconds,
                Unit::Us => TimeUnit::Microseconds,
            });
        let config = set(config, self.service, ReplayConfig::service);
        let config = set(config, self.longest, ReplayConfig::longest);
        let config = set(config, self.bounds.max_request_tokens, ReplayConfig::max_request_tokens);
        set(config, self.bounds.max_tokens, ReplayConfig::max_cached_tokens)
    }

    pub(crate) fn limits(&self) -> Limits {
        let limits = set(Limits::default(), self.bounds.max_line_bytes, Limits::line_bytes);
        let limits = set(limits, self.bounds.max_rows, Limits::rows);
        set(limits, self.bounds.max_tokens, Limits::tokens)
    }
}

/// Applies an option if it is given; otherwise the default stays.
pub(crate) fn set<T, V>(settings: T, option: Option<V>, setter: impl FnOnce(T, V) -> T) -> T {
    match option {
        Some(value) => setter(settings, value),
        None => settings,
    }
}
