//! Compares the CPU backend with the definition in `f64`, and with itself: the bits are the same
//! however a step is cut, and whatever computes it.

mod bed;
mod combined;
mod edges;
mod extremes;
mod hostile;
mod latent;
mod numbers;
mod prefix;
mod trees;

use std::sync::{Arc, LazyLock};

use fastrand::Rng;

use super::*;
use crate::{Backend, Batch, Dtype, Half, Layout, Order, Output, Qkv, Scoring, ShapeError, Tables, plan};
use bed::{Bed, Chunks, Flat, How, Model, Text, bits, close, spoil, spoil_sinks};
use radixkv::BlockId;

fn rows(rows: usize, row: usize, dice: &mut Rng) -> Vec<f32> {
    (0..rows * row).map(|_| dice.f32() * 4.0 - 2.0).collect()
}

/// Pools of two to four threads.
static POOLS: LazyLock<Vec<Arc<rayon_core::ThreadPool>>> = LazyLock::new(|| {
    let pool = |threads| rayon_core::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    (2..=4).map(pool).map(Arc::new).collect()
});

/// Every level of instructions that this processor has, on one to four threads.
static PROCESSORS: LazyLock<Vec<Processor>> = LazyLock::new(processors);

fn processors<E: Number>() -> Vec<Processor<E>> {
    let all = std::iter::once(Processor::new()).chain(POOLS.iter().cloned().map(Processor::with_pool));
    all.flat_map(|processor| kernels::Level::all().map(move |level| processor.clone().at(level))).collect()
}

/// The first level on the caller's thread.
fn plain() -> &'static Processor {
    &PROCESSORS[0]
}

fn any(dice: &mut Rng) -> &'static Processor {
    &PROCESSORS[dice.usize(..PROCESSORS.len())]
}

// Holds: AT1.
#[test]
fn every_operation_is_close_to_the_definition() {
    for seed in 1..=72 {
        let dice = &mut Rng::with_seed(seed);
        let mut model = Model::draw(dice);
        model.scale *= dice.choice([1.0, 1.0, 0.0, -1.0, 0.01]).expect("one of them");
        let lengths: Vec<usize> = (0..dice.usize(1..=3)).map(|_| dice.usize(1..=150)).collect();
        let mut texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        if seed % 2 == 0 {
            texts.iter_mut().for_each(|text| spoil(text, dice));
            spoil_sinks(&mut model, dice);
        }
        let block_size = dice.choice([1, 5, 16, 64]).expect("one of them");
        let order = dice.choice([Order::Nhd, Order::Hnd]).expect("one of them");
        let bed = Bed::new(model.clone(), block_size, order, &lengths, dice);
        let prompts: Chunks = lengths.iter().map(|tokens| 0..*tokens).enumerate().collect();
        let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
        for (chunks, how) in
            [(&prompts, How::Discard), (&prompts, How::Extend), (&last, How::Decode), (&last, How::Cascade)]
        {
            let (rows, lse) = bed.step(any(dice), chunks, &texts, how);
            let tokens =
                chunks.iter().flat_map(|(sequence, tokens)| tokens.clone().map(move |token| (*sequence, token)));
            // A soft-cap multiplies the error of its `tanh`, and 70,000 the error of everything
            // combined with it.
            let by = 2e-6 + f64::from(model.soft_cap.unwrap_or(0.0)) * 5e-7;
            for (row, (sequence, token)) in tokens.enumerate() {
                let head = dice.usize(..model.query_heads);
                let (out, defined_lse) = model.defined(&texts[sequence], bed.layer, token, head);
                let place = row * model.query_heads + head;
                let largest = out.iter().filter(|out| out.is_finite()).fold(1.0, |most: f64, out| most.max(out.abs()));
                let context = format!("seed {seed}, {model:?}, block size {block_size}, {how:?}, token {token}");
                for (defined, computed) in out.iter().zip(&rows[place * model.value_dim..]) {
                    assert!(close(*defined, *computed, by * largest), "{defined} {computed}: {context}");
                }
                let by = 2.0 * by * defined_lse.abs().max(1.0);
                assert!(close(defined_lse, lse[place], by), "{defined_lse} {}: {context}", lse[place]);
            }
        }
    }
}

