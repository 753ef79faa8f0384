//! `PrefixCache`: the public handle on a cache.

use std::fmt;

use super::inner::Inner;
use crate::sync::Arc;

/// A concurrent prefix cache: maps token sequences to the KV blocks that hold their keys and
/// values.
///
/// This is a handle: clones share one cache, which lives as long as any handle,
/// [`Session`](crate::Session), [`Lease`](crate::Lease), [`Reservation`](crate::Reservation) or
/// other handle made from it. The thread that drops the last of them frees the index, which takes
/// about 3 s for a million runs. A handle that is forgotten ([`std::mem::forget`]) keeps the cache
/// alive for ever.
///
/// A cache is not persistent, and holds only ids, tokens and counts: keys and values stay in the
/// engine's memory.
///
/// | method | takes effect | progress | allocates |
/// |---|---|---|---|
/// | [`Session::match_prefix`](crate::Session::match_prefix) | when its lease is counted | lock-free | the result; a point for a match that ends inside a run |
/// | [`Session::resume`](crate::Session::resume) | as a match | lock-free | as a match |
/// | [`Session::peek`](crate::Session::peek) | when it reads the last run's length | lock-free | nothing |
/// | [`Session::insert`](crate::Session::insert) | when the run is linked | lock-free, unless its namespace has a limit | the run |
/// | dropping a [`Lease`](crate::Lease) | at once | lock-free while no request and no background evictor waits for blocks; else may take the wait list's lock | nothing |
/// | [`Session::reserve`](crate::Session::reserve) | when the blocks are counted off | lock-free while enough are free; else takes the evictor's lock | the result |
/// | [`PrefixCache::evict`], [`settle`](Self::settle), [`clear`](Self::clear) | | takes the evictor's lock | the evictor's tables |
/// | [`PrefixCache::stats`] | | never waits | the evictor's tables |
///
/// *Takes the evictor's lock* means that the method waits while another thread holds it. Each hold
/// does a bounded part of a method's work, but other threads may get the lock first any number of
/// times.
///
/// A reservation that must evict also does a bounded part of other pending work, such as an
/// exchange of the policy. Wakers (`reserve_async`, feature `async`) run on the thread that made
/// blocks available.
///
/// # Misuse
///
/// These mistakes are the caller's fault, in every method: a handle (namespace, lease, weak lease
/// or reservation) of another cache, tokens that are shorter than the sequence of their lease, a
/// block index outside a reservation, joining reservations that different namespaces pay for, and
/// copying into a block that is missing or shared. The method panics before it changes anything;
/// values that it consumes are dropped, and their blocks return to the pool. A caller that cannot
/// rule a mistake out can check first: with [`Lease::is_of`](crate::Lease::is_of), its counterparts
/// on the other handles, [`Reservation::has_payer_of`](crate::Reservation::has_payer_of), and the
/// lengths.
///
/// Failures of a correct program are `Result`s with small error types: too few blocks, a quota, a
/// deadline, too many leases, a namespace that was cleared meanwhile.
///
/// # What it does not do
///
/// - **Several block sizes.** A cache has one block size, chosen when it is built. For layers with
///   another block size build a second cache, and match in both.
/// - **Sliding windows.** A match is a prefix that begins with the first token, and a cached block
///   keeps all blocks before it. An engine that drops the keys and values behind a window cannot
///   free those blocks one by one: keep the window's layers outside the cache, or in a cache of
///   their own whose prefixes stay whole.
/// - **State that is not a list of blocks** (recurrent layers, multimodal embeddings). The tokens
///   of the sequence are its whole identity; anything else that the keys and values depend on
///   belongs in the [namespace](Self::namespace).
/// - **Several processes.** One process owns the index; see below for forks.
///
/// The guide on [matching](crate::guide) explains what this means for prompts and templates.
///
/// # Forked processes
///
/// A child process gets a copy of the cache without its background thread, and locks that other
/// threads held at the moment of the fork stay locked in the copy. The child must not use the
/// cache. It may drop its handles if no other thread was inside a method of the cache at that
/// moment; otherwise it must forget them ([`std::mem::forget`]).
///
/// # Examples
///
/// ```
/// use radixkv::PrefixCache;
///
/// let cache = PrefixCache::builder(4, 64).build()?;
/// let session = cache.session();
/// let namespace = cache.default_namespace();
/// let prompt: Vec<u32> = (0..10).collect();
///
/// let cold = session.match_prefix(&namespace, &prompt);
/// assert_eq!(cold.len_tokens(), 0);
/// let blocks = session.reserve(2)?;
/// // ... compute keys and values of 8 tokens into `blocks.blocks()` ...
/// let inserted = session.insert(cold.lease(), &prompt, blocks)?;
/// assert_eq!(inserted.lease.len_tokens(), 8);
///
/// let warm = session.match_prefix(&namespace, &prompt);
/// assert_eq!(warm.len_tokens(), 8);
/// assert_eq!(warm.blocks(), inserted.blocks);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PrefixCache {
    pub(super) inner: Arc<Inner>,
}

impl fmt::Debug for PrefixCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrefixCache")
            .field("block_size", &self.inner.layout.tokens())
            .field("capacity_blocks", &self.inner.pool.capacity())
            .finish_non_exhaustive()
    }
}
