//! `radixkv region`: manages a region of digest-keyed blocks that the processes of a host share.

mod census;
mod live;

use std::{error::Error, fs, path::PathBuf, process::ExitCode, str::FromStr, time::Duration};

use clap::{Args, Subcommand};
use radixkv_host::radixkv_tiers::radixkv_region::{DigestLayout, DigestObserver, DigestRegion};

use crate::{
    bytes::{Bytes, shown},
    console,
    figures::{counted, grouped},
    output::OutputError,
    report::json,
    screen::Screen,
    status::{AT_FAULT, BROKEN},
};
use census::Shown;
pub(crate) use live::top;

/// Manage a region of digest-keyed blocks that the processes of this host share.
///
/// NAME is the path of the region's file; a name without a slash is a file in /dev/shm.
///
/// Exit status: 0 on success, 1 if `verify` found damaged blocks, 2 if the command line or the
/// region is at fault.
#[derive(Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Create a region; its memory is allocated immediately
    Create {
        name: Name,
        /// Bytes of the largest block
        #[arg(long, value_name = "BYTES")]
        entry_bytes: Bytes,
        /// Blocks
        #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..))]
        capacity: u32,
    },
    /// Show what each namespace and process holds: blocks, bytes and age by namespace; blocks and
    /// hit rate by process; dead processes
    Inspect {
        name: Name,
        /// Print one JSON object instead of tables
        #[arg(long)]
        json: bool,
    },
    /// Remove blocks that were stored some time ago, and recover what dead processes held
    Trim {
        name: Name,
        /// How long ago, such as 90s, 15m, 12h or 7d; 0s means all blocks
        #[arg(long, value_name = "TIME", value_parser = time)]
        older_than: Duration,
        /// Only the namespace with this name
        #[arg(long, value_name = "NAMESPACE")]
        namespace: Option<String>,
    },
    /// Read all blocks, and remove those that are damaged
    Verify { name: Name },
    /// Remove a region that no living process has open
    Remove {
        name: Name,
        /// Even if processes have it open: they can still use it, and new processes create another
        /// region
        #[arg(long)]
        force: bool,
    },
}

/// The file of a region.
#[derive(Debug, Clone)]
pub(crate) struct Name(PathBuf);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("the name is empty".to_owned()),
            name if name.contains('/') => Ok(Self(name.into())),
            name => Ok(Self(PathBuf::from("/dev/shm").join(name))),
        }
    }
}

impl Name {
    fn shown(&self) -> String {
        console::printable(&self.0.display().to_string())
    }

    /// Opens the region as one of its processes.
    fn open(&self) -> Result<DigestRegion, Box<dyn Error>> {
        Ok(DigestRegion::open_existing(&self.0).map_err(|error| format!("{}: {error}", self.shown()))?)
    }

    fn observe(&self) -> Result<DigestObserver, Box<dyn Error>> {
        Ok(DigestObserver::open(&self.0).map_err(|error| format!("{}: {error}", self.shown()))?)
    }
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> ExitCode {
    let done = match &arguments.verb {
        Verb::Create { name, entry_bytes, capacity } => create(name, entry_bytes.0, *capacity),
        Verb::Inspect { name, json } => inspect(name, *json, screen),
        Verb::Trim { name, older_than, namespace } => trim(name, *older_than, namespace.as_deref()),
        Verb::Verify { name } => verify(name),
        Verb::Remove { name, force } => remove(name, *force),
    };
    done.unwrap_or_else(|error| {
        console::say(format_args!("radixkv: {error}"));
        ExitCode::from(AT_FAULT)
    })
}

type Done = Result<ExitCode, Box<dyn Error>>;

fn create(name: &Name, entry_bytes: u64, capacity: u32) -> Done {
    let layout = DigestLayout::new(usize::try_from(entry_bytes)?, capacity);
    let region = DigestRegion::create(&name.0, &layout).map_err(|error| format!("{}: {error}", name.shown()))?;
    let bytes = region.layout().region_bytes()? as u64;
    print(&format!(
        "{}: {} of up to {}, {} in all",
        name.shown(),
        counted(capacity.into(), "block"),
        shown(entry_bytes),
        shown(bytes)
    ))
}

fn inspect(name: &Name, as_json: bool, screen: &Screen) -> Done {
    let shown = Shown::of(&name.shown(), &name.observe()?.census());
    print(&if as_json { json(&shown)? } else { shown.text(screen) })
}

fn trim(name: &Name, older_than: Duration, namespace: Option<&str>) -> Done {
    let region = name.open()?;
    if let Some(asked) = namespace {
        let known: Vec<_> = region.census().namespaces;
        if !known.iter().any(|known| known.namespace.name() == asked) {
            let names: Vec<_> = known.iter().map(|known| format!("{:?}", known.namespace.name())).collect();
            return Err(format!("{}: no namespace {asked:?}; it has {}", name.shown(), names.join(", ")).into());
        }
    }
    let removed = region.trim(older_than, namespace);
    print(&format!("removed {}, {} are left", counted(removed as u64, "block"), grouped(region.stats().blocks as u64)))
}

fn verify(name: &Name) -> Done {
    let verified = name.open()?.verify();
    let [right, unchecked, removed] =
        [verified.right, verified.without_checksum, verified.removed].map(|blocks| grouped(blocks as u64));
    print(&format!("right: {right}\nwithout a checksum: {unchecked}\ndamaged and removed: {removed}"))?;
    Ok(if verified.removed > 0 { ExitCode::from(BROKEN) } else { ExitCode::SUCCESS })
}

fn remove(name: &Name, force: bool) -> Done {
    let unfinished =
        || DigestRegion::remove_unfinished(&name.0).map_err(|error| format!("{}, beside it: {error}", name.shown()));
    if !name.0.try_exists()? && unfinished()? {
        return print(&format!("removed what a killed process left beside {}", name.shown()));
    }
    // Fails here if the file is not a region, so no other file is removed.
    let census = name.observe()?.census();
    let living: Vec<_> = census.processes.iter().filter(|process| !process.is_dead).collect();
    if !living.is_empty() && !force {
        let pids: Vec<_> = living.iter().map(|process| process.pid.to_string()).collect();
        let what = format!("{}: open in process {}; end them first, or give --force", name.shown(), pids.join(", "));
        return Err(what.into());
    }
    // A process that was killed while it created the region may have left the file's other name.
    // Removed first: while there is a region, no process creates another one.
    unfinished()?;
    fs::remove_file(&name.0).map_err(|error| format!("{}: {error}", name.shown()))?;
    print(&format!("removed {}", name.shown()))
}

fn print(text: &str) -> Done {
    console::print(text).map_err(OutputError::stdout)?;
    Ok(ExitCode::SUCCESS)
}

/// Parses a time with its unit.
fn time(text: &str) -> Result<Duration, &'static str> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let parse = |(unit, millis): (&str, u64)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(millis);
    let millis = units.into_iter().find_map(parse);
    millis.map(Duration::from_millis).ok_or("not a time such as 90s, 15m, 12h or 7d")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        let millis = |text| time(text).map(|time| time.as_millis());
        assert_eq!([millis("0s"), millis("90s"), millis("15m")], [Ok(0), Ok(90_000), Ok(900_000)]);
        assert_eq!([millis("20ms"), millis("12h"), millis("7d")], [Ok(20), Ok(43_200_000), Ok(604_800_000)]);
        for wrong in ["", "5", "s", "-1s", "1.5h", "1 s", "99999999999999999999s", "18446744073709551615d"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
