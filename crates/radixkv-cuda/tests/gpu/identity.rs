//! What belongs to a device that is gone belongs to no later one.

use radixkv_cuda::{Compare, GpuError, Runs, View};

use super::driver::{driver, stand_in_driver};

/// As many as make it likely that one lies where another did.
const DEVICES: usize = 20;

#[test]
fn a_view_of_a_device_that_is_gone_is_refused() {
    let Some(driver) = driver() else { return };
    let mut gone: Vec<View<'_, u16>> = Vec::new();
    for _ in 0..DEVICES {
        let device = driver.open();
        for view in &gone {
            assert_eq!(device.read_all(*view), Err(GpuError::WrongDevice));
        }
        // SAFETY: nothing is queued with it.
        gone.push(unsafe { View::from_raw(&device, 0x1000, 8) });
    }
}

#[test]
fn runs_of_a_device_that_is_gone_are_refused() {
    let Some(driver) = driver() else { return };
    let runs = Runs::new([&[1, 2, 3][..]]);
    let ask = || Compare::new(&driver.open()).device_tokens(0).prefix_lengths(&runs, &runs, &[(0, 0)]);
    assert_eq!(ask(), Ok(vec![3]));
    for _ in 0..DEVICES {
        assert_eq!(ask(), Err(GpuError::WrongDevice));
    }
}

#[test]
fn a_graph_keeps_its_device_open() {
    let Some(driver) = stand_in_driver() else { return };
    let device = driver.open();
    let open = driver.live();
    let graph = device.record(|| Ok(())).expect("a graph");
    drop(device);
    let [.., modules, _, _] = driver.live();
    assert_eq!(modules, open[4], "modules whose kernels a graph may start");
    drop(graph);
    driver.assert_nothing_left("a graph");
}
