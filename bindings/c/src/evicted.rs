//! Evicted blocks that the caller keeps reserved until it has copied them.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use crate::boundary::{free, given, new_handle, output, run};
use crate::cache::Cache;
use crate::events::{Event, Names, code_of, kind_of};
use crate::failure::Failure;
use crate::status::Status;

/// Evicted blocks of some sequences. They stay reserved until this handle is freed: lookups do not
/// find them, and no other sequence gets them.
pub struct Evicted {
    core: Vec<radixkv::Evicted>,
    names: Names,
}

impl Evicted {
    fn event(&self, index: usize) -> Option<Event> {
        let evicted = self.core.get(index)?;
        let (parts, blocks) = (self.names.of(index), evicted.blocks.blocks());
        Some(Event {
            kind: kind_of(evicted.reason),
            keys: code_of(evicted.namespace.keys()),
            parts: parts.as_ptr(),
            parts_len: parts.len(),
            start: evicted.start,
            tokens: evicted.tokens.as_ptr(),
            tokens_len: evicted.tokens.len(),
            blocks: blocks.as_ptr(),
            blocks_len: blocks.len(),
            parent: 0,
            has_parent: false,
        })
    }
}

/// Evicts up to `blocks` blocks as `radixkv_cache_evict` does, and keeps them reserved: for an
/// engine that copies them elsewhere before they are reused. `sequences`, which may be NULL, is the
/// number of their sequences.
///
/// Threads: any; waits while another thread evicts.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_cache_evict_into(
    cache: Option<&Cache>,
    blocks: usize,
    sequences: Option<&mut MaybeUninit<usize>>,
    evicted: Option<&mut MaybeUninit<Option<Box<Evicted>>>>,
) -> Status {
    run(|| {
        let evicted = new_handle(evicted, "evicted")?;
        let (mut core, mut names) = (Vec::new(), Names::default());
        given(cache, "cache")?.core.evict_into(blocks, &mut core);
        core.iter().for_each(|evicted| names.push(Some(&evicted.namespace)));
        sequences.map(|place| place.write(core.len()));
        *evicted = Some(Box::new(Evicted { core, names }));
        Ok(())
    })
}

/// Writes the evicted blocks of the sequence `index`, counted from 0, to `event`: its blocks, and
/// the tokens of the sequence from its beginning to the end of the blocks.
///
/// Errors: INVALID_ARGUMENT if there is none.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_evicted_get(
    evicted: Option<&Evicted>,
    index: usize,
    event: Option<&mut MaybeUninit<Event>>,
) -> Status {
    run(|| {
        let event = output(event, "event")?;
        let found = given(evicted, "evicted")?.event(index);
        let accepted = "the index of a sequence of the evicted blocks";
        event.write(found.ok_or(Failure::Invalid { argument: "index", accepted })?);
        Ok(())
    })
}

/// Returns the evicted blocks to the pool. NULL is allowed.
///
/// Threads: no other thread may use it from now on.
#[unsafe(no_mangle)]
pub extern "C" fn radixkv_evicted_free(evicted: Option<Box<Evicted>>) {
    free(evicted);
}
