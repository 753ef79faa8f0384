//! Onboarding: a request whose blocks are being copied from the host. `session` prepares it; the
//! calling thread or the mover's thread copies.

use std::fmt;

use oneshot::{Receiver, TryRecvError};
use radixkv::{BlockId, Lease, Namespace, Reservation, Session, Token};

use super::{Shared, TierMode, sizes::Part, start::TieredStart};
use crate::{grid::offset, host_match::HostMatch, mover::ToDevice};

/// A request that has reserved its blocks; nothing is copied into them yet.
pub(super) struct Prepared {
    pub(super) lease: Lease,
    pub(super) cached: Vec<BlockId>,
    /// `None` if the host's blocks cannot reach beyond the lease.
    pub(super) host: Option<HostMatch>,
    /// How many of the host's tokens came from remote tiers.
    pub(super) remote_tokens: usize,
    pub(super) blocks: Reservation,
}

impl Prepared {
    /// The start of the request if the host has nothing.
    pub(super) fn start_without_host(self) -> TieredStart {
        let Self { lease, cached, blocks, .. } = self;
        let device_tokens = lease.len_tokens();
        TieredStart { lease, cached, blocks, device_tokens, host_tokens: 0, remote_tokens: 0 }
    }
}

/// A request whose blocks the mover's thread is copying to the device while the caller continues.
///
/// If it is dropped, the copies are still completed, and the copied blocks stay cached.
#[must_use = "dropping it cancels the request"]
pub struct Onboarding(State);

enum State {
    Done(Box<TieredStart>),
    UnderWay(Receiver<TieredStart>),
}

impl Onboarding {
    pub(super) fn done(start: TieredStart) -> Self {
        Self(State::Done(Box::new(start)))
    }

    pub(super) fn under_way(start: Receiver<TieredStart>) -> Self {
        Self(State::UnderWay(start))
    }

    /// Returns the request's start if all copies are done, otherwise itself, to be polled again.
    /// Never waits.
    ///
    /// # Errors
    ///
    /// Itself.
    ///
    /// # Panics
    ///
    /// If the mover's thread panicked outside the mover: a bug of this package.
    pub fn poll(self) -> Result<TieredStart, Self> {
        match self.0 {
            State::Done(start) => Ok(*start),
            State::UnderWay(start) => match start.try_recv() {
                Ok(start) => Ok(start),
                Err(TryRecvError::Empty) => Err(Self(State::UnderWay(start))),
                Err(TryRecvError::Disconnected) => panic!("the mover's thread dropped a request"),
            },
        }
    }

    /// Waits until all copies are done.
    ///
    /// # Panics
    ///
    /// As [`poll`](Self::poll).
    pub fn wait(self) -> TieredStart {
        match self.0 {
            State::Done(start) => *start,
            State::UnderWay(start) => start.recv().expect("the mover's thread dropped a request"),
        }
    }

    /// As [`wait`](Self::wait), without blocking a thread.
    pub(super) async fn done_by_mover(self) -> TieredStart {
        match self.0 {
            State::Done(start) => *start,
            State::UnderWay(start) => start.await.expect("the mover's thread dropped a request"),
        }
    }
}

impl fmt::Debug for Onboarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_done = matches!(self.0, State::Done(_));
        f.debug_struct("Onboarding").field("is_done", &is_done).finish_non_exhaustive()
    }
}

impl Shared {
    /// Copies the host's blocks into the first of `blocks`, and inserts the whole ones.
    pub(super) fn onboard(
        &self,
        session: &Session,
        namespace: &Namespace,
        tokens: &[Token],
        prepared: Prepared,
    ) -> TieredStart {
        let Prepared { lease, cached, host: Some(host), remote_tokens, blocks } = prepared else {
            return prepared.start_without_host();
        };
        let (mut lease, mut cached, mut blocks) = (lease, cached, blocks);
        let device_tokens = lease.len_tokens();
        let copied = self.copy_in(&host, blocks.blocks());
        let remote_tokens = remote_tokens.min(copied);
        self.counters.remote_tokens.add(remote_tokens);
        let size = self.sizes.device;
        let whole = (device_tokens + copied) / size - device_tokens / size;
        if whole > 0 {
            let end = (device_tokens / size + whole) * size;
            match session.insert(&lease, &tokens[..end + offset(namespace.keys())], blocks.split(whole)) {
                Ok(inserted) => {
                    cached.extend(&inserted.blocks);
                    lease = inserted.lease;
                    if self.mode == TierMode::Exclusive {
                        host.remove_up_to(end);
                    }
                }
                Err(refused) => {
                    // The tokens are in the request's own blocks nevertheless.
                    let rest = std::mem::replace(&mut blocks, refused.reservation);
                    blocks.append(rest);
                }
            }
        }
        TieredStart { lease, cached, blocks, device_tokens, host_tokens: copied - remote_tokens, remote_tokens }
    }

    /// Copies pinned host blocks into device blocks, the first of which follows the device's match.
    /// Returns how many tokens were copied: all or none.
    fn copy_in(&self, host: &HostMatch, blocks: &[BlockId]) -> usize {
        let tokens = host.tokens();
        if tokens.is_empty() {
            return 0;
        }
        let sizes = self.sizes;
        let (first_device, first_host) = (tokens.start / sizes.device, tokens.start / sizes.host);
        let mut copies = Vec::new();
        for (at, &host_block) in host.blocks().iter().enumerate() {
            let number = first_host + at;
            let bytes = host.bytes(at);
            let own = (number * sizes.host).max(tokens.start)..(number + 1) * sizes.host;
            for Part { device_number, device_tokens, host_tokens } in sizes.parts(own) {
                let block = blocks[device_number - first_device];
                let per = |token: usize| bytes.len() * token / sizes.host;
                let bytes = &bytes[per(host_tokens.start)..per(host_tokens.end)];
                copies.push(ToDevice { host_block, host_tokens, bytes, block, tokens: device_tokens });
            }
        }
        if !self.is_moved(|mover| mover.onboard(&copies)) {
            self.counters.failed_onboard_tokens.add(tokens.len());
            return 0;
        }
        self.counters.onboarded_tokens.add(tokens.len());
        self.counters.onboarded_bytes.add(copies.iter().map(|copy| copy.bytes.len()).sum());
        tokens.len()
    }
}
