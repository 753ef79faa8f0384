//! The driver that the tests run on, and the controls of the stand-in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::{Library, Symbol};
use radixkv_cuda::Device;

/// The driver of the process. One test at a time holds it: the controls of the stand-in are global.
pub struct Driver {
    stand_in: Option<&'static Library>,
    _turn: MutexGuard<'static, ()>,
}

/// The resources that [`Driver::live`] counts.
const KINDS: [&str; 7] =
    ["device allocations", "host allocations", "streams", "events", "modules", "contexts", "graphs"];

/// What [`Driver::count`] counts, as `kernels/sim/driver.hpp` numbers it.
#[derive(Debug, Clone, Copy)]
pub enum Counted {
    Launches = 0,
    CopiesToDevice = 1,
    CopiesToHost = 2,
    /// Copies between the device and memory that is not page-locked.
    PageableCopies = 5,
    /// Allocations that the memory pool asked the system for.
    PoolGrowths = 6,
    /// Allocations of page-locked memory.
    PageLocks = 7,
}

/// The driver; `None`, with a message, if there is neither a GPU nor a C++ compiler.
pub fn driver() -> Option<Driver> {
    static FOUND: OnceLock<Option<Option<Library>>> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = FOUND.get_or_init(|| {
        let simulator = std::env::var("RADIXKV_GPU").is_ok_and(|choice| choice == "simulator");
        if Path::new("/dev/nvidiactl").exists() && !simulator {
            return Some(None);
        }
        // It has the name of the driver's library: later loads of that name get it.
        // SAFETY: the stand-in's initialisers make tables; it stays loaded.
        stand_in().map(|path| Some(unsafe { Library::new(path) }.expect("the stand-in loads")))
    });
    let Some(found) = found else {
        eprintln!("skipped: no GPU and no C++ compiler for the stand-in driver");
        return None;
    };
    let driver = Driver { stand_in: found.as_ref(), _turn: turn };
    if !driver.is_stand_in() {
        // Devices that are opened beside it share its context and its kernels: they are made once
        // for all tests.
        static KEPT: OnceLock<Device> = OnceLock::new();
        KEPT.get_or_init(|| driver.open());
    }
    driver.reset();
    Some(driver)
}

/// The stand-in alone, for tests that make the driver fail.
pub fn stand_in_driver() -> Option<Driver> {
    let driver = driver()?;
    if driver.stand_in.is_none() {
        eprintln!("skipped: needs the stand-in driver (RADIXKV_GPU=simulator)");
        return None;
    }
    Some(driver)
}

impl Driver {
    pub fn is_stand_in(&self) -> bool {
        self.stand_in.is_some()
    }

    /// Opens the first device.
    pub fn open(&self) -> Device {
        Device::open(0).expect("a device")
    }

