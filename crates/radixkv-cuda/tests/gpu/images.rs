//! Kernels compiled when the device is opened.

use std::path::Path;

use radixkv_cuda::{Device, Images, OpenError};

use super::driver::driver;

#[test]
fn a_compiler_that_is_not_there_is_named() {
    let Some(_driver) = driver() else { return };
    let nvrtc = Path::new("/nowhere/libnvrtc.so.12");
    let refused = Device::open_with(0, Images::Compile { nvrtc }).expect_err("no compiler");
    assert_eq!(refused, OpenError::NoCompiler);
}

#[cfg(target_env = "gnu")]
#[test]
fn a_library_that_is_no_compiler_is_named() {
    let Some(_driver) = driver() else { return };
    let nvrtc = Path::new("libm.so.6");
    let refused = Device::open_with(0, Images::Compile { nvrtc }).expect_err("no compiler");
    assert_eq!(refused, OpenError::CompilerIncomplete { function: "nvrtcCreateProgram" });
}

/// Needs `RADIXKV_NVRTC`: the path of the compiler's library. The system has to find the libraries
/// that this one loads.
#[test]
fn the_sources_compile_for_the_device_at_hand() {
    let Some(driver) = driver() else { return };
    let Some(nvrtc) = std::env::var_os("RADIXKV_NVRTC") else {
        eprintln!("skipped: RADIXKV_NVRTC names no run-time compiler");
        return;
    };
    let nvrtc = Path::new(&nvrtc);
    for capability in [(8, 0), (9, 0)] {
        driver.device(1, capability, 1 << 30);
        Device::open_with(0, Images::Compile { nvrtc }).expect("a device");
    }
    // A compute capability that no compiler knows.
    driver.device(1, (99, 0), 1 << 30);
    let refused = driver.is_stand_in().then(|| Device::open_with(0, Images::Compile { nvrtc }));
    assert!(matches!(refused, None | Some(Err(OpenError::Compile { .. }))), "{refused:?}");
}
