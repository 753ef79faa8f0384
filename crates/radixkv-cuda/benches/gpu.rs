//! How long the kernels take on a GPU, beside what its memory allows.
//!
//! `cargo bench -p radixkv-cuda --bench gpu [-- NAME... --small --no-ceilings]`. Times are medians by the
//! device's own events, after 200 ms of the same work. Every case reads more than four times the
//! second-level cache before it reads the same memory again; small cases are launched from a
//! captured graph, so that launches cost nothing. Samples of the outputs are checked against `f64`
//! before the timing. Each line is printed as it is measured; a case that fails is a line, and the
//! others follow. Without a GPU it says so, and ends with an exit code other than 0. `--small`
//! divides the sizes by 128 and measures once, to check that everything runs: its figures mean
//! nothing. `--no-ceilings` does not measure the speed of the memory first.
#![allow(unsafe_code)]

#[path = "gpu/clocks.rs"]
mod clocks;
#[path = "gpu/load.rs"]
mod load;
#[path = "gpu/stored.rs"]
mod stored;
#[path = "gpu/table.rs"]
mod table;
#[path = "gpu/timer.rs"]
mod timer;
#[path = "gpu/variants.rs"]
mod variants;

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use fastrand::Rng;
use load::Load;
use radixkv_attention::plan::{Rule, share};
use radixkv_attention::{Backend, Dtype, Layout, Order, Output, Qkv};
use radixkv_cuda::{Attention, Buffer, Compare, Device, GpuError, HostPool, Swap, TokenSequences};
use stored::elements;
use table::{Amount, Row, Table};
use timer::{Measured, ROUNDS, Timer};

type Outcome = Result<(), Box<dyn Error>>;

/// The device, and the table of what was measured.
struct Bench {
    device: Device,
    timer: Timer,
    /// The divisor of sizes: 1, or more with `--small`.
    small: usize,
    table: Table,
    /// Words of the names of the cases asked for; all of them if there is none.
    names: Vec<String>,
    /// The plain case of the variants, if it was measured.
    plain: Option<Measured>,
}

fn main() -> ExitCode {
    let device = match Device::open(0) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("nothing to measure: {error}");
            return ExitCode::from(2);
        }
    };
    let names: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with("--")).collect();
    println!("{device}, {:.1} GB/s by its data sheet", device.properties().bytes_per_us as f64 / 1e3);

    let small = if std::env::args().any(|argument| argument == "--small") { 128 } else { 1 };
    let (timer, table) = (Timer::new(&device, small > 1), Table::new(small > 1));
    let mut bench = Bench { device, timer, small, table, names, plain: None };
    if std::env::args().all(|argument| argument != "--no-ceilings") {
        bench.case("", ceilings);
    }
    for decode in DECODES {
        bench.case(decode.name, |bench| decode_case(bench, decode));
    }
    bench.case("variants: plain", variants::plain);
    bench.case("variants: bits", variants::bits);
    bench.case("variants: others", variants::others);
    for latent in LATENTS {
        bench.case(latent.name, |bench| latent_case(bench, latent));
    }
    bench.case("cascade", cascade);
    bench.case("extend", extend);
    bench.case("append", append);
    bench.case("copy", copy);
    bench.case("swap", swap);
    bench.case("compare", compare);
    ExitCode::from(u8::from(bench.table.failed > 0))
}

impl Bench {
    /// Runs a case, if it is asked for. What fails, also by a panic, is a line of the table.
    fn case(&mut self, name: &str, run: impl FnOnce(&mut Self) -> Outcome) {
        let is_wanted =
            self.names.is_empty() || name.is_empty() || self.names.iter().any(|wanted| name.contains(wanted));
        if !is_wanted {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| run(self))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.table.failure(name, &error.to_string()),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                self.table.failure(name, text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic"));
            }
        }
    }
}

/// The speed of the memory: reading, and copying.
fn ceilings(bench: &mut Bench) -> Outcome {
    let Bench { device, timer, small, table, .. } = bench;
    let len = (device.properties().memory_bytes / 16).min(2 << 30) / 2 / (*small * *small) / 8 * 8;
    let (from, mut to) = (device.upload(&elements(1, len))?, device.zeros::<u16>(len)?);
    let read = timer.median(1, || device.read_all(from.view()))?;
    let copy = timer.median(1, || device.copy_all(from.view(), to.view_mut()))?;
    let (read_bytes, copied_bytes) = (2.0 * len as f64, 4.0 * len as f64);
    table.ceilings(read_bytes / read.us, copied_bytes / copy.us);
    table.row(Row::new("ceiling: reading", read, Amount::Read(read_bytes)));
    table.row(Row::new("ceiling: copying, both directions", copy, Amount::Copied(copied_bytes)));
    Ok(())
}

