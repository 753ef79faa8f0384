//! All verbs on the cache and on the literal reference, compared after every step
//! (tests/model/driver.rs).

use arbitrary::{Result, Unstructured};
use radixkv::PolicyKind;

use crate::driver::Driver;
use crate::step::{Fault, Sequence, Step};
use crate::subject::{External, Real, SPACES, Setting, Subject};

const BLOCK_SIZES: [usize; 5] = [1, 2, 3, 4, 16];
const MAX_CAPACITY: usize = 64;
/// Steps of one case: what more of them would find, more cases find sooner.
const MAX_STEPS: usize = 300;

/// Panics with the first difference.
pub fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let Ok((setting, eager, external)) = setting(&mut bytes) else {
        return;
    };
    let mut steps = Vec::new();
    while steps.len() < MAX_STEPS && !bytes.is_empty() {
        let Ok(step) = step(&mut bytes) else { break };
        steps.push(step);
    }
    let outcome = if external {
        Driver::new(setting, eager, External::new(setting)).run(&steps)
    } else {
        Driver::new(setting, eager, Real::new(setting)).run(&steps)
    };
    outcome.unwrap_or_else(|difference| {
        panic!("{setting:?}, eager: {eager}, external: {external}: {difference}\n{steps:#?}")
    });
}

fn setting(bytes: &mut Unstructured<'_>) -> Result<(Setting, bool, bool)> {
    let block_size = *bytes.choose(&BLOCK_SIZES)?;
    let capacity = bytes.int_in_range(1..=MAX_CAPACITY)?;
    let policy = *bytes.choose(PolicyKind::ALL)?;
    // Without bytes of their own: what is kept of the corpus means the same.
    let (start, stands) = ([0, (1 << 63) - 60][capacity / 2 % 2], capacity % 2 == 0);
    let setting = Setting { block_size, capacity, policy, time_to_idle: None, start, stands };
    Ok((setting, bytes.arbitrary()?, bytes.ratio(1, 4)?))
}

fn step(bytes: &mut Unstructured<'_>) -> Result<Step> {
    Ok(match bytes.int_in_range(0..=27_u8)? {
        0..=2 => Step::Serve(space(bytes)?, sequence(bytes)?),
        3 => Step::Match(space(bytes)?, sequence(bytes)?),
        4 => Step::Lease(space(bytes)?, sequence(bytes)?),
        5 => Step::Peek(space(bytes)?, sequence(bytes)?),
        6 | 7 => Step::Resume(held(bytes)?, sequence(bytes)?),
        // Without bytes of their own, as above; so are several below.
        8 => match held(bytes)? {
            at @ 0..=3 => Step::Clone(at),
            at @ 4..=5 => Step::Downgrade(at),
            at => Step::Upgrade(at),
        },
        9 | 10 => Step::Release(held(bytes)?),
        11 => Step::Reserve(bytes.int_in_range(0..=MAX_CAPACITY + 1)?),
        12 => match held(bytes)? {
            at @ 0..=5 => Step::Abort(at),
            more => Step::Grow(more),
        },
        13 => Step::Insert(held(bytes)?, sequence(bytes)?),
        14 => match (held(bytes)?, sequence(bytes)?) {
            (at @ 4..=7, _) => Step::Append(at, at as u8 - 3, at as u8 % 2),
            (at, sequence) => Step::Insert(at, sequence),
        },
        15 => Step::InsertFrom(held(bytes)?, sequence(bytes)?, held(bytes)?),
        16 => {
            let fault = [Fault::OneTooMany, Fault::OneTooFew];
            Step::InsertWrong(held(bytes)?, sequence(bytes)?, *bytes.choose(&fault)?)
        }
        17 => match bytes.int_in_range(0..=12)? {
            blocks @ 10..=12 => Step::EvictOf(blocks - 10, blocks),
            blocks @ 8..=9 => Step::EvictInto(blocks),
            blocks => Step::Evict(blocks),
        },
        18 => Step::Settle,
        19 => Step::Prioritize(held(bytes)?, bytes.int_in_range(0..=100)?, bytes.arbitrary()?),
        20 => Step::Retain(held(bytes)?, bytes.arbitrary()?),
        21 => match held(bytes)? {
            at @ 0..=3 => Step::ReleaseRetained(at),
            at => Step::Invalidate(7 * at),
        },
        22 => match held(bytes)? {
            at @ 0..=3 => Step::Demote(at),
            at @ 4..=5 => Step::Renew(at),
            at => Step::CountUse(at),
        },
        23 => match bytes.arbitrary()? {
            idle @ 240.. => Step::EvictIdle(0, idle - 240),
            units => Step::Wait(units),
        },
        24 => Step::Partial(held(bytes)?, sequence(bytes)?, bytes.int_in_range(0..=3)?),
        25 => Step::SetPolicy(*bytes.choose(PolicyKind::ALL)?),
        26 => {
            let (space, cached, pinned) = (space(bytes)?, limit(bytes)?, limit(bytes)?);
            let time = cached.filter(|cached| cached % 4 == 0).map(|cached| cached as u8 + 1);
            Step::SetQuota(space, cached, pinned, time)
        }
        _ if bytes.ratio(1, 4)? => Step::Clear,
        _ => Step::DropNamespace(space(bytes)?),
    })
}

fn space(bytes: &mut Unstructured<'_>) -> Result<usize> {
    let space: usize = bytes.int_in_range(0..=4 + SPACES.len() - 1)?;
    Ok(space.saturating_sub(4))
}

/// Blocks that a namespace may have, most often as many as it likes.
fn limit(bytes: &mut Unstructured<'_>) -> Result<Option<usize>> {
    Ok(if bytes.ratio(1, 3)? { Some(bytes.int_in_range(0..=MAX_CAPACITY)?) } else { None })
}

/// An index into the leases or reservations that are held.
fn held(bytes: &mut Unstructured<'_>) -> Result<usize> {
    bytes.int_in_range(0..=7)
}

fn sequence(bytes: &mut Unstructured<'_>) -> Result<Sequence> {
    let (stem, quarters) = (bytes.int_in_range(0..=4)?, bytes.int_in_range(0..=43)?);
    // The upper bits choose how long a tail there is, most often none.
    let tail = match bytes.arbitrary::<u8>()? {
        short @ 0..=7 => usize::from(short),
        long @ 8..=40 => usize::from(long),
        _ => 0,
    };
    let tail = (0..tail).map(|_| bytes.int_in_range(0..=2)).collect::<Result<_>>()?;
    Ok(Sequence { stem, quarters, tail })
}
