//! Process ids that tell other processes whether their process has ended. `slots` stores them.
//!
//! An id is one word, so that one compare-and-swap takes a slot:
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 0 to 21 | pid | in its own PID namespace; never 0 |
//! | 22 to 41 | start | low bits of the start time, in ticks since the boot: they tell a reused pid apart |
//! | 42 to 61 | namespace | identifies the PID and time namespaces; 0 if they are not known |
//! | 62 | `LOCKED` | only a lock on the region's file says whether the process lives |
//! | 63 | `RECOVERING` | the process recovers what the slot's previous owner held |
//!
//! In doubt a process counts as *alive*: an entry that a living process writes must never be given
//! to another one.

use std::{fs, path::PathBuf};

use rustix::{io::Errno, process::Pid};

const PID: u64 = (1 << 22) - 1;
const START_AT: u32 = 22;
const START: u64 = (1 << 20) - 1;
const NAMESPACE_AT: u32 = 42;
const NAMESPACE: u64 = (1 << 20) - 1;
const UNKNOWN: u64 = 0;
const LOCKED: u64 = 1 << 62;
const RECOVERING: u64 = 1 << 63;

/// The first inode number that Linux gives to a namespace.
const FIRST_NAMESPACE: u64 = 0xf000_0000;

/// A process, as one word; zero means no process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessId(u64);

impl ProcessId {
    /// No process.
    pub(crate) const NONE: Self = Self(0);

    /// The calling process.
    pub(crate) fn own() -> Self {
        let pid = std::process::id();
        Self::new(pid, start_of(pid).unwrap_or(0), namespace())
    }

    fn new(pid: u32, start: u64, namespace: u64) -> Self {
        let (start, namespace) = ((start & START) << START_AT, (namespace & NAMESPACE) << NAMESPACE_AT);
        Self(u64::from(pid) & PID | start | namespace)
    }

    /// An ended process with this one's pid; each `number` is a different process.
    #[cfg(any(test, radixkv_loom))]
    pub(crate) fn gone(number: u64) -> Self {
        let pid = std::process::id();
        Self::new(pid, start_of(pid).map_or(0, |start| start + number), namespace())
    }

    /// A process with this one's pid in another namespace.
    #[cfg(test)]
    pub(crate) fn elsewhere(number: u64) -> Self {
        let pid = std::process::id();
        Self::new(pid, start_of(pid).map_or(0, |start| start + number), namespace() + 1)
    }

    /// This process in a model, or one that has ended. Computed only once, because models begin
    /// many times.
    #[cfg(radixkv_loom)]
    pub(crate) fn of_model(is_dead: bool) -> Self {
        static BOTH: std::sync::OnceLock<[ProcessId; 2]> = std::sync::OnceLock::new();
        BOTH.get_or_init(|| [Self::own(), Self::gone(1)])[usize::from(is_dead)]
    }

    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    pub(crate) fn pid(self) -> u32 {
        (self.0 & PID) as u32
    }

    /// The low bits of the start time; 0 if it was not known.
    fn start(self) -> u64 {
        self.0 >> START_AT & START
    }

    /// The same process, while it recovers what a dead process held.
    pub(crate) fn recovering(self) -> Self {
        Self(self.0 | RECOVERING)
    }

    /// The same process, with a lock on the byte of its slot.
    pub(crate) fn locked(self) -> Self {
        Self(self.0 | LOCKED)
    }

    /// Whether a lock on the region's file says that the process lives.
    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// Whether it is the process `own`, whatever its flags.
    pub(crate) fn is_of(self, own: Self) -> bool {
        (self.0 ^ own.0) & !(LOCKED | RECOVERING) == 0
    }

    /// Whether the process has surely ended, as far as `own` can tell. It must be in the same
    /// namespaces, which must be known, and its pid must be unused, or used by a process with another
    /// start time or by a zombie.
    pub(crate) fn is_dead(self, own: Self) -> bool {
        if self == Self::NONE || self.namespace() == UNKNOWN || self.namespace() != own.namespace() {
            return false;
        }
        let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) else {
            // No process has this pid: the memory was damaged.
            return true;
        };
        if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) {
            return true;
        }
        match start_of(self.pid()) {
            Some(start) => (self.start() != 0 && start & START != self.start()) || is_left_over(self.pid()),
            None => false,
        }
    }

    /// The PID and time namespaces of the process; `UNKNOWN` if they were not known.
    fn namespace(self) -> u64 {
        self.0 >> NAMESPACE_AT & NAMESPACE
    }
}

