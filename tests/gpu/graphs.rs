//! Work recorded once and queued again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use radixkv::attention::plan::{Rule, share};
use radixkv::attention::{Backend, Dtype, Order, Output, Qkv};
use radixkv::gpu::{Attention, Device, GpuError, ViewMut};

use super::bed::{Bed, NAN, Sequence, Shape};
use super::driver::{driver, stand_in_driver};

fn bed(seed: u64) -> Bed {
    let (dtype, order) = (Dtype::Bf16, Order::Nhd);
    let shape = Shape { dtype, head_dim: 64, kv_heads: 2, group: 4, block_size: 16, order, layers: 2, layer: 1 };
    let mut random = Rng::with_seed(seed);
    let mut one = |before| Sequence { before: before + random.usize(..9), rows: 1, shared: 0 };
    // One long enough to be cut and merged.
    let sequences = [one(900), one(0), one(40)];
    Bed::new(seed, shape, &sequences, true)
}

fn into<'a>(rows: ViewMut<'a, u16>, lse: ViewMut<'a, f32>) -> Output<ViewMut<'a, u16>, ViewMut<'a, f32>> {
    Output { rows, lse: Some(lse) }
}

/// A step that appends and decodes, recorded with the rows of one bed and replayed with those of others.
#[test]
fn a_recorded_step_is_done_when_it_is_launched_and_as_often() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    for streams in 0..4 {
        driver.streams(streams);
        let first = bed(7);
        let attention = Attention::new(&device);
        let mut kv = attention.allocate(first.layout).expect("memory");
        kv.write(&first.storage).expect("a copy");
        let batch = attention.prepare(&first.layout, &first.batch()).expect("a batch");
        let upload = |elements: &[u16]| device.upload(elements).expect("memory");
        let (queries, keys, values) = (upload(&first.queries), upload(&first.keys), upload(&first.values));
        let mut out = upload(&vec![NAN; first.queries.len()]);
        let mut lse = device.upload(&vec![f32::NAN; first.total_rows() * first.query_heads]).expect("memory");
        let graph = device
            .record(|| {
                attention.append(&kv, 1, &batch, keys.view(), values.view())?;
                attention.decode(&kv, 1, &batch, queries.view(), into(out.view_mut(), lse.view_mut()))
            })
            .expect("a graph");
        assert!(out.to_vec().expect("outputs").iter().all(|element| *element == NAN), "nothing is done yet");
        for _ in 0..2 {
            // SAFETY: all that was recorded with is there until the outputs have been read.
            unsafe { graph.launch() }.expect("launched");
            first.check("replayed", &out.to_vec().expect("outputs"), Some(&lse.to_vec().expect("log-sum-exps")));
            out.write(&vec![NAN; first.queries.len()]).expect("a copy");
        }
        drop((graph, kv, batch, queries, keys, values, out, lse, attention));
    }
    drop(device);
    driver.assert_nothing_left("recording");
}