/// The most layers of a case.
fn most_layers(small: usize) -> usize {
    if small == 1 { 1024 } else { 2 }
}

/// A decode of so many sequences of equal contexts, or of ragged ones.
#[derive(Clone, Copy)]
struct Decode {
    name: &'static str,
    sequences: usize,
    context: u32,
    is_ragged: bool,
    /// Launched from a graph.
    is_replayed: bool,
    must: f64,
}

const DECODES: [Decode; 6] = [
    Decode { name: "decode B64 x 4k", sequences: 64, context: 4096, is_ragged: false, is_replayed: false, must: 294.0 },
    Decode {
        name: "decode B8 x 32k",
        sequences: 8,
        context: 32_768,
        is_ragged: false,
        is_replayed: false,
        must: 294.0,
    },
    Decode { name: "decode B8 x 4k", sequences: 8, context: 4096, is_ragged: false, is_replayed: true, must: 50.0 },
    Decode { name: "decode B1 x 32k", sequences: 1, context: 32_768, is_ragged: false, is_replayed: true, must: 52.0 },
    Decode { name: "decode B1 x 4k", sequences: 1, context: 4096, is_ragged: false, is_replayed: true, must: 18.0 },
    Decode {
        name: "decode ragged 16..8,192",
        sequences: 64,
        context: 4096,
        is_ragged: true,
        is_replayed: false,
        must: 310.0,
    },
];

fn decode_case(bench: &mut Bench, case: Decode) -> Outcome {
    let Bench { device, timer, small, table, .. } = bench;
    let Decode { name, sequences, context, is_ragged, is_replayed, must } = case;
    let contexts = if is_ragged {
        load::ragged(sequences, 2 * context, sequences as u32 * context)
    } else {
        vec![context; sequences]
    };
    let contexts: Vec<u32> = contexts.iter().map(|context| context.div_ceil(*small as u32)).collect();
    let load = Load::decode(&contexts, 0, 1).cold(device.properties().l2_bytes, most_layers(*small));
    let measured = decode(device, timer, &load, is_replayed)?;
    table.row(Row::new(name, measured, Amount::Read(load.kv_bytes() as f64)).must(Some(must)));
    Ok(())
}

/// One decode, checked first.
fn decode(device: &Device, timer: &Timer, load: &Load, is_replayed: bool) -> Result<Measured, Box<dyn Error>> {
    let attention = Attention::new(device);
    let mut kv = attention.allocate(load.layout)?;
    kv.write(&load.storage)?;
    let batch = attention.prepare(&load.layout, &load.batch())?;
    let (queries, mut out) = (device.upload(&load.queries)?, device.zeros::<u16>(load.out_elements())?);
    attention.decode(&kv, 0, &batch, queries.view(), Output { rows: out.view_mut(), lse: None })?;
    load.check(&out.to_vec()?);
    let layers = load.layout.layers;
    let all = || -> Result<(), GpuError> {
        (0..layers).try_for_each(|layer| {
            attention.decode(&kv, layer, &batch, queries.view(), Output { rows: out.view_mut(), lse: None })
        })
    };
    Ok(if is_replayed { timer.median_replayed(layers, all)? } else { timer.median(layers, all)? })
}

/// A decode over latent vectors: MLA, absorbed. 16 query heads are DeepSeek's on eight devices, 128
/// all of them.
#[derive(Clone, Copy)]
struct Latent {
    name: &'static str,
    sequences: usize,
    context: u32,
    query_heads: usize,
    block_size: usize,
    /// The share of the memory's speed that it must reach; products of many heads take longer than
    /// reading.
    must: Option<f64>,
}