/// The fields of `/proc/PID/stat`, beginning with the state.
fn stat(pid: u32) -> Option<Vec<String>> {
    if !proc_is_ours() {
        return None;
    }
    let stat = fs::read_to_string(of(pid, "stat")).ok()?;
    // The command's name is in parentheses, and may contain any character.
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// When a process began, in ticks since the boot; `None` if the system does not say.
fn start_of(pid: u32) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

/// Whether a process has ended with all its threads, but its parent has not waited for it.
fn is_left_over(pid: u32) -> bool {
    let has_ended = stat(pid).is_some_and(|fields| fields.first().is_some_and(|state| state == "Z" || state == "X"));
    // A process whose first thread has ended while others run also looks like this.
    has_ended && fs::read_dir(of(pid, "task")).is_ok_and(|threads| threads.count() <= 1)
}

/// Whether `/proc` shows this process's PID namespace; a mount may show another one.
fn proc_is_ours() -> bool {
    fs::read_link("/proc/self").is_ok_and(|link| link.to_str() == Some(&std::process::id().to_string()))
}

fn of(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// The PID and time namespaces of this process as one number; `UNKNOWN` if the system does not say.
fn namespace() -> u64 {
    // Other systems have no such namespaces.
    if !cfg!(target_os = "linux") {
        return 1;
    }
    let number = |kind| {
        let link = fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
        let (_, number) = link.to_str()?.split_once('[')?;
        number.strip_suffix(']')?.parse::<u64>().ok()
    };
    namespace_of(number("pid"), number("time"))
}

/// The namespaces with these inode numbers as one number. Linux numbers namespaces consecutively;
/// older kernels have no time namespaces.
fn namespace_of(pids: Option<u64>, time: Option<u64>) -> u64 {
    let Some(pids) = pids else { return UNKNOWN };
    let [pids, time] = [pids, time.unwrap_or(0)].map(|number| number.wrapping_sub(FIRST_NAMESPACE));
    1 + pids.wrapping_add(time.wrapping_mul(0x9e37_79b1)) % NAMESPACE
}

/// The current boot of the kernel, as a number; 0 if the system does not say.
pub(crate) fn boot() -> u64 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.bytes()
        .filter(u8::is_ascii_hexdigit)
        .fold(0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Milliseconds since the boot, including sleep: the same for all processes of the host.
pub(crate) fn now() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1000) + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn living_processes_are_not_dead_and_dead_ones_are() {
        let own = ProcessId::own();
        assert!(!own.is_dead(own) && !own.recovering().is_dead(own) && !ProcessId::NONE.is_dead(own));
        let mut child = Command::new("sleep").arg("20").stdin(Stdio::null()).spawn().expect("a child");
        let name = ProcessId::new(child.id(), start_of(child.id()).expect("a start"), namespace());
        assert!(!name.is_dead(own));
        // The same pid with another start time, and in a namespace that this process cannot judge.
        let start = start_of(child.id()).expect("a start");
        assert!(ProcessId::new(child.id(), start + 1, namespace()).is_dead(own));
        assert!(!ProcessId::new(child.id(), start + 1, namespace() + 1).is_dead(own));
        child.kill().expect("killed");
        // Until its parent waits for it, it is a zombie.
        while start_of(child.id()).is_some_and(|_| !is_left_over(child.id())) {
            std::thread::yield_now();
        }
        assert!(name.is_dead(own));
        child.wait().expect("waited for");
        assert!(name.is_dead(own));
    }

    /// Where `/proc` is not mounted, two containers may have one pid.
    // Holds: RG8.
    #[test]
    fn processes_in_namespaces_that_are_not_known_are_alive() {
        let (own, start) = (ProcessId::own(), start_of(std::process::id()).expect("a start"));
        let [known, unknown] = [namespace(), UNKNOWN].map(|namespace| ProcessId::new(own.pid(), start + 1, namespace));
        assert!(known.is_dead(own) && !unknown.is_dead(own) && !known.is_dead(unknown) && !unknown.is_dead(unknown));
        assert_eq!(namespace_of(None, Some(FIRST_NAMESPACE)), UNKNOWN);
        // Every known one has a number, also on a kernel without time namespaces.
        let numbers = (0..3 * NAMESPACE).map(|number| namespace_of(Some(FIRST_NAMESPACE + number), None));
        assert!(numbers.clone().all(|number| number != UNKNOWN && number <= NAMESPACE));
    }
}
