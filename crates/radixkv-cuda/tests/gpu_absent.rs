//! Opening a device without a driver, or with one that lacks functions or is too old, says so.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use libloading::Library;
use radixkv_cuda::{Device, OpenError};

/// One test, because the driver that is loaded belongs to the whole process; others open devices in
/// processes of their own.
// Holds: GP1.
#[test]
fn what_is_missing_is_named() {
    match Device::open(0) {
        Err(OpenError::NoDriver) => {}
        // A machine with a driver: no other one can be loaded in its place.
        Ok(device) => return eprintln!("skipped: {device} is there"),
        Err(error) => return eprintln!("skipped: a driver is there: {error}"),
    }
    let Some(empty) = Driver::of("") else { return eprintln!("skipped: no C compiler for drivers to refuse") };
    drop(empty);
    // A driver gets the function that it is said to lack, until it has all of them.
    let mut has = BTreeSet::new();
    let refused = loop {
        match open_with(&has, 11_080) {
            OpenError::DriverIncomplete { function } => assert!(has.insert(function), "{function} is there"),
            other => break other,
        }
    };
    assert!(has.len() > 30);
    assert_eq!(refused, OpenError::DriverTooOld { version: 11_080, needed: 12_000 });
    assert_eq!(open_with(&has, 0), OpenError::DriverTooOld { version: 0, needed: 12_000 });
    // Of a whole driver and an unfinished one of the name that the binding asks for first, the
    // latter is looked at.
    {
        let _whole = Driver::of(&source(&has, 12_040)).expect("a driver");
        let _stub = Driver::named("libcuda.so", "").expect("a driver");
        assert!(matches!(Device::open(0), Err(OpenError::DriverIncomplete { .. })));
    }
    // None of these drivers is kept: without one, opening fails as at first.
    assert!(matches!(Device::open(0), Err(OpenError::NoDriver)));
}

/// Containers mount drivers where the loader does not look: each such folder is tried. The loader
/// tells, if it is asked to.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn folders_beside_the_loaders_path_are_tried() {
    let this = std::env::current_exe().expect("this program");
    let mut opening = Command::new(this);
    opening.args(["--exact", "what_is_missing_is_named", "--nocapture"]).env("LD_DEBUG", "files").env("CC", "/nowhere");
    let said = opening.output().expect("it runs");
    let said = String::from_utf8_lossy(&said.stderr);
    if !said.contains("skipped: no C compiler") {
        return eprintln!("skipped: a driver is there");
    }
    for folder in ["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"] {
        assert!(said.contains(&format!("file={folder}/libcuda.so.1 ")), "{folder} is not tried");
    }
}

/// The error of opening a device with a driver of these functions and this version.
fn open_with(functions: &BTreeSet<&str>, version: i32) -> OpenError {
    let _driver = Driver::of(&source(functions, version)).expect("a driver");
    Device::open(0).expect_err("not a whole driver")
}

/// A driver of these functions and this version, in C.
fn source(functions: &BTreeSet<&str>, version: i32) -> String {
    let mut source = String::new();
    for function in functions {
        let _ = match *function {
            "cuDriverGetVersion" => writeln!(source, "int {function}(int *v) {{ *v = {version}; return 0; }}"),
            _ => writeln!(source, "int {function}() {{ return 999; }}"),
        };
    }
    source
}

/// A driver, loaded in the place of NVIDIA's until it is dropped.
struct Driver {
    _library: Library,
    folder: PathBuf,
}

impl Driver {
    /// A driver compiled from C, if there is a compiler.
    fn of(source: &str) -> Option<Self> {
        Self::named("libcuda.so.1", source)
    }

    /// The same under another name.
    fn named(name: &str, source: &str) -> Option<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("driver-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (text, library) = (folder.join("driver.c"), folder.join(name));
        std::fs::write(&text, source).expect("a source");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let soname = format!("-Wl,-soname,{name}");
        let options = ["-shared", "-fPIC", "-w", &soname, "-o"];
        let built = Command::new(compiler).args(options).args([&library, &text]).status().ok()?;
        assert!(built.success(), "the driver does not compile");
        // SAFETY: it has no initialisers.
        let _library = unsafe { Library::new(&library) }.expect("the driver loads");
        Some(Self { _library, folder })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
