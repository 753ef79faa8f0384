//! Decode of the variants that engines use, each beside the plain case that it is judged by.

use radixkv_attention::{Backend, Dtype, Layout, Order, Output, Qkv};
use radixkv_cuda::Attention;

use super::load::{LAYOUT, Load};
use super::table::{Amount, Row};
use super::timer::Measured;
use super::{Bench, Outcome, decode, most_layers};

/// The plain case, of `bf16` and pages of 16, that others are judged by.
pub fn plain(bench: &mut Bench) -> Outcome {
    let load = Load::decode_from(LAYOUT, &contexts(bench), 21);
    bench.plain = Some(timed(bench, "64 x 4k, bf16, pages of 16", load, false, None)?);
    Ok(())
}

/// Elements of 8 bits. In the order `Hnd` the rows of one head are next to each other: a memory that
/// is slow for short pieces shows as a difference from the default order.
pub fn bits(bench: &mut Bench) -> Outcome {
    let cases = [
        ("e4m3", Dtype::E4m3, Order::Nhd),
        ("e4m3, Hnd", Dtype::E4m3, Order::Hnd),
        ("e4m3-static", Dtype::E4m3Static, Order::Nhd),
        ("i8", Dtype::I8, Order::Nhd),
        ("i8-static", Dtype::I8Static, Order::Nhd),
    ];
    for (name, dtype, order) in cases {
        let load = Load::decode_from(Layout { dtype, order, ..LAYOUT }, &contexts(bench), 22);
        timed(bench, &format!("64 x 4k, {name}"), load, false, Some(1.0 / 1.8))?;
    }
    Ok(())
}

/// Pages of other sizes, a window, and a tree of drafted tokens.
pub fn others(bench: &mut Bench) -> Outcome {
    let contexts = contexts(bench);
    let of = |layout| move |seed| Load::decode_from(layout, &contexts, seed);
    for block_size in [1, 5, 64] {
        let name = format!("64 x 4k, pages of {block_size}");
        timed(bench, &name, of(Layout { block_size, ..LAYOUT })(23), false, Some(1.3))?;
    }
    let e4m3 = Layout { dtype: Dtype::E4m3, block_size: 1, ..LAYOUT };
    timed(bench, "64 x 4k, e4m3, pages of 1", of(e4m3)(24), false, None)?;
    tree(bench)?;

    let (short, long) = ([contexts[0]; 8], [8 * contexts[0]; 8]);
    let all = timed(bench, "8 x 4k", Load::decode_from(LAYOUT, &short, 25), true, None)?;
    let windowed = Load::decode_from(LAYOUT, &long, 26).within(contexts[0]);
    timed_against(bench, "8 x 32k, window of 4k", windowed, true, Some((1.15, all)))?;
    Ok(())
}

fn contexts(bench: &Bench) -> [u32; 64] {
    [4096 / bench.small as u32; 64]
}

/// One case, at most so many times as long as the plain one, if that was measured.
fn timed(
    bench: &mut Bench,
    name: &str,
    load: Load,
    is_replayed: bool,
    must: Option<f64>,
) -> Result<Measured, Box<dyn std::error::Error>> {
    let must = must.zip(bench.plain);
    timed_against(bench, name, load, is_replayed, must)
}

/// One case, at most so many times as long as another one.
fn timed_against(
    bench: &mut Bench,
    name: &str,
    load: Load,
    is_replayed: bool,
    must: Option<(f64, Measured)>,
) -> Result<Measured, Box<dyn std::error::Error>> {
    let load = load.cold(bench.device.properties().l2_bytes, most_layers(bench.small));
    let measured = decode(&bench.device, &bench.timer, &load, is_replayed)?;
    let row = Row::new(&format!("variant: {name}"), measured, Amount::Read(load.seen_bytes() as f64));
    bench.table.row(must.into_iter().fold(row, |row, (most, of)| row.must_times(most, of)));
    Ok(measured)
}

/// Eight drafted rows of each sequence, whose keys and values are appended first.
fn tree(bench: &mut Bench) -> Outcome {
    let Bench { device, timer, small, table, plain, .. } = bench;
    let load = Load::tree(&[4096 / *small as u32; 64], 8, 27).cold(device.properties().l2_bytes, most_layers(*small));
    let attention = Attention::new(device);
    let mut kv = attention.allocate(load.layout)?;
    kv.write(&load.storage)?;
    let batch = attention.prepare(&load.layout, &load.batch())?;
    let (queries, mut out) = (device.upload(&load.queries)?, device.zeros::<u16>(load.out_elements())?);
    let (keys, values) = (device.upload(&load.keys)?, device.upload(&load.values)?);
    let new = Qkv { queries: queries.view(), keys: keys.view(), values: values.view() };
    attention.extend(&kv, 0, &batch, new, Output { rows: out.view_mut(), lse: None })?;
    load.check(&out.to_vec()?);
    let layers = load.layout.layers;
    let us = timer.median(layers, || {
        (0..layers)
            .try_for_each(|layer| attention.extend(&kv, layer, &batch, new, Output { rows: out.view_mut(), lse: None }))
    })?;
    let row = Row::new("variant: 64 x 4k, a tree of 8 rows", us, Amount::Read(load.kv_bytes() as f64));
    table.row(plain.iter().fold(row, |row, one| row.must_times(1.2, *one)));
    Ok(())
}
