//! Chooses the instance that serves a request.

use std::str::FromStr;

use radixkv::{Namespace, Token};
use radixkv_host::TieredSession;

use crate::tokens::splitmix64;

/// The rule that chooses the instance for a request.
///
/// # Examples
///
/// ```
/// use radixkv_replay::replay::Route;
///
/// assert_eq!("round-robin".parse(), Ok(Route::RoundRobin));
/// assert!("best".parse::<Route>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Route {
    /// The instances in turn.
    #[default]
    RoundRobin,
    /// A random instance, the same in every run.
    Random,
    /// The instance whose device caches the longest prefix; if several do, the first of them in the
    /// order of [`RoundRobin`](Self::RoundRobin).
    Prefix,
}

impl Route {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::Prefix => "prefix",
        }
    }

    /// The index of the instance for request `number`.
    pub(super) fn choose(self, number: usize, tokens: &[Token], instances: &[(TieredSession, Namespace)]) -> usize {
        let turn = number % instances.len();
        match self {
            Self::RoundRobin => turn,
            Self::Random => (splitmix64(number as u64) % instances.len() as u64) as usize,
            Self::Prefix => {
                let cached = |at: usize| {
                    let (session, namespace) = &instances[at];
                    session.device().peek(namespace, tokens)
                };
                let in_turn = (turn..instances.len()).chain(0..turn);
                // `max_by_key` returns the last of equal elements: after `rev`, the first in turn.
                in_turn.rev().max_by_key(|&at| cached(at)).unwrap_or(turn)
            }
        }
    }
}

impl FromStr for Route {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let all = [Self::RoundRobin, Self::Random, Self::Prefix];
        all.into_iter().find(|route| route.name() == text).ok_or("none of round-robin, random and prefix")
    }
}
