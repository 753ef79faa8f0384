//! How random steps are drawn and shrunk.

use proptest::prelude::*;
use radixkv::PolicyKind;

use crate::step::{Fault, Sequence, Step};
use crate::subject::SPACES;

fn sequence() -> impl Strategy<Value = Sequence> {
    let tail = prop_oneof![3 => Just(0..1), 2 => Just(0..4), 1 => Just(0..40)];
    let tail = tail.prop_flat_map(|len| prop::collection::vec(0..3_u8, len));
    (0..5_u8, 0..44_u8, tail).prop_map(|(stem, quarters, tail)| Sequence { stem, quarters, tail })
}

/// Few different ones, so that they meet.
fn priority() -> impl Strategy<Value = i64> {
    prop::sample::select(vec![i64::MIN, -1, 0, 35, 60, 61, i64::MAX])
}

/// Mostly so short that it ends within a case.
fn ttl() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![1 => Just(None), 3 => (0..50_u8).prop_map(Some)]
}

pub fn policy() -> impl Strategy<Value = PolicyKind> {
    let with_uses = [1, 3, 5].map(PolicyKind::SlruFrom);
    prop::sample::select(PolicyKind::ALL.iter().copied().chain(with_uses).collect::<Vec<_>>())
}

/// One step of any kind; of 90 others so many that append to what is leased.
pub fn step(appends: u32) -> impl Strategy<Value = Step> {
    let blocks = prop_oneof![6 => Just(1), 3 => 2..4_u8, 1 => 4..12_u8];
    let space = || prop_oneof![4 => Just(0), 2 => 1..SPACES.len(), 2 => 3..SPACES.len()];
    let at = || 0..8_usize;
    let limit = || prop::option::weighted(0.6, 0..24_usize);
    let time = prop::option::weighted(0.3, 1..100_u8);
    let fault = prop_oneof![Just(Fault::OneTooMany), Just(Fault::OneTooFew)];
    prop_oneof![
        8 => (space(), sequence()).prop_map(|(space, seq)| Step::Serve(space, seq)),
        5 => (space(), sequence()).prop_map(|(space, seq)| Step::Match(space, seq)),
        3 => (space(), sequence()).prop_map(|(space, seq)| Step::Lease(space, seq)),
        2 => (space(), sequence()).prop_map(|(space, seq)| Step::Peek(space, seq)),
        5 => (at(), sequence()).prop_map(|(at, seq)| Step::Resume(at, seq)),
        6 => (at(), sequence()).prop_map(|(at, seq)| Step::Insert(at, seq)),
        2 => (at(), sequence(), at()).prop_map(|(at, seq, from)| Step::InsertFrom(at, seq, from)),
        appends => (at(), blocks, 0..2_u8).prop_map(|(at, blocks, token)| Step::Append(at, blocks, token)),
        1 => (at(), sequence(), fault).prop_map(|(at, seq, f)| Step::InsertWrong(at, seq, f)),
        4 => (at(), sequence(), 0..4_usize).prop_map(|(at, seq, least)| Step::Partial(at, seq, least)),
        2 => at().prop_map(Step::Clone),
        8 => at().prop_map(Step::Release),
        2 => (0..50_usize).prop_map(Step::Reserve),
        3 => at().prop_map(Step::Abort),
        4 => (0..12_usize).prop_map(Step::Evict),
        2 => (space(), 0..12_usize).prop_map(|(space, blocks)| Step::EvictOf(space, blocks)),
        1 => (0..12_usize).prop_map(Step::EvictInto),
        1 => (space(), 0..60_u8).prop_map(|(space, idle)| Step::EvictIdle(space, idle)),
        2 => (0..64_usize).prop_map(Step::Invalidate),
        2 => at().prop_map(Step::Downgrade),
        2 => at().prop_map(Step::Upgrade),
        1 => (0..3_usize).prop_map(Step::Grow),
        4 => (at(), priority(), ttl()).prop_map(|(at, priority, ttl)| Step::Prioritize(at, priority, ttl)),
        1 => (at(), 0..40_u8).prop_map(|(at, duration)| Step::Retain(at, duration)),
        1 => at().prop_map(Step::ReleaseRetained),
        2 => at().prop_map(Step::Demote),
        2 => at().prop_map(Step::Renew),
        2 => at().prop_map(Step::CountUse),
        1 => (0..60_u8).prop_map(Step::Wait),
        2 => Just(Step::Settle),
        1 => (0..2_usize).prop_map(|_| Step::Clear),
        1 => policy().prop_map(Step::SetPolicy),
        2 => (space(), limit(), limit(), time).prop_map(|(space, cached, pinned, time)| {
            Step::SetQuota(space, cached, pinned, time)
        }),
        1 => space().prop_map(Step::DropNamespace),
    ]
}
