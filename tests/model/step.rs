//! Random steps: what they are, and how they are drawn and shrunk.
//!
//! A step names leases and reservations by an index that is taken modulo what is held, so that any sequence of
//! steps means something and dropping steps from a failing case leaves a case.

use proptest::prelude::*;
use radixkv::Token;

use crate::subject::SPACES;

/// A sequence of tokens: a piece of a stem, then a tail of its own.
///
/// Stems part from stem 0 at different depths, mostly inside a block, so that a few of them give shared prefixes,
/// branches inside blocks and branches at the same place.
#[derive(Debug, Clone)]
pub struct Sequence {
    pub stem: u8,
    /// Length of the piece in quarters of a block, rounded up.
    pub quarters: u8,
    pub tail: Vec<u8>,
}

impl Sequence {
    /// The tokens, for blocks of this size.
    pub fn tokens(&self, block_size: usize) -> Vec<Token> {
        let stem = usize::from(self.stem);
        let parts_at = stem * (block_size + 1) + block_size / 2;
        let len = (usize::from(self.quarters) * block_size).div_ceil(4);
        let token = |i: usize| {
            if stem == 0 || i < parts_at { i % 3 } else { stem + i % 2 }
        };
        let tail = self.tail.iter().map(|&t| Token::from(t));
        (0..len).map(|i| token(i) as Token).chain(tail).collect()
    }
}

/// How the reservation of an insert misses what is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    OneTooMany,
    OneTooFew,
    /// The tokens stop short of the lease.
    TooShort,
}

/// One call, or for `Serve` the calls of a whole request.
#[derive(Debug, Clone)]
pub enum Step {
    Match(usize, Sequence),
    Lease(usize, Sequence),
    Peek(usize, Sequence),
    Resume(usize, Sequence),
    Clone(usize),
    Release(usize),
    Reserve(usize),
    Abort(usize),
    /// From a lease, with a reservation made for it.
    Insert(usize, Sequence),
    /// From a lease, with the first blocks of a held reservation if it has enough.
    InsertFrom(usize, Sequence, usize),
    InsertWrong(usize, Sequence, Fault),
    /// Match, insert, release both.
    Serve(usize, Sequence),
    Evict(usize),
    Settle,
    Clear,
    DropNamespace(usize),
}

fn sequence() -> impl Strategy<Value = Sequence> {
    let tail = prop_oneof![3 => Just(0..1), 2 => Just(0..4), 1 => Just(0..40)];
    let tail = tail.prop_flat_map(|len| prop::collection::vec(0..3_u8, len));
    (0..5_u8, 0..44_u8, tail).prop_map(|(stem, quarters, tail)| Sequence { stem, quarters, tail })
}

/// One step of any kind.
pub fn step() -> impl Strategy<Value = Step> {
    let space = || prop_oneof![4 => Just(0), 1 => 1..SPACES.len()];
    let at = || 0..8_usize;
    let fault = prop_oneof![Just(Fault::OneTooMany), Just(Fault::OneTooFew), Just(Fault::TooShort)];
    prop_oneof![
        8 => (space(), sequence()).prop_map(|(space, seq)| Step::Serve(space, seq)),
        5 => (space(), sequence()).prop_map(|(space, seq)| Step::Match(space, seq)),
        3 => (space(), sequence()).prop_map(|(space, seq)| Step::Lease(space, seq)),
        2 => (space(), sequence()).prop_map(|(space, seq)| Step::Peek(space, seq)),
        5 => (at(), sequence()).prop_map(|(at, seq)| Step::Resume(at, seq)),
        6 => (at(), sequence()).prop_map(|(at, seq)| Step::Insert(at, seq)),
        2 => (at(), sequence(), at()).prop_map(|(at, seq, from)| Step::InsertFrom(at, seq, from)),
        1 => (at(), sequence(), fault).prop_map(|(at, seq, f)| Step::InsertWrong(at, seq, f)),
        2 => at().prop_map(Step::Clone),
        8 => at().prop_map(Step::Release),
        2 => (0..50_usize).prop_map(Step::Reserve),
        3 => at().prop_map(Step::Abort),
        4 => (0..12_usize).prop_map(Step::Evict),
        2 => Just(Step::Settle),
        1 => (0..2_usize).prop_map(|_| Step::Clear),
        1 => space().prop_map(Step::DropNamespace),
    ]
}
