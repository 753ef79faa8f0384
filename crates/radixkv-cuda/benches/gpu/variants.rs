//! Decode of the variants that engines use, each beside the plain case that it is judged by.

use radixkv_attention::{Backend, Dtype, Layout, Output, Qkv};
use radixkv_cuda::Attention;

use super::load::{LAYOUT, Load};
use super::table::{Amount, Row};
use super::timer::Measured;
use super::{Bench, Outcome, decode, most_layers};

/// Elements of 8 bits, pages of other sizes, a window, and a tree of drafted tokens.
pub fn variants(bench: &mut Bench) -> Outcome {
    let contexts = [4096 / bench.small as u32; 64];
    let of = |layout| move |seed| Load::decode_from(layout, &contexts, seed);
    let plain = timed(bench, "64 x 4k, bf16, pages of 16", of(LAYOUT)(21), false, None)?;
    for dtype in [Dtype::E4m3, Dtype::E4m3Static, Dtype::I8, Dtype::I8Static] {
        let name = format!("64 x 4k, {dtype}");
        timed(bench, &name, of(Layout { dtype, ..LAYOUT })(22), false, Some((1.0 / 1.8, plain)))?;
    }
    for block_size in [1, 5, 64] {
        let name = format!("64 x 4k, pages of {block_size}");
        timed(bench, &name, of(Layout { block_size, ..LAYOUT })(23), false, Some((1.3, plain)))?;
    }
    let e4m3 = Layout { dtype: Dtype::E4m3, block_size: 1, ..LAYOUT };
    timed(bench, "64 x 4k, e4m3, pages of 1", of(e4m3)(24), false, None)?;
    tree(bench, plain)?;

    let (short, long) = ([contexts[0]; 8], [8 * contexts[0]; 8]);
    let all = timed(bench, "8 x 4k", Load::decode_from(LAYOUT, &short, 25), true, None)?;
    let windowed = Load::decode_from(LAYOUT, &long, 26).within(contexts[0]);
    timed(bench, "8 x 32k, window of 4k", windowed, true, Some((1.15, all)))?;
    Ok(())
}

/// One case, at most so many times as long as another one.
fn timed(
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
fn tree(bench: &mut Bench, one: Measured) -> Outcome {
    let Bench { device, timer, small, table, .. } = bench;
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
    table.row(
        Row::new("variant: 64 x 4k, a tree of 8 rows", us, Amount::Read(load.kv_bytes() as f64)).must_times(1.2, one),
    );
    Ok(())
}
