//! Stopping another thread wherever it is: a signal whose handler sleeps until it is let go on.

use std::ffi::c_int;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;
use std::{fs, ptr, thread};

/// A thread, as the system knows it.
pub type Tid = i32;

/// Between two looks at the other thread, which needs the processor more.
const MOMENT: Duration = Duration::from_micros(5);

/// Words of a stopped thread's stack that are kept: there is as much above any stack's first frame.
const WORDS: usize = 256;

static IS_STOPPED: AtomicBool = AtomicBool::new(false);
/// The end of a pipe that stopped threads read a byte from.
static GATE: AtomicI32 = AtomicI32::new(-1);
/// Where the stopped thread was, and what lay on its stack.
static TRACE: [AtomicUsize; WORDS] = [const { AtomicUsize::new(0) }; WORDS];

/// The calling thread.
pub fn this_thread() -> Tid {
    // SAFETY: has no conditions.
    unsafe { libc::gettid() }
}

/// The thread of this process with that name.
pub fn thread_named(name: &str) -> Option<Tid> {
    let threads = fs::read_dir("/proc/self/task").expect("the system lists a process's threads");
    let named = |tid: &Tid| fs::read_to_string(format!("/proc/self/task/{tid}/comm")).is_ok_and(|it| it.trim() == name);
    threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok()).find(named)
}

/// A thread that is stopped, and goes on when this is dropped. One at a time.
pub struct Stopped(());

impl Stopped {
    /// Stops `thread` at the instruction that it is about to execute; returns when it stands.
    pub fn at_once(thread: Tid) -> Self {
        let signal = *SIGNAL.get_or_init(install);
        // SAFETY: has no conditions: a thread that is not there is an error.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, signal) };
        assert_eq!(sent, 0, "the thread is there");
        while !IS_STOPPED.load(Acquire) {
            thread::sleep(MOMENT);
        }
        Self(())
    }

    /// Where it stands, and what it may have been called by: functions of this program whose
    /// addresses lie on its stack.
    pub fn trace(&self) -> String {
        let program = fs::read_link("/proc/self/exe").expect("the program knows its file");
        let maps = fs::read_to_string("/proc/self/maps").expect("the system lists a process's mappings");
        let ours = maps.lines().filter(|line| line.ends_with(&*program.to_string_lossy()));
        let range = |line: &str| {
            let (from, rest) = line.split_once('-')?;
            let (to, rest) = rest.split_once(' ')?;
            let word = |text| usize::from_str_radix(text, 16).ok();
            Some((word(from)?, word(to)?, rest.contains("r-x")))
        };
        let ranges: Vec<_> = ours.filter_map(range).collect();
        let base = ranges.iter().map(|range| range.0).min().unwrap_or(0);
        let is_code = |word: &usize| ranges.iter().any(|(from, to, code)| *code && (from..to).contains(&word));
        let words = TRACE.iter().map(|word| word.load(Relaxed));
        let places: Vec<_> = words.filter(is_code).map(|word| format!("{:#x}", word - base)).collect();
        let named = Command::new("addr2line").arg("-pfCe").arg(&program).args(&places).output();
        let Ok(named) = named else { return places.join(" ") };
        let mut lines: Vec<_> = std::str::from_utf8(&named.stdout).unwrap_or_default().lines().collect();
        lines.dedup();
        lines.join("\n")
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let byte = 0_u8;
        // SAFETY: one byte that is there is written to a pipe that is never closed.
        let written = unsafe { libc::write(*OPENER.get().expect("installed"), ptr::from_ref(&byte).cast(), 1) };
        assert_eq!(written, 1, "the pipe takes a byte");
        while IS_STOPPED.load(Acquire) {
            thread::sleep(MOMENT);
        }
    }
}

static SIGNAL: OnceLock<c_int> = OnceLock::new();
static OPENER: OnceLock<c_int> = OnceLock::new();

/// Makes the pipe and sets the handler; the signal to send.
fn install() -> c_int {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    let made = unsafe { libc::pipe(ends.as_mut_ptr()) };
    assert_eq!(made, 0, "the system has pipes");
    GATE.store(ends[0], Relaxed);
    OPENER.get_or_init(|| ends[1]);
    let signal = libc::SIGUSR2;
    // SAFETY: all zeros are a valid value: no flags, an empty set.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = halt as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the action is initialised; nothing is asked about the one of before.
    let set = unsafe { libc::sigaction(signal, &action, ptr::null_mut()) };
    assert_eq!(set, 0, "the signal can be handled");
    signal
}

/// Runs on the thread that is stopped: allocates nothing, takes no lock, leaves `errno` as it was.
extern "C" fn halt(_: c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: has no conditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: points to this thread's own.
    let before = unsafe { *errno };
    note(context);
    IS_STOPPED.store(true, Release);
    let mut byte = 0_u8;
    loop {
        // SAFETY: there is room for a byte; the pipe is never closed.
        let read = unsafe { libc::read(GATE.load(Relaxed), ptr::from_mut(&mut byte).cast(), 1) };
        if read == 1 {
            break;
        }
    }
    IS_STOPPED.store(false, Release);
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Notes where the thread stands.
#[cfg(target_arch = "x86_64")]
fn note(context: *mut libc::c_void) {
    // SAFETY: the system gives a handler with `SA_SIGINFO` a context of this type.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let registers = &context.uc_mcontext.gregs;
    let register = |number: c_int| registers[number as usize] as usize;
    TRACE[0].store(register(libc::REG_RIP), Relaxed);
    let stack = ptr::with_exposed_provenance::<usize>(register(libc::REG_RSP));
    for (i, word) in TRACE.iter().enumerate().skip(1) {
        // SAFETY: above the top of a thread's stack lies the thread's own record, which is larger
        // than this.
        word.store(unsafe { stack.wrapping_add(i - 1).read_volatile() }, Relaxed);
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn note(_: *mut libc::c_void) {}
