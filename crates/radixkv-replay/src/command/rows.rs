//! A CSV row for every request of a replay.

use std::io::{self, Write};

use radixkv_replay::{Details, Replay, ReplayConfig, Trace};

const NAMES: &str = "request,prompt_tokens,prefix_hit_len,computed_tokens,timestamp,namespace,miss_reason,queue_wait";

/// Writes the rows in replay order. The namespace is empty, as for the cache's default one: no trace names another.
/// A request that missed nothing has no reason, and only requests that were served in trace time have a wait, in seconds.
pub(crate) fn write(
    file: &mut dyn Write,
    trace: &Trace,
    config: &ReplayConfig,
    replayed: &Replay,
    details: &Details,
) -> io::Result<()> {
    writeln!(file, "{NAMES}")?;
    for (number, (request, outcome)) in trace.requests().iter().zip(&replayed.outcomes).enumerate() {
        let (hit, computed) = (outcome.hit_tokens(config.block_size), outcome.computed_tokens(config.block_size));
        let reason = details.missed[number].first().map_or("", |reason| reason.name());
        let wait = replayed.times.get(number).map_or(String::new(), |times| times.queue_wait.to_string());
        let (row, prompt, timestamp) = (outcome.row, outcome.prompt_tokens, request.timestamp());
        writeln!(file, "{row},{prompt},{hit},{computed},{timestamp},,{reason},{wait}")?;
    }
    Ok(())
}