/// Chunks that are not kept, and a prefix that is read once: everything that a prepared batch does can be recorded.
#[test]
fn chunks_and_cascades_can_be_recorded() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let (dtype, order) = (Dtype::F16, Order::Hnd);
    let shape = Shape { dtype, head_dim: 128, kv_heads: 1, group: 7, block_size: 16, order, layers: 2, layer: 1 };
    let chunks = [Sequence { before: 50, rows: 20, shared: 0 }, Sequence { before: 0, rows: 9, shared: 0 }];
    let sharers = [48, 60, 70].map(|before| Sequence { before, rows: 1, shared: if before == 48 { 0 } else { 48 } });
    for (what, bed) in [("extend", Bed::new(3, shape, &chunks, false)), ("cascade", Bed::new(4, shape, &sharers, true))]
    {
        let attention = Attention::new(&device);
        let mut kv = attention.allocate(bed.layout).expect("memory");
        kv.write(&bed.storage).expect("a copy");
        let rule = Rule { grain_tokens: 16, group_cost_tokens: 0 };
        let sharing = share(bed.batch().tables, &bed.contexts, 16, rule);
        let batch = attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
        let cascade = (what == "cascade")
            .then(|| attention.prepare_cascade(&bed.layout, &bed.batch(), &sharing).expect("a cascade"));
        let upload = |elements: &[u16]| device.upload(elements).expect("memory");
        let (queries, keys, values) = (upload(&bed.queries), upload(&bed.keys), upload(&bed.values));
        let mut out = upload(&vec![NAN; bed.queries.len()]);
        let mut lse = device.upload(&vec![f32::NAN; bed.total_rows() * bed.query_heads]).expect("memory");
        let graph = device.record(|| {
            let into = into(out.view_mut(), lse.view_mut());
            let Some(cascade) = &cascade else {
                let new = Qkv { queries: queries.view(), keys: keys.view(), values: values.view() };
                return attention.extend(&kv, 1, &batch, new, into);
            };
            attention.append(&kv, 1, &batch, keys.view(), values.view())?;
            attention.cascade(&kv, 1, &batch, cascade, queries.view(), into)
        });
        // SAFETY: all that was recorded with is there until the outputs have been read.
        unsafe { graph.expect("a graph").launch() }.expect("launched");
        bed.check(what, &out.to_vec().expect("outputs"), Some(&lse.to_vec().expect("log-sum-exps")));
    }
}

/// The device goes on as if nothing had been recorded.
fn works(device: &Device) {
    let bed = bed(9);
    let attention = Attention::new(device);
    let mut kv = attention.allocate(bed.layout).expect("memory");
    kv.write(&bed.appended(1)).expect("a copy");
    let batch = attention.prepare(&bed.layout, &bed.batch()).expect("a batch");
    let queries = device.upload(&bed.queries).expect("memory");
    let mut out = device.upload(&vec![NAN; bed.queries.len()]).expect("memory");
    let mut lse = device.upload(&vec![f32::NAN; bed.total_rows() * bed.query_heads]).expect("memory");
    attention.decode(&kv, 1, &batch, queries.view(), into(out.view_mut(), lse.view_mut())).expect("decoded");
    bed.check("after a recording", &out.to_vec().expect("outputs"), None);
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let Some(driver) = stand_in_driver() else { return };
    let device = driver.open();
    let refused = device.record(|| device.upload(&[1_u16; 8]).map(drop)).expect_err("an allocation");
    assert!(matches!(refused, GpuError::NotRecorded { code } if code.number() == 900), "{refused}");
    works(&device);
    let buffer = device.upload(&[1_u16; 8]).expect("memory");
    let refused = device.record(|| buffer.to_vec().map(drop)).expect_err("reading back");
    assert!(matches!(refused, GpuError::NotRecorded { code } if code.number() == 900), "{refused}");
    works(&device);
    // One that the closure swallows still makes no graph.
    let swallow = || {
        device.upload(&[1_u16; 8]).expect_err("an allocation");
        Ok(())
    };
    let refused = device.record(swallow).expect_err("no graph");
    assert!(matches!(refused, GpuError::NotRecorded { code } if code.number() == 901), "{refused}");
    let refused = device.record(|| device.record(|| Ok(())).map(drop)).expect_err("within another");
    assert!(matches!(refused, GpuError::Driver { code } if code.number() == 401), "{refused}");
    works(&device);
    drop((buffer, device));
    driver.assert_nothing_left("refusals");
}

#[test]
fn a_panic_while_recording_ends_the_recording() {
    let Some(driver) = driver() else { return };
    let device = driver.open();
    let panicked = catch_unwind(AssertUnwindSafe(|| device.record(|| panic!("of the caller"))));
    assert!(panicked.is_err());
    works(&device);
    drop(device);
    driver.assert_nothing_left("a panic");
}