/// Compares each sequence alone in one step, with blocks of one token, on one thread without vector
/// instructions, with random steps of mixed chunks on any processor.
// Holds: AT10.
#[test]
fn bits_do_not_depend_on_how_a_step_is_cut() {
    for seed in 1..=30 {
        let dice = &mut Rng::with_seed(seed);
        let model = Model::draw(dice);
        let query_heads = model.kv_heads * dice.usize(1..=5);
        let slopes = model.slopes.iter().cycle().take(query_heads).copied().collect();
        let mut model = Model { query_heads, slopes, sinks: Vec::new(), ..model };
        if dice.bool() {
            model.sinks = rows(2, model.query_heads, dice);
        }
        let texts_of = |lengths: &[usize], dice: &mut Rng| -> Vec<Text> {
            lengths.iter().map(|tokens| model.text(*tokens, dice)).collect()
        };
        let lengths: Vec<usize> = (0..dice.usize(1..=4)).map(|_| dice.usize(1..=300)).collect();
        let mut texts = texts_of(&lengths, dice);
        if seed % 3 == 0 {
            texts.iter_mut().for_each(|text| spoil(text, dice));
        }
        let whole_bed = Bed { layer: 1, ..Bed::new(model.clone(), 1, Order::Nhd, &lengths, dice) };
        let whole: Vec<(Vec<f32>, Vec<f32>)> = (0..lengths.len())
            .map(|sequence| whole_bed.step(plain(), &vec![(sequence, 0..lengths[sequence])], &texts, How::Extend))
            .collect();

        let order = dice.choice([Order::Nhd, Order::Hnd]).expect("one of them");
        let block_size = dice.choice([1, 7, 8, 16, 64, 100]).expect("one of them");
        let bed = Bed { layer: 1, ..Bed::new(model.clone(), block_size, order, &lengths, dice) };
        let mut done = vec![0; lengths.len()];
        while done != lengths {
            let decode = dice.u8(..4) == 0;
            let mut chunks = Chunks::new();
            for sequence in 0..lengths.len() {
                let left = lengths[sequence] - done[sequence];
                if left > 0 && dice.u8(..3) > 0 {
                    let most = dice.choice([1, 7, 64, 512]).expect("one of them");
                    let tokens = if decode { 1 } else { left.min(dice.usize(1..=most)) };
                    chunks.push((sequence, done[sequence]..done[sequence] + tokens));
                }
            }
            let how = match (decode, dice.u8(..3)) {
                (true, 0) => How::Cascade,
                (true, _) => How::Decode,
                (false, 0) => {
                    let discarded = bed.step(any(dice), &chunks, &texts, How::Discard);
                    let kept = bed.step(any(dice), &chunks, &texts, How::Extend);
                    assert_eq!(bits(&discarded.0), bits(&kept.0), "seed {seed}: kept or not");
                    How::Extend
                }
                (false, _) => How::Extend,
            };
            let (rows, lse) = bed.step(any(dice), &chunks, &texts, how);
            let mut at = 0;
            for (sequence, tokens) in chunks {
                let row = model.query_heads * model.value_dim;
                let same = |ours: &[f32], theirs: &[f32], row: usize| {
                    let ours = &ours[at * row..(at + tokens.len()) * row];
                    bits(ours) == bits(&theirs[tokens.start * row..tokens.end * row])
                };
                let context = || format!("seed {seed}, {model:?}, block size {block_size}, {how:?}, {tokens:?}");
                assert!(same(&rows, &whole[sequence].0, row), "{}", context());
                assert!(same(&lse, &whole[sequence].1, model.query_heads), "{}", context());
                at += tokens.len();
                done[sequence] = tokens.end;
            }
        }
    }
}

