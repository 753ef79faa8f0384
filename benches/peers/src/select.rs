//! The table of rows: which contenders are measured in each.

use clap::ValueEnum;

use crate::{
    arena::{
        contender::Contender,
        mutexed::Mutexed,
        own::Radixkv,
        row::{Entry, Role, Row},
        rows::{contention, entries, hot, look_up_hot, look_up_together, turn_over, turnover},
        settings::Settings,
    },
    peers::{
        background::InBackground, chain_index::Chains, compressed::Compressed, kvbm::Managed, radix_tree::Holders,
        router::Routed, sharded::Sharded, shared::Shared, token_tree::Tenants,
    },
    rows::{
        contention::{disjoint, look_up_many, look_up_own, many},
        engine::{engine, serve_sequences},
        growth::{Grow, apart, grow, growth},
        lookups::{among_1m, among_100k, cold, rotate, rotating},
        mixed::{half, mix, mix_half, mixed},
        replays::{Load, replay, serve},
        writes::{append, evict, insert, of_1k, of_1m, of_100k},
    },
};

type ChainTokens = Routed<Chains, false>;
type ChainHashes = Routed<Chains, true>;
type CompressedTokens = Routed<Compressed, false>;
type CompressedHashes = Routed<Compressed, true>;
type HolderTokens = Routed<Holders, false>;
type HolderHashes = Routed<Holders, true>;
type ManagedTokens = Managed<false>;
type ManagedHashes = Managed<true>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    Match,
    #[value(name = "cold-100k")]
    Cold100k,
    #[value(name = "cold-1m")]
    Cold1m,
    Rotating,
    Insert,
    #[value(name = "evict-1k")]
    Evict1k,
    #[value(name = "evict-100k")]
    Evict100k,
    #[value(name = "evict-1m")]
    Evict1m,
    Contention,
    #[value(name = "contention-64")]
    Contention64,
    Disjoint,
    Mixed,
    Half,
    Turnover,
    Engine,
    Growth,
    Replay,
}

/// An entry for every contender, measured by `$start`.
macro_rules! contenders {
    ($start:ident, $settings:expr) => {
        entries!($start, $settings; Radixkv, Mutexed, Shared, Tenants, ChainTokens, ChainHashes, CompressedTokens,
            CompressedHashes, HolderTokens, HolderHashes, ManagedTokens, ManagedHashes)
    };
}

/// An entry, measured by `$start`, for each contender that evicts or can be told what to remove.
/// Contenders that work on hashes get them ready-made.
macro_rules! evicting {
    ($start:ident, $settings:expr) => {
        entries!($start, $settings; Radixkv, Mutexed, ChainHashes, CompressedHashes, HolderHashes, ManagedHashes)
    };
}

/// The row with this name, with its contenders.
pub(crate) fn row(name: Name, settings: &Settings, load: Option<&Load>) -> Row {
    match name {
        Name::Match => hot(settings, contenders!(look_up_hot, settings)),
        Name::Contention => contention(settings, contenders!(look_up_together, settings)),
        Name::Contention64 => many(settings, contenders!(look_up_many, settings)),
        Name::Disjoint => disjoint(settings, contenders!(look_up_own, settings)),
        Name::Rotating => rotating(settings, contenders!(rotate, settings)),
        Name::Cold100k => cold("cold-100k", 100_000, settings, contenders!(among_100k, settings)),
        Name::Cold1m => cold("cold-1m", 1_000_000, settings, among_a_million(settings)),
        Name::Insert => insert(settings, contenders!(append, settings)),
        Name::Evict1k => {
            evict("evict-1k", 1_000, settings, with(evicting!(of_1k, settings), entries!(of_1k, settings; Tenants)))
        }
        Name::Evict100k => {
            evict("evict-100k", 100_000, settings, with(evicting!(of_100k, settings), [absent::<Tenants>(SWEEPS)]))
        }
        Name::Evict1m => {
            evict("evict-1m", 1_000_000, settings, with(evicting!(of_1m, settings), [absent::<Tenants>(SWEEPS)]))
        }
        Name::Mixed => mixed(
            settings,
            with(
                evicting!(mix, settings),
                with(entries!(mix, settings; Sharded, Shared), [absent::<Tenants>(NO_POOL)]),
            ),
        ),
        Name::Half => half(
            settings,
            with(
                evicting!(mix_half, settings),
                with(entries!(mix_half, settings; Sharded, Shared), [absent::<Tenants>(NO_POOL)]),
            ),
        ),
        Name::Turnover => {
            let others = with(entries!(turn_over, settings; Sharded, Shared), [absent::<Tenants>(NO_POOL)]);
            turnover(settings, with(evicting!(turn_over, settings), others))
        }
        Name::Engine => engine(settings, entries!(serve_sequences, settings; Radixkv, Sharded, InBackground, Mutexed)),
        Name::Growth => growth(settings, contenders!(apart, settings)),
        Name::Replay => {
            let load = load.expect("it is made for this row");
            replay(load, settings, served(load, settings))
        }
    }
}

const SWEEPS: &str = "each call sweeps over all leaves";
const NO_POOL: &str = "has no pool that could be full";
const NOTHING_TO_EVICT: &str = "has no pool, and nothing to choose what to remove by";
const TOO_LARGE: &str = "ten million blocks of it are left out for their memory";

fn with(mut entries: Vec<Entry>, more: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
    entries.extend(more);
    entries
}

/// The entry of a contender that the row does not suit, with the reason.
fn absent<C: Contender>(why: &'static str) -> Entry {
    Entry { name: C::NAME, lacks: C::LACKS, role: Role::Other, start: Err(why) }
}

fn among_a_million(settings: &Settings) -> Vec<Entry> {
    let entries = entries!(among_1m, settings; Radixkv, Mutexed, Tenants, ChainHashes, CompressedHashes, HolderHashes);
    with(entries, [absent::<ManagedHashes>(TOO_LARGE)])
}

fn served(load: &Load, settings: &Settings) -> Vec<Entry> {
    macro_rules! served {
        ($($contender:ty),+) => {
            vec![$({
                let (load, settings) = (load.clone(), settings.clone());
                Entry::new::<$contender>(move || serve::<$contender>(load, &settings))
            }),+]
        };
    }
    let none = [
        absent::<Tenants>(NO_POOL),
        absent::<ChainHashes>(NOTHING_TO_EVICT),
        absent::<CompressedHashes>(NOTHING_TO_EVICT),
        absent::<HolderHashes>(NOTHING_TO_EVICT),
    ];
    with(served!(Radixkv, Mutexed, Shared, ManagedHashes), none)
}

/// The function that grows the contender with this name, for the row `growth`.
pub(crate) fn grower(name: &str) -> Option<Grow> {
    macro_rules! growers {
        ($($contender:ty),+ $(,)?) => {
            [$((<$contender>::NAME, grow::<$contender> as Grow)),+]
        };
    }
    let growers = growers!(
        Radixkv,
        Mutexed,
        Shared,
        Tenants,
        ChainTokens,
        ChainHashes,
        CompressedTokens,
        CompressedHashes,
        HolderTokens,
        HolderHashes,
        ManagedTokens,
        ManagedHashes
    );
    growers.into_iter().find(|(known, _)| *known == name).map(|(_, grow)| grow)
}