    fn control<F>(&self, name: &str) -> Option<Symbol<'static, F>> {
        // SAFETY: each caller gives the type that kernels/sim declares.
        self.stand_in.map(|library| unsafe { library.get(name) }.expect("a control of the stand-in"))
    }

    fn reset(&self) {
        if let Some(reset) = self.control::<unsafe extern "C" fn()>("rk_sim_reset") {
            // SAFETY: as declared.
            unsafe { reset() };
        }
    }

    /// Sets the order in which a kernel's threads run: 0 as numbered, 1 reversed, else random.
    pub fn schedule(&self, seed: u32) {
        if let Some(set) = self.control::<unsafe extern "C" fn(u32)>("rk_sim_seed") {
            // SAFETY: as declared.
            unsafe { set(seed) };
        }
    }

    /// Sets when queued work runs: 0 at the call, `u32::MAX` only when a thread waits, else late,
    /// with the streams interleaved by the seed.
    pub fn streams(&self, seed: u32) {
        if let Some(set) = self.control::<unsafe extern "C" fn(u32)>("rk_sim_streams") {
            // SAFETY: as declared.
            unsafe { set(seed) };
        }
    }

    /// Makes the `n`-th allocation from now fail, once.
    pub fn fail_allocation(&self, n: i64) {
        if let Some(set) = self.control::<unsafe extern "C" fn(i64)>("rk_sim_fail_alloc") {
            // SAFETY: as declared.
            unsafe { set(n) };
        }
    }

    /// Makes the `n`-th launch from now fail, once, with this status.
    pub fn fail_launch(&self, n: i64, status: i32) {
        if let Some(set) = self.control::<unsafe extern "C" fn(i64, i32)>("rk_sim_fail_launch") {
            // SAFETY: as declared.
            unsafe { set(n, status) };
        }
    }

    /// Makes the `n`-th call from now that makes, records or ends an event fail, once.
    pub fn fail_event(&self, n: i64) {
        if let Some(set) = self.control::<unsafe extern "C" fn(i64)>("rk_sim_fail_event") {
            // SAFETY: as declared.
            unsafe { set(n) };
        }
    }

    /// Sets the number of devices, their compute capability and their memory.
    pub fn device(&self, count: i32, capability: (i32, i32), bytes: u64) {
        if let Some(set) = self.control::<unsafe extern "C" fn(i32, i32, i32, u64)>("rk_sim_device") {
            // SAFETY: as declared.
            unsafe { set(count, capability.0, capability.1, bytes) };
        }
    }

    /// How many of each of [`KINDS`] are not yet freed.
    pub fn live(&self) -> [u64; KINDS.len()] {
        let Some(live) = self.control::<unsafe extern "C" fn(u32) -> u64>("rk_sim_live") else {
            return [0; KINDS.len()];
        };
        // SAFETY: as declared.
        std::array::from_fn(|kind| unsafe { live(kind as u32) })
    }

    /// How many of one of [`KINDS`] are not yet freed.
    pub fn live_of(&self, kind: &str) -> u64 {
        self.live()[KINDS.iter().position(|known| *known == kind).expect("a kind")]
    }

    /// How many calls of a kind the stand-in has seen so far; 0 on a GPU.
    pub fn count(&self, counted: Counted) -> u64 {
        let count = self.control::<unsafe extern "C" fn(u32) -> u64>("rk_sim_count");
        // SAFETY: as declared.
        count.map_or(0, |count| unsafe { count(counted as u32) })
    }

    /// Number of kernels launched so far.
    pub fn launches(&self) -> u64 {
        self.count(Counted::Launches)
    }

    /// Fails if a resource is left after all streams, also those that were destroyed, have done
    /// their work.
    pub fn assert_nothing_left(&self, after: &str) {
        if let Some(finish) = self.control::<unsafe extern "C" fn() -> u32>("cuCtxSynchronize") {
            // SAFETY: as in cuda.h; the stand-in asks for no context.
            assert_eq!(unsafe { finish() }, 0);
        }
        let live = self.live();
        let left: Vec<_> = KINDS.iter().zip(live).filter(|(_, count)| *count > 0).collect();
        assert!(left.is_empty(), "left after {after}: {left:?}");
    }
}

/// The stand-in, built from its sources, if there is a compiler.
fn stand_in() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sim-{:016x}", fingerprint(&root.join("kernels"))));
    let library = folder.join("libcuda.so.1");
    if library.exists() {
        return Some(library);
    }
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    Command::new(compiler).arg("--version").output().ok()?;
    // Built in another folder and moved, so that no process loads an unfinished file.
    let aside = folder.with_extension(std::process::id().to_string());
    let built = Command::new("bash").arg(root.join("kernels/sim/build.sh")).arg(&aside).status().ok()?;
    assert!(built.success(), "the stand-in driver does not compile");
    if std::fs::rename(&aside, &folder).is_err() {
        assert!(library.exists(), "the stand-in driver could not be put into {}", folder.display());
    }
    Some(library)
}

/// A number that changes with the sources.
fn fingerprint(folder: &Path) -> u64 {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|kind| ["cu", "cuh", "cpp", "hpp", "sh"].iter().any(|k| kind == *k))
            {
                files.push(entry);
            }
        }
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        let name = file.to_string_lossy().into_owned().into_bytes();
        for byte in name.into_iter().chain(std::fs::read(&file).expect("a source")) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}