const LATENTS: [Latent; 5] = [
    Latent {
        name: "mla B64 x 4k, 16 heads",
        sequences: 64,
        context: 4096,
        query_heads: 16,
        block_size: 64,
        must: Some(0.80),
    },
    Latent {
        name: "mla B64 x 4k, 16 heads, blocks of 1",
        sequences: 64,
        context: 4096,
        query_heads: 16,
        block_size: 1,
        must: Some(0.80),
    },
    Latent {
        name: "mla B8 x 32k, 16 heads",
        sequences: 8,
        context: 32_768,
        query_heads: 16,
        block_size: 64,
        must: Some(0.80),
    },
    Latent {
        name: "mla B64 x 4k, 32 heads",
        sequences: 64,
        context: 4096,
        query_heads: 32,
        block_size: 64,
        must: None,
    },
    Latent {
        name: "mla B64 x 4k, 128 heads",
        sequences: 64,
        context: 4096,
        query_heads: 128,
        block_size: 64,
        must: None,
    },
];

fn latent_case(bench: &mut Bench, case: Latent) -> Outcome {
    let Bench { device, timer, small, table, .. } = bench;
    let contexts = vec![case.context.div_ceil(*small as u32); case.sequences];
    let load = Load::latent(&contexts, case.query_heads, case.block_size, 8);
    let load = load.cold(device.properties().l2_bytes, most_layers(*small));
    let measured = decode(device, timer, &load, false)?;
    let row = Row::new(case.name, measured, Amount::Read(load.kv_bytes() as f64));
    table.row(case.must.into_iter().fold(row, Row::must_share));
    Ok(())
}

fn cascade(bench: &mut Bench) -> Outcome {
    let Bench { device, timer, small, table, .. } = bench;
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
    let mut all = || {
        (0..layers).try_for_each(|layer| {
            let out = Output { rows: out.view_mut(), lse: None };
            attention.cascade(&kv, layer, &batch, &cascade, queries.view(), out)
        })
    };
    let bytes = load.kv_bytes() as f64;
    let us = timer.median(layers, &mut all)?;
    table.row(Row::new("cascade K 64, P 8k, suffix 256", us, Amount::Read(bytes)).must(Some(150.0)));
    let us = timer.median_replayed(layers, all)?;
    table.row(Row::new("the same, launched from a graph", us, Amount::Read(bytes)));
    let plain = timer.median(layers, || {
        (0..layers).try_for_each(|layer| {
            attention.decode(&kv, layer, &batch, queries.view(), Output { rows: out.view_mut(), lse: None })
        })
    })?;
    table.row(Row::new("the same by plain decode", plain, Amount::Read(load.context_bytes() as f64)));
    Ok(())
}

fn extend(bench: &mut Bench) -> Outcome {
    let Bench { device, timer, small, table, .. } = bench;
    let small = *small;
    let (rows, before) = (2048 / small, 8192 / small);
    let load = Load::extend(before, rows, 3);
    let seen = rows * before + rows * (rows + 1) / 2;
    let operations = 4.0 * (seen * load.layout.head_dim * load.query_heads) as f64;
    for (name, wgmma, must) in [("extend 2,048 over 8,192", true, 500.0), ("the same without wgmma", false, 250.0)] {
        let attention = Attention::new(device).with_wgmma(wgmma);
        let mut kv = attention.allocate(load.layout)?;
        kv.write(&load.storage)?;
        let batch = attention.prepare(&load.layout, &load.batch())?;
        let (queries, mut out) = (device.upload(&load.queries)?, device.zeros::<u16>(load.queries.len())?);
        let (keys, values) = (device.upload(&load.keys)?, device.upload(&load.values)?);
        let new = Qkv { queries: queries.view(), keys: keys.view(), values: values.view() };
        attention.extend(&kv, 0, &batch, new, Output { rows: out.view_mut(), lse: None })?;
        load.check(&out.to_vec()?);
        let us =
            timer.median(1, || attention.extend(&kv, 0, &batch, new, Output { rows: out.view_mut(), lse: None }))?;
        table.row(Row::new(name, us, Amount::Operations(operations)).must_rate(must));
    }
    Ok(())
}

