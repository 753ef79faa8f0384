//! The row `growth`: time and memory while a cache grows. Each contender is measured in its own
//! process, so that its memory includes no other contender's.

use std::{fs, io, process::Command, str::FromStr, sync::Arc};

use super::FEW;
use crate::arena::{
    BLOCK,
    contender::{Client, Clock, Contender, check},
    measure::time,
    row::{Entry, Round, Row},
    settings::Settings,
    tokens::Tokens,
};

/// Tokens of a shared prefix, and tokens that each prompt has beyond it.
const SHARED: usize = 512;
const OWN: usize = 160;
const PREFIXES: usize = 1_000;
/// Prompts cached at the end.
const PROMPTS: usize = 100_000;
/// Prompts inserted between two reads of the clock.
const BATCH: usize = 100;
/// The option that makes this program grow one contender and print its figures.
const OPTION: &str = "--grow";

/// The row. `entries` are measured by [`apart`].
pub(crate) fn growth(settings: &Settings, entries: Vec<Entry>) -> Row {
    let prompts = settings.calls(PROMPTS);
    Row {
        name: "growth",
        what: format!(
            "{prompts} prompts of {OWN} tokens inserted after {PREFIXES} prefixes of {SHARED}, nothing evicted; resident memory over \
             tokens cached"
        ),
        figures: ["ns, first tenth", "ns, last tenth", "bytes a token"].map(Into::into).into(),
        entries,
        at_once: false,
        rounds: settings.rounds.min(FEW),
    }
}

/// Grows a contender in another process.
pub(crate) fn apart<C: Contender>(settings: &Settings) -> Round {
    let prompts = settings.calls(PROMPTS);
    Box::new(move || match grown(C::NAME, prompts) {
        Ok(figures) => figures,
        Err(error) => panic!("cannot be measured: {error}"),
    })
}

fn grown(name: &str, prompts: usize) -> io::Result<Vec<f64>> {
    let output = Command::new(std::env::current_exe()?).args([OPTION, name, &prompts.to_string()]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<f64> = text.split_whitespace().map_while(|word| f64::from_str(word).ok()).collect();
    if output.status.success() && figures.len() == 3 {
        return Ok(figures);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.lines().nth(1).unwrap_or("it ended early").to_owned()))
}

/// Grows a contender to a number of prompts and returns the figures, as [`grow`] does.
pub(crate) type Grow = fn(usize) -> [f64; 3];

/// Inserts `prompts` prompts: nanoseconds per insert in the first and in the last tenth, and bytes
/// of memory per token.
pub(crate) fn grow<C: Contender>(prompts: usize) -> [f64; 3] {
    let tokens = PREFIXES.min(prompts) * SHARED + prompts * OWN;
    let before = resident();
    let mut client = C::client(&Arc::new(C::new(tokens / BLOCK)));
    let batches: Vec<f64> =
        (0..prompts / BATCH).map(|batch| grow_by_a_batch::<C>(&mut client, batch * BATCH)).collect();
    let bytes = resident() - before;
    let last = C::prompt(&prompt(prompts - 1));
    check(client.look_up(&last), SHARED + OWN);
    let tenth = (batches.len() / 10).max(1);
    let mean = |batches: &[f64]| batches.iter().sum::<f64>() / batches.len() as f64;
    [mean(&batches[..tenth]), mean(&batches[batches.len() - tenth..]), bytes / tokens as f64]
}

fn grow_by_a_batch<C: Contender>(client: &mut C::Client, first: usize) -> f64 {
    let prompts: Vec<C::Prompt> = (first..first + BATCH).map(|at| C::prompt(&prompt(at))).collect();
    let insert = || {
        for prompt in &prompts {
            client.insert(prompt, &mut Clock::default());
        }
        client.settle();
    };
    time(1, insert) / BATCH as f64
}

fn prompt(at: usize) -> Tokens {
    let (shared, own) =
        (Tokens::sequence((at % PREFIXES) as u32, SHARED), Tokens::sequence((PREFIXES + at) as u32, OWN));
    Tokens::new(SHARED + OWN, |out| {
        out[..SHARED].copy_from_slice(&shared);
        out[SHARED..].copy_from_slice(&own);
    })
}

/// Resident bytes of this process; NaN if the system does not report them.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<f64>().ok());
    kibibytes.map_or(f64::NAN, |kibibytes| kibibytes * 1024.0)
}
