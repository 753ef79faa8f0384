//! Measures contenders alternately in one process.

use super::figure::{Asked, Figure};
use crate::arena::{measure::Spread, row::Round};

/// The values of all contenders in each round.
pub(crate) struct Rounds(Vec<Vec<Vec<f64>>>);

/// Names a value: the index of the contender, and the index of the value among those of its round.
pub(crate) type Value = (usize, usize);

impl Rounds {
    /// Measures all contenders in each round, in alternating order, after one warm-up round.
    pub(crate) fn of(rounds: usize, mut contenders: Vec<Round>) -> Self {
        contenders.iter_mut().for_each(|round| drop(round()));
        let in_turn = |at: usize| {
            let mut order: Vec<usize> = (0..contenders.len()).collect();
            if at % 2 == 1 {
                order.reverse();
            }
            let mut values = vec![Vec::new(); order.len()];
            order.into_iter().for_each(|turn| values[turn] = contenders[turn]());
            values
        };
        Self((0..rounds).map(in_turn).collect())
    }

    /// A figure: the ratio of one value to another in each round.
    pub(crate) fn over(&self, what: impl Into<String>, asked: Asked, value: Value, other: Value) -> Figure {
        self.figure(what, asked, |round| round[value.0][value.1] / round[other.0][other.1])
    }

    /// A figure: one value in each round, multiplied by `scale`.
    pub(crate) fn value(&self, what: impl Into<String>, asked: Asked, value: Value, scale: f64) -> Figure {
        self.figure(what, asked, |round| round[value.0][value.1] * scale)
    }

    fn figure(&self, what: impl Into<String>, asked: Asked, of: impl Fn(&[Vec<f64>]) -> f64) -> Figure {
        Figure::new(what, asked, Spread::of(self.0.iter().map(|round| of(round)).collect()))
    }
}
