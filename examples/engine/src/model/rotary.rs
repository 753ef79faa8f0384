//! Rotary position embedding: each pair of elements of a head is rotated by an angle proportional
//! to the position.

use std::f64::consts::TAU;

use crate::config::{Llama3Scaling, Rope};

/// Cosine and sine of each row's angles: `[rows, head_dim / 2]`.
#[derive(Debug)]
pub(super) struct Angles {
    pairs: usize,
    turns: Vec<(f32, f32)>,
}

/// Computes the angles of rows at these positions.
pub(super) fn angles(rope: &Rope, head_dim: usize, positions: &[u32]) -> Angles {
    let pairs = head_dim / 2;
    let frequencies: Vec<f64> = (0..pairs)
        .map(|pair| {
            let plain = rope.theta.powf(-2.0 * pair as f64 / head_dim as f64);
            rope.scaling.map_or(plain, |scaling| stretched(plain, &scaling))
        })
        .collect();
    let turn = |position: u32, frequency: &f64| {
        let (sin, cos) = (f64::from(position) * frequency).sin_cos();
        (cos as f32, sin as f32)
    };
    let turns = positions.iter().flat_map(|position| frequencies.iter().map(move |f| turn(*position, f))).collect();
    Angles { pairs, turns }
}

/// Scales a frequency as Llama 3.1 does.
fn stretched(frequency: f64, scaling: &Llama3Scaling) -> f64 {
    let Llama3Scaling { factor, low_freq_factor: low, high_freq_factor: high, .. } = *scaling;
    let turns = scaling.original_max_position_embeddings * frequency / TAU;
    if turns < low {
        frequency / factor
    } else if turns > high {
        frequency
    } else {
        let smooth = (turns - low) / (high - low);
        (1.0 - smooth) * frequency / factor + smooth * frequency
    }
}

impl Angles {
    /// Rotates each head of each row: each element of its first half with one of its second.
    pub(super) fn turn(&self, rows: &mut [f32], heads: usize) {
        let head_dim = 2 * self.pairs;
        for (row, turns) in rows.chunks_exact_mut(heads * head_dim).zip(self.turns.chunks_exact(self.pairs)) {
            for head in row.chunks_exact_mut(head_dim) {
                let (first, second) = head.split_at_mut(self.pairs);
                for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(turns) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
        }
    }
}
