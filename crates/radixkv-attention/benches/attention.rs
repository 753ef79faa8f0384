//! Attention on the processor beside what it could cost: a read of the same bytes, the products alone, a plain loop.
//!
//! `cargo bench -p radixkv-attention --bench attention [-- NAME...]`. Both sides of a row are measured in turn, round by
//! round, in one process; medians, with quartiles of the ratio. Rows of one thread are measured in the time that the thread
//! computes, on Unix, so that a busy machine does not stretch them; rows of two in the time that passes. `-- --serve` reads
//! names of rows from standard input and prints the seconds of one round for each: so `attention/peers.py` measures torch
//! and ggml in turn with it.

#[path = "attention/baseline.rs"]
mod baseline;
#[path = "attention/clock.rs"]
mod clock;
#[path = "attention/load.rs"]
mod load;
#[path = "attention/step.rs"]
mod step;

use std::io::BufRead;

use baseline::{PlainLoop, Products, gemm, stream};
use clock::Clock;
use load::{HEAD_DIM, Load, QUERY_HEADS};
use radixkv_attention::Dtype;
use radixkv_attention::cpu::{Processor, Weights};
use step::{Step, StepProducts};

const ROUNDS: usize = 15;
const TYPES: [Dtype; 4] = [Dtype::Bf16, Dtype::F32, Dtype::F16, Dtype::I8];

/// Two things that are measured in turn, and what their times mean.
struct Row<'a> {
    name: String,
    ours: Box<dyn FnMut() + 'a>,
    theirs: Box<dyn FnMut() + 'a>,
    /// From the seconds of both to a figure.
    figure: Box<dyn Fn(f64, f64) -> f64>,
    unit: &'static str,
    clock: Clock,
}

fn quartiles(mut figures: Vec<f64>) -> [f64; 3] {
    figures.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| figures[(figures.len() - 1) * quarter / 4])
}

fn measure(row: &mut Row<'_>) {
    let clock = row.clock;
    (row.ours)();
    (row.theirs)();
    let rounds: Vec<[f64; 2]> =
        (0..ROUNDS).map(|_| [clock.seconds(&mut row.ours), clock.seconds(&mut row.theirs)]).collect();
    let median = |side: usize| quartiles(rounds.iter().map(|round| round[side]).collect())[1] * 1e3;
    let [low, middle, high] = quartiles(rounds.iter().map(|[ours, theirs]| (row.figure)(*ours, *theirs)).collect());
    let (ours, theirs) = (median(0), median(1));
    println!("| {} | {ours:.2} | {theirs:.2} | {middle:.2} [{low:.2} {high:.2}] {} |", row.name, row.unit);
}

fn main() {
    let named: Vec<String> = std::env::args().skip(1).filter(|name| name != "--bench").collect();
    if named.iter().any(|name| name == "--serve") {
        return serve();
    }
    println!("| row | ours, ms | other, ms | figure |\n|---|---:|---:|---:|");
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
            let (ours, theirs) = (Box::new(|| load.decode(&one)), Box::new(|| stream(&words)));
            measure(&mut Row {
                name,
                ours,
                theirs,
                figure: Box::new(|ours, read| 100.0 * read / ours),
                unit: "%",
                clock: Clock::Thread,
            });
        }
    }
    let name = "decode f32 8 x 4k, one thread: over a plain loop".to_owned();
    if wanted(&name) {
        let (mut load, mut plain) = (Load::new(Dtype::F32, 8, 4096, 0, 1), PlainLoop::new(4096, 8 * 4096));
        let (ours, theirs) = (Box::new(|| load.decode(&one)), Box::new(|| plain.run()));
        measure(&mut Row {
            name,
            ours,
            theirs,
            figure: Box::new(|ours, plain| plain / ours),
            unit: "x as fast",
            clock: Clock::Thread,
        });
    }
}

fn extend(wanted: &dyn Fn(&str) -> bool) {
    let one = Processor::new();
    for dtype in TYPES {
        let name = format!("extend {dtype}, 512 rows over 4k, one thread: share of `gemm` alone");
        if wanted(&name) {
            let (mut load, mut products) = (Load::new(dtype, 1, 4096, 0, 512), Products::new(512, 4096));
            let (ours, theirs) = (Box::new(|| load.extend(&one)), Box::new(|| products.run()));
            // A row does not see the rows after it: 3,840 tokens on average.
            let figure = Box::new(|ours, gemm| gemm / ours * 3840.0 / 4096.0);
            measure(&mut Row { name, ours, theirs, figure, unit: "", clock: Clock::Thread });
        }
    }
}

