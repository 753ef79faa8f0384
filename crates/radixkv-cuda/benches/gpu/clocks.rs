//! The clocks of a GPU, by the library that comes with its driver.

use std::ffi::c_void;

use libloading::Library;

const NAMES: [&str; 3] =
    ["libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];

/// Kinds of clocks in nvml.h.
const MULTIPROCESSORS: u32 = 1;
const MEMORY: u32 = 2;

/// The first GPU, as that library knows it.
pub struct Clocks {
    library: Library,
    gpu: *mut c_void,
}

/// MHz of the multiprocessors and of the memory.
#[derive(Debug, Clone, Copy)]
pub struct Megahertz {
    pub multiprocessors: u32,
    pub memory: u32,
}

impl Clocks {
    /// `None` where there is no such library, or it knows no GPU.
    pub fn open() -> Option<Self> {
        // SAFETY: its initialisers run in every program that asks for clocks.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        // SAFETY: the type is that of nvml.h.
        let init = unsafe { library.get::<unsafe extern "C" fn() -> u32>("nvmlInit_v2") }.ok().map(|init| *init)?;
        type Find = unsafe extern "C" fn(u32, *mut *mut c_void) -> u32;
        // SAFETY: as above.
        let find = unsafe { library.get::<Find>("nvmlDeviceGetHandleByIndex_v2") }.ok().map(|find| *find)?;
        let mut gpu = std::ptr::null_mut();
        // SAFETY: as declared; it writes one handle to the address given.
        let found = unsafe { init() } == 0 && unsafe { find(0, &mut gpu) } == 0;
        found.then_some(Self { library, gpu })
    }

    /// The clocks at this moment.
    pub fn now(&self) -> Option<Megahertz> {
        Some(Megahertz { multiprocessors: self.read(MULTIPROCESSORS)?, memory: self.read(MEMORY)? })
    }

    fn read(&self, which: u32) -> Option<u32> {
        type Read = unsafe extern "C" fn(*mut c_void, u32, *mut u32) -> u32;
        // SAFETY: the type is that of nvml.h.
        let read = unsafe { self.library.get::<Read>("nvmlDeviceGetClockInfo") }.ok()?;
        let mut megahertz = 0;
        // SAFETY: the handle is of this library; it writes one number to the address given.
        (unsafe { read(self.gpu, which, &mut megahertz) } == 0).then_some(megahertz)
    }
}
