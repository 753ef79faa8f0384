//! Writes a CSV row for every request of a replay.

use std::io::{self, Write};

use radixkv_replay::{Details, Replay, ReplayConfig, Trace};

const NAMES: &str = "request,prompt_tokens,prefix_hit_len,computed_tokens,timestamp,namespace,miss_reason,queue_wait";

/// The additional columns with a host tier.
const TIERS: &str = "device_hit,host_hit,remote_hit";

/// Writes the rows in replay order. The namespace is empty, which is the cache's default one:
/// traces name no others. The reason is empty if the request missed nothing. The wait is in
/// seconds, and empty unless requests were served in trace time. With a host tier, the hits of each
/// tier follow, in tokens.
pub(crate) fn write(
    file: &mut dyn Write,
    trace: &Trace,
    config: &ReplayConfig,
    replayed: &Replay,
    details: &Details,
) -> io::Result<()> {
    let has_tiers = config.tiers.is_some();
    writeln!(file, "{NAMES}{}", if has_tiers { format!(",{TIERS}") } else { String::new() })?;
    for (number, (request, outcome)) in trace.requests().iter().zip(&replayed.outcomes).enumerate() {
        let (hit, computed) = (outcome.hit_tokens(config.block_size), outcome.computed_tokens(config.block_size));
        let reason = details.missed[number].first().map_or("", |reason| reason.name());
        let wait = replayed.times.get(number).map_or(String::new(), |times| times.queue_wait.to_string());
        let (row, prompt, timestamp) = (outcome.row, outcome.prompt_tokens, request.timestamp());
        write!(file, "{row},{prompt},{hit},{computed},{timestamp},,{reason},{wait}")?;
        if has_tiers {
            let device_tokens = outcome.device_tokens(config.block_size);
            write!(file, ",{device_tokens},{},{}", outcome.host_tokens, outcome.remote_tokens)?;
        }
        writeln!(file)?;
    }
    Ok(())
}
