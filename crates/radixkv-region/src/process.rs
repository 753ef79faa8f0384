//! The name of a process, by which another one can tell that it has gone.
//!
//! One word, so that a slot is taken by one compare-and-swap:
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 0 to 21 | pid | as its own PID namespace counts; never 0 |
//! | 22 to 41 | start | when it began, in ticks since the boot, cut: a pid that is used again is another process |
//! | 42 to 61 | namespace | of pids and of time |
//! | 62 | `LOCKED` | a lock on the region's file says whether the process lives, and nothing else |
//! | 63 | `RECOVERING` | the process takes back what the slot's last owner held |
//!
//! Every doubt counts as *alive*: what a living process writes must never be given to another one.

use std::{fs, path::PathBuf};

use rustix::{io::Errno, process::Pid};

const PID: u64 = (1 << 22) - 1;
const START_AT: u32 = 22;
const START: u64 = (1 << 20) - 1;
const NAMESPACE_AT: u32 = 42;
const NAMESPACE: u64 = (1 << 20) - 1;
const LOCKED: u64 = 1 << 62;
const RECOVERING: u64 = 1 << 63;

/// The first number that Linux gives to a namespace.
const FIRST_NAMESPACE: u64 = 0xf000_0000;

/// A process, as one word; zero is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessId(u64);

impl ProcessId {
    /// No process.
    pub(crate) const NONE: Self = Self(0);

    /// The process that asks.
    pub(crate) fn own() -> Self {
        let pid = std::process::id();
        Self::new(pid, start_of(pid).unwrap_or(0), namespace())
    }

    fn new(pid: u32, start: u64, namespace: u64) -> Self {
        let (start, namespace) = ((start & START) << START_AT, (namespace & NAMESPACE) << NAMESPACE_AT);
        Self(u64::from(pid) & PID | start | namespace)
    }

    /// A process that had this one's pid and has gone; each number is another one.
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

    /// This process in a model, or one that has gone: asked for once, models begin many times.
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

    /// 0 if it was not known.
    fn start(self) -> u64 {
        self.0 >> START_AT & START
    }

    /// The same process, while it takes back what a dead one held.
    pub(crate) fn recovering(self) -> Self {
        Self(self.0 | RECOVERING)
    }

    /// The same process, with a lock on the byte of its slot.
    pub(crate) fn locked(self) -> Self {
        Self(self.0 | LOCKED)
    }

    /// Whether a lock says that the process lives.
    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    /// Whether it is this process, whatever it does.
    pub(crate) fn is_of(self, own: Self) -> bool {
        (self.0 ^ own.0) & !(LOCKED | RECOVERING) == 0
    }

    /// Whether the process has surely gone, as `own` can tell: it is of the same namespaces, and its pid is not in use,
    /// or by a process that began at another time.
    pub(crate) fn is_dead(self, own: Self) -> bool {
        if self == Self::NONE || (self.0 ^ own.0) >> NAMESPACE_AT & NAMESPACE != 0 {
            return false;
        }
        let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) else {
            // Of no process: the memory was damaged.
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
}

/// The fields of `/proc/PID/stat` from the state on.
fn stat(pid: u32) -> Option<Vec<String>> {
    if !proc_is_ours() {
        return None;
    }
    let stat = fs::read_to_string(of(pid, "stat")).ok()?;
    // The name of the command stands in brackets, and may have any character in it.
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// When a process began, in ticks; nothing where the system does not say.
fn start_of(pid: u32) -> Option<u64> {
    stat(pid)?.get(19)?.parse().ok()
}

/// Whether a process has ended, with all its threads, and its parent has not asked how.
fn is_left_over(pid: u32) -> bool {
    let has_ended = stat(pid).is_some_and(|fields| fields.first().is_some_and(|state| state == "Z" || state == "X"));
    // A first thread that has ended while others run looks the same.
    has_ended && fs::read_dir(of(pid, "task")).is_ok_and(|threads| threads.count() <= 1)
}

/// Whether `/proc` counts as this process does: the one of another namespace may be mounted there.
fn proc_is_ours() -> bool {
    fs::read_link("/proc/self").is_ok_and(|link| link.to_str() == Some(&std::process::id().to_string()))
}

fn of(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// The namespaces of pids and time, in one number: Linux numbers them one after another.
fn namespace() -> u64 {
    let number = |kind| {
        let link = fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
        let (_, number) = link.to_str()?.split_once('[')?;
        number.strip_suffix(']')?.parse::<u64>().ok()
    };
    let [pids, time] = ["pid", "time"].map(|kind| number(kind).unwrap_or(0).wrapping_sub(FIRST_NAMESPACE));
    pids.wrapping_add(time.wrapping_mul(0x9e37_79b1))
}

/// The life of the kernel that the process runs on, as a number; 0 where the system does not say.
pub(crate) fn boot() -> u64 {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.bytes()
        .filter(u8::is_ascii_hexdigit)
        .fold(0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Milliseconds since the boot, sleep included: the same for all processes of the host.
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
        // Its pid, used by a process of another time, and in a namespace that this one cannot judge.
        let start = start_of(child.id()).expect("a start");
        assert!(ProcessId::new(child.id(), start + 1, namespace()).is_dead(own));
        assert!(!ProcessId::new(child.id(), start + 1, namespace() + 1).is_dead(own));
        child.kill().expect("killed");
        // Until its parent asks, it is a zombie.
        while start_of(child.id()).is_some_and(|_| !is_left_over(child.id())) {
            std::thread::yield_now();
        }
        assert!(name.is_dead(own));
        child.wait().expect("waited for");
        assert!(name.is_dead(own));
    }
}
