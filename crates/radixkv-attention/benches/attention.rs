//! Attention on the processor beside what it could cost: a read of the same bytes, the products
//! alone, a plain loop.
//!
//! `cargo bench -p radixkv-attention --bench attention [-- NAME...]`. Both sides of a row are
//! measured in turn, round by round, in one process; medians, with quartiles of the ratio, and
//! beside some what the ratio is at best on this machine, measured in the same rounds. Rows of one
//! thread are measured in the time that the thread computes, on Unix, so that a busy machine does
//! not stretch them; rows of two in the time that passes. `-- --serve` reads names of rows from
//! standard input and prints the seconds of one round for each: so `attention/peers.py` measures
//! torch and ggml in turn with it.

#[path = "attention/baseline.rs"]
mod baseline;
#[path = "attention/clock.rs"]
mod clock;
#[path = "attention/gemm.rs"]
mod gemm;
#[path = "attention/load.rs"]
mod load;
#[path = "attention/peak.rs"]
mod peak;
#[path = "attention/products.rs"]
mod products;
#[path = "attention/row.rs"]
mod row;
#[path = "attention/step.rs"]
mod step;

use std::cell::RefCell;
use std::io::BufRead;
use std::sync::Arc;

use baseline::{PlainLoop, Products, stream};
use clock::Clock;
use gemm::gemm;
use load::{HEAD_DIM, Load, QUERY_HEADS};
use products::StepProducts;
use radixkv_attention::Dtype;
use radixkv_attention::cpu::rayon_core::{ThreadPool, ThreadPoolBuilder};
use radixkv_attention::cpu::{Processor, Weights};
use row::Row;
use step::Step;

const TYPES: [Dtype; 4] = [Dtype::Bf16, Dtype::F32, Dtype::F16, Dtype::I8];

fn faster(ours: f64, theirs: f64) -> f64 {
    theirs / ours
}

fn main() {
    let named: Vec<String> = std::env::args().skip(1).filter(|name| name != "--bench").collect();
    if named.iter().any(|name| name == "--serve") {
        return serve();
    }
    Row::header();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|wanted| name.contains(wanted.as_str()));
    decode(&wanted);
    extend(&wanted);
    cascade(&wanted);
    threads(&wanted);
    weights(&wanted);
    steps(&wanted);
}

fn decode(wanted: &dyn Fn(&str) -> bool) {
    let one = Processor::new();
    for dtype in TYPES {
        let name = format!("decode {dtype} 8 x 4k, one thread: share of a read of the same bytes");
        if wanted(&name) {
            let mut load = Load::new(dtype, 8, 4096, 0, 1);
            let words = vec![1; load.bytes() / 8];
            let row = Row::of_one(name, |ours, read| 100.0 * read / ours, "%");
            row.measure(|| load.decode(&one), || stream(&words));
        }
    }
    let name = "decode f32 8 x 4k, one thread: over a plain loop";
    if wanted(name) {
        let (mut load, mut plain) = (Load::new(Dtype::F32, 8, 4096, 0, 1), PlainLoop::new(4096, 8 * 4096));
        Row::of_one(name, faster, "x as fast").measure(|| load.decode(&one), || plain.run());
    }
}

fn extend(wanted: &dyn Fn(&str) -> bool) {
    let one = Processor::new();
    for dtype in TYPES {
        let name = format!("extend {dtype}, 512 rows over 4k, one thread: share of `gemm` alone");
        if wanted(&name) {
            let (mut load, mut products) = (Load::new(dtype, 1, 4096, 0, 512), Products::new(512, 4096));
            // A row does not see the rows after it: 3,840 tokens on average.
            let row = Row::of_one(name, |ours, gemm| gemm / ours * 3840.0 / 4096.0, "");
            row.measure(|| load.extend(&one), || products.run());
        }
    }
}

fn cascade(wanted: &dyn Fn(&str) -> bool) {
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(2).build().expect("threads"));
    let both = || pool.join(peak::run, peak::run).0;
    for dtype in TYPES {
        let name = format!("cascade {dtype}, 32 share 4k and have 256 each, one thread: over decode");
        if wanted(&name) {
            cascade_over_decode(dtype, &Processor::new(), Row::of_one(name, faster, "x as fast"), (1.0, &peak::run));
        }
    }
    for dtype in TYPES {
        let name = format!("cascade {dtype}, 32 share 4k and have 256 each, two threads: over decode by two");
        if wanted(&name) {
            let two = Processor::with_pool(pool.clone());
            cascade_over_decode(dtype, &two, Row::of_several(name, faster, "x as fast"), (2.0, &both));
        }
    }
}