fn cascade(wanted: &dyn Fn(&str) -> bool) {
    let name = "cascade bf16, 32 share 4k and have 256 each, one thread: over decode".to_owned();
    if wanted(&name) {
        let (one, load) = (Processor::new(), std::cell::RefCell::new(Load::new(Dtype::Bf16, 32, 4096 + 256, 4096, 1)));
        let (ours, theirs) = (|| load.borrow_mut().cascade(&one), || load.borrow_mut().decode(&one));
        let figure = Box::new(|ours, decode| decode / ours);
        measure(&mut Row {
            name,
            ours: Box::new(ours),
            theirs: Box::new(theirs),
            figure,
            unit: "x as fast",
            clock: Clock::Thread,
        });
    }
}

fn threads(wanted: &dyn Fn(&str) -> bool) {
    let (one, two) = (Processor::new(), Processor::with_threads(2).expect("threads"));
    let faster = || Box::new(|two, one| one / two);
    let load = |rows| std::cell::RefCell::new(Load::new(Dtype::Bf16, 1, 4096, 0, rows));
    let name = "two threads over one: decode bf16 1 x 4k".to_owned();
    if wanted(&name) {
        let load = load(1);
        let (ours, theirs) = (|| load.borrow_mut().decode(&two), || load.borrow_mut().decode(&one));
        measure(&mut Row {
            name,
            ours: Box::new(ours),
            theirs: Box::new(theirs),
            figure: faster(),
            unit: "x as fast",
            clock: Clock::Wall,
        });
    }
    let name = "two threads over one: extend bf16, 512 rows over 4k".to_owned();
    if wanted(&name) {
        let load = load(512);
        let (ours, theirs) = (|| load.borrow_mut().extend(&two), || load.borrow_mut().extend(&one));
        measure(&mut Row {
            name,
            ours: Box::new(ours),
            theirs: Box::new(theirs),
            figure: faster(),
            unit: "x as fast",
            clock: Clock::Wall,
        });
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
            let ours = Box::new(|| one.multiply(&weights, &given, &mut products));
            let theirs = Box::new(|| gemm(rows, inputs, outputs, &given, &numbers, &mut theirs));
            measure(&mut Row {
                name,
                ours,
                theirs,
                figure: Box::new(|ours, gemm| gemm / ours),
                unit: "",
                clock: Clock::Thread,
            });
        }
    }
}

fn steps(wanted: &dyn Fn(&str) -> bool) {
    let one = Processor::new();
    for (name, tokens, rows) in [("prefill of 512", 512, 512), ("decode at 4,096", 4096, 1)] {
        let name = format!("step of 100 M parameters, {name}, one thread: over `gemm` alone");
        if wanted(&name) {
            let (mut step, mut products) = (Step::new(tokens, rows), StepProducts::new(tokens, rows));
            let (ours, theirs) = (Box::new(|| step.run(&one)), Box::new(|| products.run()));
            let (figure, unit) = (Box::new(|ours, gemm| ours / gemm), "x its time");
            measure(&mut Row { name, ours, theirs, figure, unit, clock: Clock::Thread });
        }
    }
}

/// One round for each line: `decode TYPE` or `extend TYPE`.
fn serve() {
    let one = Processor::new();
    let mut loads: Vec<(String, Load)> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let Some((kind, dtype)) = line.split_once(' ') else { break };
        let dtype = dtype.parse().expect("an element type");
        if !loads.iter().any(|(name, _)| *name == line) {
            let load =
                if kind == "decode" { Load::new(dtype, 8, 4096, 0, 1) } else { Load::new(dtype, 1, 4096, 0, 512) };
            loads.push((line.clone(), load));
        }
        let load = loads.iter_mut().find(|(name, _)| *name == line).map(|(_, load)| load).expect("just made");
        let mut run = || if kind == "decode" { load.decode(&one) } else { load.extend(&one) };
        println!("{}", Clock::Thread.seconds(&mut run));
    }
}

const _: () = assert!(HEAD_DIM * QUERY_HEADS == 4096);
