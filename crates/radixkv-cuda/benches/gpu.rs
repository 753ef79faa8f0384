//! How long the kernels take on a GPU, beside what its memory allows.
//!
//! `cargo bench -p radixkv-cuda --bench gpu [-- NAME... --small]`. Times are medians by the device's own events. Every
//! case reads more than four times the second-level cache before it reads the same memory again; small cases are
//! launched from a captured graph, so that launches cost nothing. Samples of the outputs are checked against `f64`
//! before the timing. Without a GPU it says so and ends. `--small` divides the sizes by 128, to check that everything
//! runs: its figures mean nothing.
#![allow(unsafe_code)]

#[path = "gpu/load.rs"]
mod load;
#[path = "gpu/table.rs"]
mod table;

use std::error::Error;

use fastrand::Rng;
use load::{Load, elements};
use radixkv_attention::plan::{Rule, share};
use radixkv_attention::{Backend, Dtype, Layout, Order, Output, Qkv};
use radixkv_cuda::{Attention, Compare, Device, GpuError, HostPool, OpenError, Swap, TokenSequences};
use table::{Amount, Row, Table};

const ROUNDS: usize = 15;

/// The device, and the table of what was measured.
struct Bench {
    device: Device,
    /// The divisor of sizes: 1, or more with `--small`.
    small: usize,
    table: Table,
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error @ (OpenError::NoDriver | OpenError::NoDevice { .. })) => {
            println!("nothing to measure: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let names: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with("--")).collect();
    let wanted = |case: &str| names.is_empty() || names.iter().any(|name| case.contains(name.as_str()));
    println!("{device}, {:.1} GB/s by its data sheet", device.properties().bytes_per_us as f64 / 1e3);

    let small = if std::env::args().any(|argument| argument == "--small") { 128 } else { 1 };
    let mut bench = Bench { device, small, table: Table::default() };
    ceilings(&mut bench)?;
    type Case = fn(&mut Bench) -> Result<(), Box<dyn Error>>;
    let cases: [(&str, Case); 6] = [
        ("decode", decodes),
        ("cascade", cascade),
        ("extend", extend),
        ("append copy", rows_and_blocks),
        ("swap", swap),
        ("compare", compare),
    ];
    for (_, case) in cases.iter().filter(|(name, _)| name.split(' ').any(&wanted)) {
        case(&mut bench)?;
    }
    bench.table.print();
    Ok(())
}

/// Median microseconds of the work; `queue` queues it `times` times.
fn median(
    (device, small): (&Device, usize),
    times: usize,
    mut queue: impl FnMut() -> Result<(), GpuError>,
) -> Result<f64, GpuError> {
    let rounds_wanted = if small == 1 { ROUNDS } else { 1 };
    for _ in 0..rounds_wanted.min(3) {
        queue()?;
    }
    let mut rounds = Vec::with_capacity(rounds_wanted);
    for _ in 0..rounds_wanted {
        let start = device.record_event()?;
        queue()?;
        rounds.push(start.microseconds_to(&device.record_event()?)? / times as f64);
    }
    rounds.sort_unstable_by(f64::total_cmp);
    Ok(rounds[rounds_wanted / 2])
}

/// The speed of the memory: reading, and copying.
fn ceilings(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    let Bench { device, small, table } = bench;
    let small = *small;
    let len = (device.properties().memory_bytes / 16).min(2 << 30) / 2 / (small * small) / 8 * 8;
    let (from, mut to) = (device.upload(&elements(1, len))?, device.zeros::<u16>(len)?);
    let read = median((device, small), 1, || device.read_all(from.view()))?;
    let copy = median((device, small), 1, || device.copy_all(from.view(), to.view_mut()))?;
    table.ceilings(2.0 * len as f64 / read, 4.0 * len as f64 / copy);
    Ok(())
}

/// The most layers of a case.
fn most_layers(small: usize) -> usize {
    if small == 1 { 1024 } else { 2 }
}

fn decodes(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    let Bench { device, small, table } = bench;
    let small = *small;
    let cases = [
        ("decode B64 x 4k", vec![4096; 64], false, Some(294.0)),
        ("decode B8 x 32k", vec![32_768; 8], false, Some(294.0)),
        ("decode B8 x 4k", vec![4096; 8], true, Some(50.0)),
        ("decode B1 x 32k", vec![32_768], true, Some(52.0)),
        ("decode B1 x 4k", vec![4096], true, Some(18.0)),
        ("decode ragged 16..8,192", load::ragged(64, 8192, 64 * 4096), false, Some(310.0)),
    ];
    for (name, contexts, replayed, must) in cases {
        let contexts: Vec<u32> = contexts.iter().map(|context| context.div_ceil(small as u32)).collect();
        let load = Load::decode(&contexts, 0, 1).cold(device.properties().l2_bytes, most_layers(small));
        let bytes = load.kv_bytes() as f64;
        let us = decode((device, small), &load, replayed)?;
        table.row(Row::new(name, us, Amount::Read(bytes)).must(must));
    }
    Ok(())
}

/// Microseconds of one decode, checked first.
fn decode((device, small): (&Device, usize), load: &Load, replayed: bool) -> Result<f64, Box<dyn Error>> {
    let attention = Attention::new(device);
    let mut kv = attention.allocate(load.layout)?;
    kv.write(&load.storage)?;
    let batch = attention.prepare(&load.layout, &load.batch())?;
    let (queries, mut out) = (device.upload(&load.queries)?, device.zeros::<u16>(load.queries.len())?);
    attention.decode(&kv, 0, &batch, queries.view(), Output { rows: out.view_mut(), lse: None })?;
    load.check(&out.to_vec()?);
    let layers = load.layout.layers;
    let mut all = || -> Result<(), GpuError> {
        (0..layers).try_for_each(|layer| {
            attention.decode(&kv, layer, &batch, queries.view(), Output { rows: out.view_mut(), lse: None })
        })
    };
    if !replayed {
        return Ok(median((device, small), layers, all)?);
    }
    let graph = match device.capture(&mut all) {
        Ok(graph) => graph,
        Err(error) => {
            eprintln!("launched one by one, without a graph: {error}");
            return Ok(median((device, small), layers, all)?);
        }
    };
    // SAFETY: storage, batch and buffers are there until the last replay was waited for.
    Ok(median((device, small), layers, || unsafe { graph.launch() })?)
}

fn cascade(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    let Bench { device, small, table } = bench;
    let small = *small;
    let prefix = 8192 / small;
    let load = Load::decode(&[(prefix + 256 / small) as u32; 64], prefix, 2);
    let load = load.cold(device.properties().l2_bytes, most_layers(small));
    let attention = Attention::new(device);
    let mut kv = attention.allocate(load.layout)?;
    kv.write(&load.storage)?;
    let batch = attention.prepare(&load.layout, &load.batch())?;
    let rule = attention.rule(&load.layout);
    let rule = Rule { group_cost_tokens: rule.group_cost_tokens / (small * small), ..rule };
    let sharing = share(load.batch().tables, &load.contexts, load.layout.block_size, rule);
    assert_eq!(sharing.saved_tokens(), 63 * prefix, "the rule shares the prefix");
    let cascade = attention.prepare_cascade(&load.layout, &load.batch(), &sharing)?;
    let (queries, mut out) = (device.upload(&load.queries)?, device.zeros::<u16>(load.queries.len())?);
    attention.cascade(&kv, 0, &batch, &cascade, queries.view(), Output { rows: out.view_mut(), lse: None })?;
    load.check(&out.to_vec()?);
    let layers = load.layout.layers;
    let us = median((device, small), layers, || {
        (0..layers).try_for_each(|layer| {
            let out = Output { rows: out.view_mut(), lse: None };
            attention.cascade(&kv, layer, &batch, &cascade, queries.view(), out)
        })
    })?;
    let bytes = load.kv_bytes() as f64;
    table.row(Row::new("cascade K 64, P 8k, suffix 256", us, Amount::Read(bytes)).must(Some(150.0)));
    let plain = median((device, small), layers, || {
        (0..layers).try_for_each(|layer| {
            attention.decode(&kv, layer, &batch, queries.view(), Output { rows: out.view_mut(), lse: None })
        })
    })?;
    table.row(Row::new("the same by plain decode", plain, Amount::Read(load.context_bytes() as f64)));
    Ok(())
}

fn extend(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    let Bench { device, small, table } = bench;
    let small = *small;
    let (rows, before) = (2048 / small, 8192 / small);
    let load = Load::extend(before, rows, 3);
    let attention = Attention::new(device);
    let mut kv = attention.allocate(load.layout)?;
    kv.write(&load.storage)?;
    let batch = attention.prepare(&load.layout, &load.batch())?;
    let (queries, mut out) = (device.upload(&load.queries)?, device.zeros::<u16>(load.queries.len())?);
    let (keys, values) = (device.upload(&load.keys)?, device.upload(&load.values)?);
    let new = Qkv { queries: queries.view(), keys: keys.view(), values: values.view() };
    attention.extend(&kv, 0, &batch, new, Output { rows: out.view_mut(), lse: None })?;
    load.check(&out.to_vec()?);
    let us = median((device, small), 1, || {
        attention.extend(&kv, 0, &batch, new, Output { rows: out.view_mut(), lse: None })
    })?;
    let seen = rows * before + rows * (rows + 1) / 2;
    let operations = 4.0 * (seen * load.layout.head_dim * load.query_heads) as f64;
    table.row(Row::new("extend 2,048 over 8,192", us, Amount::Operations(operations)).must_rate(250.0));
    Ok(())
}

fn rows_and_blocks(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    let Bench { device, small, table } = bench;
    let small = *small;
    let attention = Attention::new(device);
    let load = Load::extend(0, 8192 / small, 4).cold(device.properties().l2_bytes, most_layers(small));
    let kv = attention.allocate(load.layout)?;
    let batch = attention.prepare(&load.layout, &load.batch())?;
    let (keys, values) = (device.upload(&load.keys)?, device.upload(&load.values)?);
    let layers = load.layout.layers;
    let us = median((device, small), layers, || {
        (0..layers).try_for_each(|layer| attention.append(&kv, layer, &batch, keys.view(), values.view()))
    })?;
    let bytes = 2.0 * (2 * (load.keys.len() + load.values.len())) as f64;
    table.row(Row::new("append 8,192 tokens", us, Amount::Copied(bytes)).must_share(0.80));
    drop(kv);

    let pairs = 8192 / small as u32;
    let layout = Layout { layers: 1, blocks: 2 * pairs as usize, ..load::LAYOUT };
    let mut kv = attention.allocate(layout)?;
    kv.write(&elements(5, layout.elements()))?;
    let mut to: Vec<u32> = (pairs..2 * pairs).collect();
    Rng::with_seed(6).shuffle(&mut to);
    let pairs: Vec<(u32, u32)> = (0..pairs).zip(to).collect();
    let us = median((device, small), 1, || attention.copy_blocks(&kv, &pairs))?;
    let bytes = 2.0 * (pairs.len() * 2 * layout.block_elements() * 2) as f64;
    table.row(Row::new("copy 16 k x 32 KiB (with its plan)", us, Amount::Copied(bytes)).must_share(0.90));
    Ok(())
}

fn swap(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    let Bench { device, small, table } = bench;
    let small = *small;
    // Pieces of 64 MiB are as fast as one large copy.
    let large = Layout { layers: 1, blocks: 5, block_size: 64, kv_heads: 4096 / small, ..load::LAYOUT };
    let mut ceiling = [0.0; 2];
    for (name, layout, count) in
        [("swap, one large copy", large, 4), ("swap, 32 KiB pieces", load::LAYOUT, 256 / small)]
    {
        let layers = if layout.kv_heads == load::LAYOUT.kv_heads { 32 } else { 1 };
        let layout = Layout { layers, blocks: count + 1, ..layout };
        let kv = Attention::new(device).allocate(layout)?;
        let host = HostPool::new(device, &layout, count)?;
        let swap = Swap::new(device)?;
        let out: Vec<(u32, u32)> = (0..count as u32).map(|block| (block, count as u32 - 1 - block)).collect();
        let back: Vec<(u32, u32)> = out.iter().map(|&(block, host)| (host, block)).collect();
        let bytes = (count * host.block_bytes()) as f64;
        let gone = median((device, small), 1, || swap.swap_out(&kv, &host, &out)?.wait_on_device(device))?;
        let come = median((device, small), 1, || swap.swap_in(&kv, &host, &back)?.wait_on_device(device))?;
        for (way, (us, ceiling)) in ["out", "back"].into_iter().zip([gone, come].into_iter().zip(&mut ceiling)) {
            let row = Row::new(&format!("{name}, {way}"), us, Amount::Linked(bytes));
            if *ceiling == 0.0 {
                *ceiling = bytes / us;
                table.row(row);
            } else {
                table.row(row.must_rate(0.90 * *ceiling / 1e3));
            }
        }
    }
    Ok(())
}

fn compare(bench: &mut Bench) -> Result<(), Box<dyn Error>> {
    let Bench { device, small, table } = bench;
    let small = *small;
    let tokens = 2048 / small;
    let mut random = Rng::with_seed(7);
    // Other sequences on both sides, so that no pair finds tokens of another in the cache; equal but for the last
    // token.
    let count = (4 * device.properties().l2_bytes / (small * small)).div_ceil(2 * tokens * 4).max(4096 / small);
    let one: Vec<Vec<u32>> = (0..count).map(|_| (0..tokens).map(|_| random.u32(..)).collect()).collect();
    let mut other = one.clone();
    other.iter_mut().for_each(|run| run[tokens - 1] ^= 1);
    let [one, other] = [&one, &other].map(|runs| TokenSequences::new(runs.iter().map(Vec::as_slice)));
    let pairs: Vec<(u32, u32)> = (0..count as u32).map(|run| (run, run)).collect();
    let compare = Compare::new(device).min_device_tokens(0);
    let comparison = compare.prepare(&one, &other, &pairs)?;
    comparison.launch()?;
    assert!(comparison.lengths()?.iter().all(|length| *length as usize == tokens - 1), "lengths");
    let us = median((device, small), 1, || comparison.launch())?;
    let bytes = (2 * count * tokens * 4) as f64;
    table.row(Row::new(&format!("compare {count} x {tokens} tokens"), us, Amount::Read(bytes)).must_share(0.80));

    // From how many tokens on the device is faster, with the tokens there and the lengths copied back.
    for count in [16, 64, 256, 1024] {
        let pairs = &pairs[..count.min(pairs.len())];
        let wall = |device_tokens| -> Result<f64, GpuError> {
            let compare = compare.clone().min_device_tokens(device_tokens);
            let mut rounds = Vec::with_capacity(ROUNDS);
            for _ in 0..ROUNDS {
                let began = std::time::Instant::now();
                compare.prefix_lengths(&one, &other, pairs)?;
                rounds.push(began.elapsed().as_secs_f64() * 1e6);
            }
            rounds.sort_unstable_by(f64::total_cmp);
            Ok(rounds[ROUNDS / 2])
        };
        let (on_device, on_processor) = (wall(0)?, wall(usize::MAX)?);
        table.note(format!(
            "comparing {:>9} tokens: {on_device:.1} us on the device, {on_processor:.1} us on the processor",
            pairs.len() * tokens
        ));
    }
    Ok(())
}

/// The layout of the targets: `bf16`, blocks of 16, 8 heads of 128.
const _: () = assert!(matches!((load::LAYOUT.dtype, load::LAYOUT.order), (Dtype::Bf16, Order::Nhd)));
