//! The helpers of the kernels on the device: each gives what the simulator gives.

use std::ffi::{c_char, c_void};

use super::driver::driver;
use super::engine::{Address, Engine};

/// Words of each of 32 lanes, as `abi.cuh` counts them: those that are equal bit by bit, and the
/// floats after them.
const EXACT: usize = 44 * 32;
const ALL: usize = EXACT + 3 * 32;

const EXPECTED: &[u8] = include_bytes!("../../kernels/bench/selftest.expected");
const SM_80: &[u8] = include_bytes!("../../kernels/prebuilt/selftest.sm_80.cubin");
const SM_90: &[u8] = include_bytes!("../../kernels/prebuilt/selftest.sm_90.cubin");
const PTX: &str = concat!(include_str!("../../kernels/prebuilt/selftest.compute_80.ptx"), "\0");

type LoadModule = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> u32;
type GetFunction = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> u32;
type Launch = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> u32;

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

/// What `rk_selftest` of this image writes.
fn run(image: &[u8]) -> Vec<u32> {
    let engine = Engine::new();
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: types of cuda.h, here and below; the image is whole, and PTX ends with a zero.
    engine.call(|load: LoadModule| unsafe { load(&mut module, image.as_ptr().cast()) }, "cuModuleLoadData");
    let name = c"rk_selftest";
    // SAFETY: as above.
    engine.call(|get: GetFunction| unsafe { get(&mut function, module, name.as_ptr()) }, "cuModuleGetFunction");
    let mut out: Address = engine.allocate(4 * ALL);
    engine.write(out, &vec![0xffff; 2 * ALL]);
    let mut arguments = [(&raw mut out).cast::<c_void>()];
    let none = std::ptr::null_mut();
    let launch = |launch: Launch| {
        // SAFETY: as above; the kernel takes one struct, of an address.
        unsafe { launch(function, 1, 1, 1, 32, 1, 1, 0, engine.stream(), arguments.as_mut_ptr(), none) }
    };
    engine.call(launch, "cuLaunchKernel");
    let mut halves = vec![0; 2 * ALL];
    engine.read(out, &mut halves);
    // SAFETY: as above.
    engine.call(|unload: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { unload(module) }, "cuModuleUnload");
    engine.leave(&[out]);
    halves.chunks_exact(2).map(|pair| u32::from(pair[0]) | u32::from(pair[1]) << 16).collect()
}

#[test]
fn the_helpers_give_what_the_simulator_gives() {
    let Some(driver) = driver() else { return };
    let (major, _) = driver.open().properties().capability;
    let images: &[&[u8]] = match major {
        8 => &[SM_80, PTX.as_bytes()],
        9 => &[SM_90, PTX.as_bytes()],
        _ => &[PTX.as_bytes()],
    };
    let expected = words(EXPECTED);
    assert_eq!(expected.len(), ALL);
    for image in images {
        for schedule in 0..3 {
            driver.schedule(schedule);
            let got = run(image);
            for (at, (got, expected)) in got.into_iter().zip(&expected).enumerate() {
                let (real, wanted) = (f64::from(f32::from_bits(got)), f64::from(f32::from_bits(*expected)));
                let close = (real - wanted).abs() <= 1e-6 + 1e-5 * wanted.abs() || real == wanted;
                let right = if at < EXACT { got == *expected } else { close };
                assert!(right, "word {} of lane {}: {got:08x}, not {expected:08x}", at / 32, at % 32);
            }
        }
    }
    driver.assert_nothing_left("the self-test");
}
