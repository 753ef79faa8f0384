//! Working in a context and on a stream that somebody else made.

use std::ffi::c_void;

use libloading::Library;
use radixkv::attention::{Backend, Dtype, Order, Output};
use radixkv::gpu::{Attention, Device, Images, View, ViewMut};

use super::bed::{Bed, NAN, Sequence, Shape};
use super::driver::driver;

/// An engine's side of the driver: a context, a stream, memory.
struct Engine {
    library: Library,
    context: *mut c_void,
    stream: *mut c_void,
}

type Address = u64;

impl Engine {
    fn new() -> Self {
        // SAFETY: the driver is loaded; this is another handle of it.
        let library = unsafe { Library::new("libcuda.so.1") }.expect("the driver");
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        let engine = Self { library, context, stream };
        // SAFETY: types of cuda.h, here and below.
        engine.call(|init: unsafe extern "C" fn(u32) -> u32| unsafe { init(0) }, "cuInit");
        engine.call(
            // SAFETY: as above.
            |create: unsafe extern "C" fn(*mut *mut c_void, u32, i32) -> u32| unsafe { create(&mut context, 0, 0) },
            "cuCtxCreate_v2",
        );
        engine.call(
            // SAFETY: as above.
            |create: unsafe extern "C" fn(*mut *mut c_void, u32) -> u32| unsafe { create(&mut stream, 1) },
            "cuStreamCreate",
        );
        Self { context, stream, ..engine }
    }

    fn call<F>(&self, call: impl FnOnce(F) -> u32, name: &str)
    where
        F: Copy,
    {
        // SAFETY: each caller gives the type that cuda.h declares.
        let function = unsafe { self.library.get::<F>(name) }.expect("a function of the driver");
        assert_eq!(call(*function), 0, "{name}");
    }

    fn allocate(&self, bytes: usize) -> Address {
        let mut address = 0;
        self.call(
            // SAFETY: as above.
            |alloc: unsafe extern "C" fn(*mut Address, usize) -> u32| unsafe { alloc(&mut address, bytes) },
            "cuMemAlloc_v2",
        );
        address
    }

    fn write(&self, address: Address, elements: &[u16]) {
        type Copy = unsafe extern "C" fn(Address, *const c_void, usize, *mut c_void) -> u32;
        let bytes = std::mem::size_of_val(elements);
        // SAFETY: as above.
        let copy = |copy: Copy| unsafe { copy(address, elements.as_ptr().cast(), bytes, self.stream) };
        self.call(copy, "cuMemcpyHtoDAsync_v2");
    }

    fn read(&self, address: Address, elements: &mut [u16]) {
        type Copy = unsafe extern "C" fn(*mut c_void, Address, usize, *mut c_void) -> u32;
        let bytes = std::mem::size_of_val(elements);
        // SAFETY: as above.
        let copy = |copy: Copy| unsafe { copy(elements.as_mut_ptr().cast(), address, bytes, self.stream) };
        self.call(copy, "cuMemcpyDtoHAsync_v2");
        // SAFETY: as above.
        self.call(|wait: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { wait(self.stream) }, "cuStreamSynchronize");
    }

    fn leave(self, memory: &[Address]) {
        for address in memory {
            // SAFETY: as above.
            self.call(|free: unsafe extern "C" fn(Address) -> u32| unsafe { free(*address) }, "cuMemFree_v2");
        }
        // SAFETY: as above.
        self.call(|end: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { end(self.stream) }, "cuStreamDestroy_v2");
        // SAFETY: as above. The context is still there: nobody else has destroyed it.
        self.call(|end: unsafe extern "C" fn(*mut c_void) -> u32| unsafe { end(self.context) }, "cuCtxDestroy_v2");
    }
}

#[test]
fn an_engine_brings_its_context_stream_and_buffers() {
    let Some(driver) = driver() else { return };
    let shape = Shape {
        dtype: Dtype::F16,
        head_dim: 64,
        kv_heads: 2,
        group: 4,
        block_size: 32,
        order: Order::Hnd,
        layers: 2,
        layer: 1,
    };
    for seed in 0..6 {
        driver.streams(seed);
        let bed = Bed::new(u64::from(seed) + 1, shape, &[Sequence { before: 200, rows: 1, shared: 0 }; 3], true);
        let engine = Engine::new();
        let address = |elements: &[u16]| {
            let address = engine.allocate(elements.len() * 2);
            engine.write(address, elements);
            address
        };
        let [queries, keys, values] = [&bed.queries, &bed.keys, &bed.values].map(|elements| address(elements));
        let out = address(&vec![NAN; bed.queries.len()]);
        {
            // SAFETY: the engine's context and stream end after the device.
            let device =
                unsafe { Device::within(0, engine.context, engine.stream, Images::Prebuilt) }.expect("a device");
            let attention = Attention::new(&device);
            let mut kv = attention.allocate(bed.layout).expect("memory");
            kv.write(&bed.storage).expect("a copy");
            let batch = attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
            // SAFETY: the engine's buffers, filled on the same stream, which end after the device.
            let view = |address, len| unsafe { View::<u16>::from_raw(&device, address, len) };
            let (k, v) = (view(keys, bed.keys.len()), view(values, bed.values.len()));
            attention.append(&kv, 1, &batch, k, v).expect("appended");
            // SAFETY: as above.
            let rows = unsafe { ViewMut::<u16>::from_raw(&device, out, bed.queries.len()) };
            let queries = view(queries, bed.queries.len());
            attention.decode(&kv, 1, &batch, queries, Output { rows, lse: None }).expect("decoded");
        }
        // Read on the engine's stream, without a wait in between.
        let mut outputs = vec![0; bed.queries.len()];
        engine.read(out, &mut outputs);
        bed.check(&format!("decode, seed {seed}"), &outputs, None);
        engine.leave(&[queries, keys, values, out]);
        driver.assert_nothing_left("the engine left");
    }
}