fn append(bench: &mut Bench) -> Outcome {
    let Bench { device, timer, small, table, .. } = bench;
    let attention = Attention::new(device);
    let load = Load::extend(0, 8192 / *small, 4).cold(device.properties().l2_bytes, most_layers(*small));
    let kv = attention.allocate(load.layout)?;
    let batch = attention.prepare(&load.layout, &load.batch())?;
    // Rows of every layer's own: together they are larger than the cache, as the layers are.
    let layers = load.layout.layers;
    let rows = |layer: usize| -> Result<[Buffer<u16>; 2], GpuError> {
        let draw = |seed| device.upload(&elements(seed, load.keys.len()));
        Ok([draw(2 * layer as u64 + 50)?, draw(2 * layer as u64 + 51)?])
    };
    let rows: Vec<[Buffer<u16>; 2]> = (0..layers).map(rows).collect::<Result<_, _>>()?;
    let all = || {
        (0..layers).try_for_each(|layer| {
            let [keys, values] = &rows[layer];
            attention.append(&kv, layer, &batch, keys.view(), values.view())
        })
    };
    let bytes = 2.0 * (2 * (load.keys.len() + load.values.len())) as f64;
    let us = timer.median(layers, all)?;
    table.row(Row::new("append 8,192 tokens", us, Amount::Copied(bytes)).must_share(0.80));
    let us = timer.median_replayed(layers, all)?;
    table.row(Row::new("the same, launched from a graph", us, Amount::Copied(bytes)));
    Ok(())
}

fn copy(bench: &mut Bench) -> Outcome {
    let Bench { device, timer, small, table, .. } = bench;
    let attention = Attention::new(device);
    let pairs = 8192 / *small as u32;
    let layout = Layout { layers: 1, blocks: 2 * pairs as usize, ..load::LAYOUT };
    assert!(*small > 1 || layout.bytes() / 2 > 4 * device.properties().l2_bytes, "the cache holds the blocks");
    let mut kv = attention.allocate(layout)?;
    kv.write(&elements(5, layout.elements()))?;
    let mut to: Vec<u32> = (pairs..2 * pairs).collect();
    Rng::with_seed(6).shuffle(&mut to);
    let pairs: Vec<(u32, u32)> = (0..pairs).zip(to).collect();
    let copies = attention.prepare_copies(&layout, &pairs)?;
    let bytes = 2.0 * (pairs.len() * 2 * layout.block_elements() * 2) as f64;
    let us = timer.median(1, || attention.launch_copies(&kv, &copies))?;
    table.row(Row::new("copy 16 k x 32 KiB", us, Amount::Copied(bytes)).must_share(0.90));
    let us = timer.median(1, || attention.copy_blocks(&kv, &pairs))?;
    table.row(Row::new("the same, checked and listed each time", us, Amount::Copied(bytes)));
    Ok(())
}

fn swap(bench: &mut Bench) -> Outcome {
    let Bench { device, timer, small, table, .. } = bench;
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
        let gone = timer.median(1, || swap.swap_out(&kv, &host, &out)?.wait_on_device(device))?;
        let come = timer.median(1, || swap.swap_in(&kv, &host, &back)?.wait_on_device(device))?;
        for (way, (us, ceiling)) in ["out", "back"].into_iter().zip([gone, come].into_iter().zip(&mut ceiling)) {
            let row = Row::new(&format!("{name}, {way}"), us, Amount::Linked(bytes));
            if *ceiling == 0.0 {
                *ceiling = bytes / us.us;
                table.row(row);
            } else {
                table.row(row.must_rate(0.90 * *ceiling / 1e3));
            }
        }
    }
    Ok(())
}

fn compare(bench: &mut Bench) -> Outcome {
    let Bench { device, timer, small, table, .. } = bench;
    let small = *small;
    let tokens = 2048 / small;
    let mut random = Rng::with_seed(7);
    // Other sequences on both sides, so that no pair finds tokens of another in the cache; equal
    // but for the last token.
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
    let us = timer.median(1, || comparison.launch())?;
    let bytes = (2 * count * tokens * 4) as f64;
    table.row(Row::new(&format!("compare {count} x {tokens} tokens"), us, Amount::Read(bytes)).must_share(0.80));

    // From how many tokens on the device is faster, with the tokens there and the lengths copied
    // back.
    for count in [16, 64, 96, 128, 192, 256, 1024] {
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
        table.note(&format!(
            "comparing {:>9} tokens: {on_device:.1} us on the device, {on_processor:.1} us on the processor",
            pairs.len() * tokens
        ));
    }
    Ok(())
}

/// The layout of the targets: `bf16`, blocks of 16, 8 heads of 128.
const _: () = assert!(matches!((load::LAYOUT.dtype, load::LAYOUT.order), (Dtype::Bf16, Order::Nhd)));