/// Contexts that the threads of a call divide among them, in one round and in several.
// Holds: AT10.
#[test]
fn threads_that_divide_a_context_change_no_bit() {
    for seed in 1..=12 {
        let dice = &mut Rng::with_seed(seed);
        let model = Model { window: (seed % 3 == 0).then(|| dice.u32(500..900)), ..Model::draw(dice) };
        // The last context has more ranges than two threads compute at once.
        let tokens = if seed == 12 { 300 * RANGE_TOKENS + 7 } else { dice.usize(400..1100) };
        let model = if seed == 12 { Model::small(2, 1, 8, Dtype::I8) } else { model };
        let mut texts = [model.text(tokens, dice)];
        if seed % 4 == 0 && seed < 12 {
            spoil(&mut texts[0], dice);
        }
        let order = dice.choice([Order::Nhd, Order::Hnd]).expect("one of them");
        let bed = Bed::new(model.clone(), 16, order, &[tokens], dice);
        bed.append_all(&[tokens], &texts);
        let last: Chunks = vec![(0, tokens - 1..tokens)];
        let (rows, lse) = bed.step(plain(), &last, &texts, How::Decode);
        for processor in PROCESSORS.iter() {
            let how = if dice.bool() { How::Decode } else { How::Cascade };
            let again = bed.step(processor, &last, &texts, how);
            assert_eq!((bits(&rows), bits(&lse)), (bits(&again.0), bits(&again.1)), "seed {seed}, {how:?}: {model:?}");
        }
    }
}

/// Sequences whose tables begin with the same blocks, decoded one by one and as groups.
// Holds: AT10.
#[test]
fn sharing_changes_no_bit() {
    for seed in 1..=20 {
        let dice = &mut Rng::with_seed(seed);
        let model = Model { window: None, ..Model::draw(dice) };
        let block_size = dice.choice([1, 8, 16, 64]).expect("one of them");
        let shared = dice.usize(..300) / block_size * block_size;
        let lengths: Vec<usize> = (0..dice.usize(2..6)).map(|_| shared + dice.usize(1..=100)).collect();
        let mut texts: Vec<Text> = lengths.iter().map(|tokens| model.text(*tokens, dice)).collect();
        let mut bed = Bed::new(model.clone(), block_size, Order::Nhd, &lengths, dice);
        bed.share(&mut texts, shared);
        for (sequence, tokens) in lengths.iter().enumerate() {
            bed.step(any(dice), &vec![(sequence, 0..*tokens)], &texts, How::Extend);
        }
        let last: Chunks = lengths.iter().map(|tokens| tokens - 1..*tokens).enumerate().collect();
        let flat = bed.flat(&last);
        let batch = bed.batch(&flat, true);
        let sharing = plan::share(batch.tables, batch.contexts, block_size, Cpu.rule(bed.kv.layout()));
        assert_eq!(sharing.saved_tokens(), (lengths.len() - 1) * (shared / RANGE_TOKENS * RANGE_TOKENS), "seed {seed}");
        let (plain, grouped) =
            (bed.step(plain(), &last, &texts, How::Decode), bed.step(any(dice), &last, &texts, How::Cascade));
        assert_eq!((bits(&plain.0), bits(&plain.1)), (bits(&grouped.0), bits(&grouped.1)), "seed {seed}");
    }
}

