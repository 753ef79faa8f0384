//! Two devices are open, and what belongs to one is given to the other.

use radixkv_attention::plan::{Rule, share};
use radixkv_attention::{Backend, Output, Qkv, ShapeError};
use radixkv_cuda::{Buffer, Capacity, Cascade, Device, GpuError, HostPool, Prepared, Swap, ViewMut};

use super::attention::{EAGER, Subject};
use super::bed::{Bed, Sequence, Shape};
use super::driver::{driver, stand_in_driver};
use super::engine::Engine;

fn bed() -> Bed {
    Bed::new(3, Shape::SMALL, &[Sequence::one(40); 2], true)
}

/// What operations read, of one device.
struct Side<'a> {
    run: Subject<'a>,
    batch: Prepared,
    cascade: Cascade,
    queries: Buffer<u16>,
    rows: Buffer<u16>,
}

impl<'a> Side<'a> {
    fn new(device: &'a Device, bed: &Bed) -> Self {
        let run = Subject::new(device, bed.layout, &bed.storage);
        let sharing = share(bed.batch().tables, &bed.contexts, 16, Rule { grain_tokens: 16, ..EAGER });
        Self {
            batch: run.attention.prepare(&bed.layout, &bed.batch()).expect("a batch"),
            cascade: run.attention.prepare_cascade(&bed.layout, &bed.batch(), &sharing).expect("a cascade"),
            queries: device.upload(&bed.queries).expect("memory"),
            rows: device.upload(&bed.keys).expect("memory"),
            run,
        }
    }
}

/// What operations write, of both devices.
struct Outs {
    rows: [Buffer<u16>; 2],
    lse: [Buffer<f32>; 2],
}

impl Outs {
    /// Bit 0 chooses the rows, bit 1 the log-sum-exps.
    fn of(&mut self, mix: usize) -> Output<ViewMut<'_, u16>, ViewMut<'_, f32>> {
        Output { rows: self.rows[mix & 1].view_mut(), lse: Some(self.lse[mix >> 1 & 1].view_mut()) }
    }
}

/// Every operation, with every part from either device: all have to be of the backend's own.
#[test]
fn operations_take_the_parts_of_one_device() {
    let Some(driver) = driver() else { return };
    let (devices, bed) = ([driver.open(), driver.open()], bed());
    let sides = devices.each_ref().map(|device| Side::new(device, &bed));
    let mut outs = Outs {
        rows: devices.each_ref().map(|device| device.zeros(bed.queries.len()).expect("memory")),
        lse: devices.each_ref().map(|device| device.zeros(2 * bed.query_heads).expect("memory")),
    };
    let attention = &sides[0].run.attention;
    for mix in 0..1_usize << 8 {
        let of = |part: usize| &sides[mix >> part & 1];
        let (kv, batch, cascade) = (&of(0).run.kv, &of(1).batch, &of(2).cascade);
        let (queries, keys, values) = (of(3).queries.view(), of(4).rows.view(), of(5).rows.view());
        let expected = |parts: usize| if mix & parts == 0 { Ok(()) } else { Err(GpuError::WrongDevice) };
        assert_eq!(attention.append(kv, 1, batch, keys, values), expected(0b11_0011), "{mix:08b}");
        assert_eq!(attention.decode(kv, 1, batch, queries, outs.of(mix >> 6)), expected(0b1100_1011), "{mix:08b}");
        let new = Qkv { queries, keys, values };
        assert_eq!(attention.extend(kv, 1, batch, new, outs.of(mix >> 6)), expected(0b1111_1011), "{mix:08b}");
        let done = attention.cascade(kv, 1, batch, cascade, queries, outs.of(mix >> 6));
        assert_eq!(done, expected(0b1100_1111), "{mix:08b}");
        assert_eq!(attention.copy_blocks(kv, &[(0, 1)]), expected(1), "{mix:08b}");
    }
}

/// Page-locked memory is of a context, and a device of another one cannot reach it.
#[test]
fn swaps_take_a_host_pool_of_their_context() {
    let Some(driver) = stand_in_driver() else { return };
    let (engine, bed) = (Engine::new(), bed());
    let [one, other, elsewhere] = [driver.open(), driver.open(), engine.device()];
    let kv = Subject::new(&one, bed.layout, &bed.storage).kv;
    let swap = Swap::new(&one).expect("a stream");
    let hosts = [&one, &other, &elsewhere].map(|device| HostPool::new(device, &bed.layout, 1).expect("memory"));
    for (host, expected) in hosts.iter().zip([Ok(()), Ok(()), Err(GpuError::WrongDevice)]) {
        let transfer = swap.swap_out(&kv, host, &[(0, 0)]);
        assert_eq!(transfer.as_ref().map(drop), expected.as_ref().map(drop));
        // Any stream can wait for it.
        assert!(transfer.is_ok_and(|transfer| transfer.wait_on_device(&other).is_ok()) == expected.is_ok());
    }
    drop((hosts, swap, kv, one, other, elsewhere));
    engine.leave(&[]);
    driver.assert_nothing_left("two contexts");
}

/// A cascade has the tables and contexts of its own batch, so with another one it would compute
/// something else.
#[test]
fn a_cascade_of_another_batch_is_refused() {
    let Some(driver) = driver() else { return };
    let (device, bed) = (driver.open(), bed());
    let run = Subject::new(&device, bed.layout, &bed.storage);
    let attention = &run.attention;
    let sharing = share(bed.batch().tables, &bed.contexts, 16, Rule { grain_tokens: 16, ..EAGER });
    let cascade = attention.prepare_cascade(&bed.layout, &bed.batch(), &sharing).expect("a cascade");
    let queries = device.upload(&bed.queries).expect("memory");
    let mut out = device.zeros::<u16>(bed.queries.len()).expect("memory");
    let mut compute = |batch: &Prepared| {
        let out = Output { rows: out.view_mut(), lse: None };
        attention.cascade(&run.kv, 1, batch, &cascade, queries.view(), out)
    };
    let foreign = Err(GpuError::Shape(ShapeError::Foreign));
    // The same sequences in turn, and the same ones one token before.
    let (mut turned, mut before) = (bed.clone(), bed.clone());
    let half = bed.blocks.len() / 2;
    turned.blocks.rotate_left(half);
    turned.slots.rotate_left(1);
    before.contexts.iter_mut().for_each(|context| *context -= 1);
    before.slots.iter_mut().for_each(|slot| *slot -= 1);
    let prepare = |bed: &Bed| attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
    assert_eq!(compute(&prepare(&bed)), Ok(()));
    assert_eq!(compute(&prepare(&turned)), foreign);
    assert_eq!(compute(&prepare(&before)), foreign);
    let capacity = Capacity { sequences: 2, blocks: bed.blocks.len(), items: 99 };
    let mut reserved = attention.reserve(&bed.layout, &bed.batch(), capacity).expect("a batch");
    assert_eq!(compute(&reserved), Ok(()));
    // An update that is refused changes nothing.
    let captured = device.capture(|| reserved.update(&before.batch()));
    assert!(matches!(captured, Err(GpuError::NotCaptured { .. })), "{captured:?}");
    assert_eq!(compute(&reserved), Ok(()));
    reserved.update(&before.batch()).expect("updated");
    assert_eq!(compute(&reserved), foreign);
}