/// Beside it, so many threads' multiplications from registers alone: it multiplies as much as
/// decoding does, and no cascade takes less time than that.
fn cascade_over_decode(dtype: Dtype, on: &Processor, row: Row, (threads, peak): (f64, &dyn Fn() -> bool)) {
    let load = RefCell::new(Load::new(dtype, 32, 4096 + 256, 4096, 1));
    let (ours, theirs) = (|| load.borrow_mut().cascade(on), || load.borrow_mut().decode(on));
    let runs = load.borrow().multiplications() / (threads * peak::MULTIPLICATIONS);
    row.measure_within(ours, theirs, |clock, decode| {
        let mut known = false;
        let run = clock.seconds(&mut || known = peak());
        known.then(|| decode / (run * runs))
    });
}

/// How many times as fast two threads read the same bytes as one does.
fn two_streams(pool: &ThreadPool, words: &[u64], clock: Clock) -> f64 {
    let (low, high) = words.split_at(words.len() / 2);
    let both = clock.seconds(&mut || {
        pool.join(|| stream(low), || stream(high));
    });
    clock.seconds(&mut || stream(words)) / both
}

fn threads(wanted: &dyn Fn(&str) -> bool) {
    let pool = Arc::new(ThreadPoolBuilder::new().num_threads(2).build().expect("threads"));
    let (one, two) = (Processor::new(), Processor::with_pool(pool.clone()));
    let decode = |name: &str| {
        let load = RefCell::new(Load::new(Dtype::Bf16, 1, 4096, 0, 1));
        let words = vec![1; load.borrow().bytes() / 8];
        let row = Row::of_several(name, faster, "x as fast");
        let (ours, theirs) = (|| load.borrow_mut().decode(&two), || load.borrow_mut().decode(&one));
        row.measure_within(ours, theirs, |clock, _| Some(two_streams(&pool, &words, clock)));
    };
    let name = "two threads over one: decode bf16 1 x 4k";
    if wanted(name) {
        decode(name);
    }
    // As an engine computes that has the loop over its layers there.
    let name = "two threads over one: decode bf16 1 x 4k, called from a thread of the pool";
    if wanted(name) {
        pool.install(|| decode(name));
    }
    let name = "two threads over one: extend bf16, 512 rows over 4k";
    if wanted(name) {
        let load = RefCell::new(Load::new(Dtype::Bf16, 1, 4096, 0, 512));
        let row = Row::of_several(name, faster, "x as fast");
        row.measure(|| load.borrow_mut().extend(&two), || load.borrow_mut().extend(&one));
    }
}

fn weights(wanted: &dyn Fn(&str) -> bool) {
    let (inputs, outputs, one) = (1024, 4096, Processor::<f32>::new());
    for rows in [512, 1] {
        let name = format!("weights f32 1,024 x 4,096, {rows} rows: share of `gemm`");
        if wanted(&name) {
            let numbers = vec![0.5; inputs * outputs];
            let (weights, given) = (Weights::from_f32(inputs, outputs, &numbers), vec![0.5; rows * inputs]);
            let (mut products, mut theirs) = (vec![0.0; rows * outputs], vec![0.0; rows * outputs]);
            Row::of_one(name, faster, "").measure(
                || one.multiply(&weights, &given, &mut products),
                || gemm(rows, inputs, outputs, &given, &numbers, &mut theirs),
            );
        }
    }
}

fn steps(wanted: &dyn Fn(&str) -> bool) {
    let one = Processor::new();
    for (name, tokens, rows) in [("prefill of 512", 512, 512), ("decode at 4,096", 4096, 1)] {
        let name = format!("step of 100 M parameters, {name}, one thread: over `gemm` alone");
        if wanted(&name) {
            let (mut step, mut products) = (Step::new(tokens, rows), StepProducts::new(tokens, rows));
            Row::of_one(name, |ours, gemm| ours / gemm, "x its time").measure(|| step.run(&one), || products.run());
        }
    }
}

/// One round for each line: `decode TYPE`, `extend TYPE` or `cascade TYPE`.
fn serve() {
    let one = Processor::new();
    let mut loads: Vec<(String, Load)> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let Some((kind, dtype)) = line.split_once(' ') else { break };
        let dtype = dtype.parse().expect("an element type");
        if !loads.iter().any(|(name, _)| *name == line) {
            let load = match kind {
                "decode" => Load::new(dtype, 8, 4096, 0, 1),
                "extend" => Load::new(dtype, 1, 4096, 0, 512),
                _ => Load::new(dtype, 32, 4096 + 256, 4096, 1),
            };
            loads.push((line.clone(), load));
        }
        let load = loads.iter_mut().find(|(name, _)| *name == line).map(|(_, load)| load).expect("just made");
        let mut run = || match kind {
            "decode" => load.decode(&one),
            "extend" => load.extend(&one),
            _ => load.cascade(&one),
        };
        println!("{}", Clock::Thread.seconds(&mut run));
    }
}

const _: () = assert!(HEAD_DIM * QUERY_HEADS == 4096);