#[test]
fn copied_blocks_are_the_same_in_all_layers() {
    let dice = &mut Rng::with_seed(7);
    let model = Model::small(2, 2, 8, Dtype::I8);
    let kv = Cpu.allocate(model.layout(4, 8, Order::Hnd)).expect("a small layout");
    for (layer, slot) in (0..2).flat_map(|layer| (0..kv.layout().slots()).map(move |slot| (layer, slot))) {
        kv.write(layer, Half::Keys, slot, &rows(1, 16, dice));
        kv.write(layer, Half::Values, slot, &rows(1, 16, dice));
    }
    let contents = |block| {
        let place = (0..2).flat_map(|layer| [Half::Keys, Half::Values].map(|half| (layer, half)));
        let mut all = Vec::new();
        for (layer, half, head) in place.flat_map(|(layer, half)| (0..2).map(move |head| (layer, half, head))) {
            let mut rows = vec![0.0; 4 * 8];
            kv.read(layer, half, block, 0, head, &mut rows);
            all.extend(rows);
        }
        all
    };
    let before: Vec<_> = (0..5).map(contents).collect();
    Cpu.copy_blocks(&kv, &[(0, 3), (0, 1)]).expect("no overlap");
    let after: Vec<_> = (0..5).map(contents).collect();
    assert_eq!(after, [0, 0, 2, 0, 4].map(|block: usize| before[block].clone()));

    let refused = |pairs: &[(BlockId, BlockId)], error: ShapeError| {
        assert_eq!(Cpu.copy_blocks(&kv, pairs), Err(error.into()));
    };
    refused(&[(0, 5)], ShapeError::CopyRange { block: 5, blocks: 5 });
    refused(&[(0, 1), (2, 1)], ShapeError::CopyOverlap { block: 1 });
    refused(&[(0, 1), (1, 2)], ShapeError::CopyOverlap { block: 1 });
}

// Holds: AT11.
#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let dice = &mut Rng::with_seed(9);
    let model = Model::small(4, 2, 4, Dtype::F32);
    let bed = Bed::new(model.clone(), 4, Order::Nhd, &[6], dice);
    let text = model.text(6, dice);
    let flat = bed.flat(&vec![(0, 0..6)]);
    let (layout, batch) = (*bed.kv.layout(), bed.batch(&flat, true));
    let prepared = Cpu.prepare(&layout, &batch).expect("a good batch");
    let mut rows = vec![0.0; 6 * 16];
    let extend = |layer, queries: &[f32], keys: &[f32], rows: usize, lse: Option<usize>| {
        let mut out = vec![0.0; rows];
        let mut lse = lse.map(|lse| vec![0.0; lse]);
        let new = Qkv { queries, keys, values: &text.values };
        Cpu.extend(&bed.kv, layer, &prepared, new, Output { rows: &mut out, lse: lse.as_deref_mut() })
    };
    let short = |what, given, needed| Err(ShapeError::Length { what, given, needed }.into());
    let (queries, keys) = (&text.queries[..], &text.keys[..]);
    assert_eq!(extend(2, queries, keys, 96, None), Err(ShapeError::Layer { layer: 2, layers: 2 }.into()));
    assert_eq!(extend(0, &queries[1..], keys, 96, None), short("queries", 95, 96));
    assert_eq!(extend(0, queries, &keys[8..], 96, None), short("keys", 40, 48));
    assert_eq!(extend(0, queries, keys, 0, None), short("output", 0, 96));
    assert_eq!(extend(0, queries, keys, 96, Some(23)), short("lse", 23, 24));
    let out = Output { rows: rows.as_mut_slice(), lse: None };
    let decoded = Cpu.decode(&bed.kv, 0, &prepared, queries, out);
    assert_eq!(decoded, Err(ShapeError::DecodeRows { sequence: 0, rows: 6 }.into()));
    let unkept = Cpu.prepare(&layout, &bed.batch(&flat, false)).expect("a good batch");
    assert_eq!(Cpu.append(&bed.kv, 0, &unkept, keys, &text.values), Err(ShapeError::NotKept.into()));
    let other = Cpu.allocate(Layout { blocks: 9, ..layout }).expect("a small layout");
    assert_eq!(Cpu.append(&other, 0, &prepared, keys, &text.values), Err(ShapeError::Foreign.into()));
    let mut read = vec![0.0; 4];
    bed.kv.read(0, Half::Keys, bed.tables[0][0], 0, 0, &mut read);
    assert!(read.iter().all(|element| element.is_nan()));

    let huge = Layout { blocks: 1 << 31, block_size: 1 << 20, ..layout };
    assert_eq!(Cpu.allocate(huge).err(), Some(CpuError::Memory { bytes: huge.bytes() }));
}
