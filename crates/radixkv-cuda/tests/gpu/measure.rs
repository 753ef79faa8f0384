//! What is queued to measure the memory does what it says.

use radixkv_cuda::GpuError;

use super::driver::driver;

#[test]
fn a_copy_copies_all_or_is_refused() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for len in [0, 1, 7, 8, 9, 16, 1000, 4099, 8192] {
        let elements: Vec<u16> = (1..).take(len).collect();
        let from = device.upload(&elements).expect("memory");
        let mut to = device.zeros::<u16>(len).expect("memory");
        let unaligned = Err(GpuError::Unaligned { address: 2 * len as u64 });
        let expected = if len % 8 == 0 { Ok(()) } else { unaligned };
        assert_eq!(device.copy_all(from.view(), to.view_mut()), expected);
        assert_eq!(device.read_all(from.view()), expected);
        assert_eq!(to.to_vec(), Ok(if len % 8 == 0 { elements } else { vec![0; len] }));
    }
}

/// Whatever the sum is that keeps the kernel's loads from being left out.
#[test]
fn reading_writes_nothing() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for place in 0..4 {
        let mut elements = vec![0_u16; 8];
        elements[2 * place..2 * place + 2].copy_from_slice(&[0x5678, 0x1234]);
        let from = device.upload(&elements).expect("memory");
        device.read_all(from.view()).expect("queued");
        assert_eq!(from.to_vec(), Ok(elements));
    }
}
