//! Counts instructions of this program, with valgrind and in a separate process: the counts do not
//! depend on how busy the machine is. The preparation is the same for any number of calls, so the
//! difference of two profiles is the cost of the calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{self, Write},
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use super::{
    figure::{Asked, Asked::AtMost, Figure},
    operations,
};
use crate::{
    arena::{
        measure::{Spread, millions},
        own::Radixkv,
    },
    rows::mixed::mix_alone,
};

/// Numbers of calls in the two profiles.
const FEW: usize = 200;
const MANY: usize = operations::MOST;
/// Inserts in a timed round, and the number of rounds.
const TIMED: usize = 20_000;
const ROUNDS: usize = 9;

/// Mixes of lookups of a hot prefix and new prompts, in a full pool: the lookups per insert, and
/// the bounds on the share of instructions under the evictor's lock.
const MIXES: [(&str, usize, Asked); 3] =
    [("mixed 90/10", 9, AtMost(12.0, 5.0)), ("mixed 50/50", 1, Asked::Nothing), ("turnover", 0, Asked::Nothing)];
/// The function that runs everything under the evictor's lock.
const HOLDER: &str = "with_evictor";

/// The part of this program that runs under valgrind.
pub(crate) struct Profiled;

impl Profiled {
    /// Prepares the named operation or mix, and calls it the given number of times.
    pub(crate) fn run(what: &[String]) -> ExitCode {
        let [name, calls] = what else { return ExitCode::from(2) };
        let Ok(calls) = calls.parse::<usize>() else { return ExitCode::from(2) };
        if let Some((_, lookups, _)) = MIXES.iter().find(|(known, ..)| known == name) {
            mix_alone::<Radixkv>(*lookups)(calls);
        } else {
            let row = operations::ROWS.iter().find(|(known, _)| known == name).expect("an operation's name");
            let mut operation = row.1();
            (0..calls).for_each(|_| operation());
        }
        // Exits without dropping the prepared state: the cost of a drop would depend on the calls.
        std::process::exit(0)
    }
}

/// Instructions of one call of an operation; `None` if valgrind is missing.
pub(crate) fn instructions(operation: &str) -> Option<f64> {
    let [few, many] = [FEW, MANY].map(|calls| profile(operation, calls).map(|profile| profile.total));
    Some((many? - few?) / (MANY - FEW) as f64)
}

/// The share of each mixed load's instructions that are under the evictor's lock, and the limit
/// that follows from it: the operations per second that the evictor can serve, however many threads
/// there are.
pub(crate) fn lock_shares() -> Vec<Figure> {
    MIXES.iter().flat_map(|&(name, lookups, asked)| lock_share(name, lookups, asked)).collect()
}

fn lock_share(name: &str, lookups: usize, asked: Asked) -> Vec<Figure> {
    let [few, many] = [FEW, MANY].map(|calls| profile(name, calls));
    let Some((few, many)) = few.zip(many) else { return Vec::new() };
    let share = (many.under_lock - few.under_lock) / (many.total - few.total);
    let mut mix = mix_alone::<Radixkv>(lookups);
    let rates = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        mix(TIMED);
        millions(TIMED * (lookups + 1), start.elapsed()) / share
    });
    let rates = Spread::of(rates.collect());
    vec![
        Figure::counted(format!("{name}, full pool: instructions under the evictor's lock, %"), asked, 100.0 * share),
        Figure::new(format!("{name}: operations that the evictor takes, millions a second"), Asked::Nothing, rates),
        Figure::counted(format!("{name}: threads from which on it is the limit"), Asked::Nothing, 1.0 / share),
    ]
}

/// Instructions of a whole process.
#[derive(Debug, Default, PartialEq)]
struct Profile {
    total: f64,
    under_lock: f64,
}

/// Profiles a number of calls. If valgrind is missing, prints that and returns `None`.
fn profile(what: &str, calls: usize) -> Option<Profile> {
    let program = env::current_exe().expect("this program has a path");
    let out = env::temp_dir().join(format!("radixkv-peers-{}.callgrind", std::process::id()));
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no"]);
    valgrind.arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.arg(&program).args(["must", "--profiled", what, &calls.to_string()]).stderr(Stdio::null());
    match valgrind.status() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            println!("{what}: skipped: instructions are not counted without valgrind");
            return None;
        }
        status => assert!(status.expect("valgrind can be started").success(), "valgrind failed"),
    }
    let text = fs::read_to_string(&out).expect("valgrind has written a profile");
    let _ = fs::remove_file(&out);
    let costs = Costs::of(&text, &program.to_string_lossy());
    Some(costs.profile(&held(&program, &costs.at).expect("addr2line is installed")))
}

/// The costs in a profile: for each address of the program, its own instructions and those of the
/// calls that it makes.
#[derive(Debug, Default)]
struct Costs {
    total: f64,
    at: BTreeMap<u64, f64>,
}

impl Costs {
    fn of(text: &str, program: &str) -> Self {
        let mut costs = Self::default();
        let (mut ours, mut called) = (false, false);
        for line in text.lines() {
            if let Some(object) = line.strip_prefix("ob=") {
                ours = object == program;
            } else if line.starts_with("calls=") {
                // The next line has the cost of the call.
                called = true;
            } else if let Some((address, cost)) = line.strip_prefix("0x").and_then(cost) {
                if !std::mem::take(&mut called) {
                    costs.total += cost;
                }
                if ours {
                    *costs.at.entry(address).or_default() += cost;
                }
            }
        }
        costs
    }

    fn profile(&self, held: &BTreeSet<u64>) -> Profile {
        let under_lock = self.at.iter().filter(|(address, _)| held.contains(address)).map(|(_, cost)| cost).sum();
        Profile { total: self.total, under_lock }
    }
}

/// Parses `address line cost`, where the address is hexadecimal.
fn cost(line: &str) -> Option<(u64, f64)> {
    let mut words = line.split(' ');
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    words.next()?;
    Some((address, words.next()?.parse().ok()?))
}

/// The addresses that belong to [`HOLDER`], whichever function it was inlined into. It calls
/// everything that runs under the lock, and never itself, so its calls are not counted twice.
fn held(program: &Path, at: &BTreeMap<u64, f64>) -> io::Result<BTreeSet<u64>> {
    let mut addr2line = Command::new("addr2line");
    addr2line.args(["--addresses", "--inlines", "--functions", "--demangle", "--exe"]).arg(program);
    let mut running = addr2line.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = running.stdin.take().expect("it is piped");
    let asked: String = at.keys().map(|address| format!("{address:#x}\n")).collect();
    let writing = std::thread::spawn(move || input.write_all(asked.as_bytes()));
    let answer = running.wait_with_output()?.stdout;
    writing.join().expect("no panic")?;
    Ok(addresses_in(&String::from_utf8_lossy(&answer), HOLDER))
}

/// The addresses for which the answer of addr2line names `function`.
fn addresses_in(answer: &str, function: &str) -> BTreeSet<u64> {
    let (mut found, mut address) = (BTreeSet::new(), 0);
    for line in answer.lines() {
        if let Some(next) = line.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            address = next;
        } else if line.contains(function) {
            found.insert(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_holder_does_and_calls_is_under_the_lock() {
        let text = "ob=/bin/libc\nfn=malloc\n0x10 0 7\n\nob=/bin/program\nfn=reserve\n0x20 3 5\n0x24 4 2\n\
                    cob=/bin/libc\ncfn=malloc\ncalls=1 0x10 0\n0x24 4 7\n0x28 5 1\n";
        let costs = Costs::of(text, "/bin/program");
        let answer =
            "0x0000000000000020\nreserve\n??:0\n0x0000000000000024\nInner::with_evictor\n??:0\nreserve\n??:0\n";
        let profile = costs.profile(&addresses_in(answer, "with_evictor"));
        assert_eq!(profile, Profile { total: 15.0, under_lock: 9.0 });
    }
}
