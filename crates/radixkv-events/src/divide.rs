//! Divides events into lists that fit into a payload each, as followers read no larger ones.

use std::mem::take;

use crate::event::{Event, ExtraKey, Removed, Scope, Stored};

/// Maximum bytes of an event without its lists and texts, and of a batch without its events.
const FRAME: usize = 1 << 10;
/// Maximum bytes of a hash: a digest and its length.
const HASH: usize = 34;
/// Maximum bytes of a number of four bytes.
const NUMBER: usize = 5;

/// How much one list may contain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
    pub(crate) hashes: usize,
}

/// Divides events into lists within the bounds, in the same order; an event beyond them is divided
/// between its blocks. There is at least one list. An event of one block is never divided, so a list
/// with it may exceed the bounds.
pub(crate) fn divide(events: Vec<Event>, bounds: Bounds) -> Vec<Vec<Event>> {
    let (mut lists, mut list, mut bytes) = (Vec::new(), Vec::new(), FRAME);
    for piece in events.into_iter().flat_map(|event| pieces(event, bounds)) {
        let more = max_bytes(&piece);
        if !list.is_empty() && (list.len() == bounds.events || bytes + more > bounds.bytes) {
            lists.push(take(&mut list));
            bytes = FRAME;
        }
        bytes += more;
        list.push(piece);
    }
    lists.push(list);
    lists
}

/// The event, or several events of the same blocks if it exceeds the bounds.
fn pieces(event: Event, bounds: Bounds) -> Vec<Event> {
    let (hashes, bytes) = (hashes(&event), max_bytes(&event));
    if hashes <= bounds.hashes && FRAME + bytes <= bounds.bytes {
        return vec![event];
    }
    match event {
        Event::Stored(stored) if has_all_tokens(&stored) => {
            let blocks = bounds.blocks(texts_of(&stored), max_bytes_of_block(&stored));
            (0..hashes).step_by(blocks).map(|from| part_of(&stored, from, hashes.min(from + blocks))).collect()
        }
        Event::Removed(removed) => {
            let blocks = bounds.blocks(text(removed.medium.as_ref().map(|medium| medium.name())), HASH);
            let part = |hashes: &[_]| Event::Removed(Removed { hashes: hashes.to_vec(), ..removed.clone() });
            removed.hashes.chunks(blocks).map(part).collect()
        }
        event => vec![event],
    }
}

impl Bounds {
    /// The number of blocks that an event with these texts may have.
    fn blocks(self, texts: usize, block: usize) -> usize {
        (self.bytes.saturating_sub(2 * FRAME + texts) / block).clamp(1, self.hashes)
    }
}

/// The blocks `from..to` of an event.
fn part_of(stored: &Stored, from: usize, to: usize) -> Event {
    let size = stored.block_size as usize;
    let ahead = usize::from(stored.bigrams);
    Event::Stored(Stored {
        hashes: stored.hashes[from..to].to_vec(),
        parent: from.checked_sub(1).map_or(stored.parent, |before| Some(stored.hashes[before])),
        tokens: stored.tokens.get(from * size..to * size + ahead).unwrap_or_default().to_vec(),
        extra_keys: stored.extra_keys.as_ref().map(|keys| keys.get(from..to).unwrap_or_default().to_vec()),
        medium: stored.medium.clone(),
        scope: stored.scope.clone(),
        group: stored.group.clone(),
        locality: stored.locality.clone(),
        session_id: stored.session_id.clone(),
        bigrams: stored.bigrams,
        block_size: stored.block_size,
    })
}

/// Whether an event has no tokens, or those of all its blocks.
fn has_all_tokens(stored: &Stored) -> bool {
    let ahead = usize::from(stored.bigrams);
    let all = stored.hashes.len().checked_mul(stored.block_size as usize).and_then(|own| own.checked_add(ahead));
    stored.tokens.is_empty() || Some(stored.tokens.len()) == all
}

fn hashes(event: &Event) -> usize {
    match event {
        Event::Stored(stored) => stored.hashes.len(),
        Event::Removed(removed) => removed.hashes.len(),
        Event::Cleared => 0,
    }
}

/// Maximum bytes of an event on the wire, in either format.
fn max_bytes(event: &Event) -> usize {
    FRAME
        + match event {
            Event::Stored(stored) => {
                let keys = stored.extra_keys.iter().flatten().map(max_bytes_of_keys).sum::<usize>();
                let tokens = stored.tokens.len() * max_bytes_of_token(stored);
                texts_of(stored) + stored.hashes.len() * HASH + tokens + keys
            }
            Event::Removed(removed) => {
                text(removed.medium.as_ref().map(|medium| medium.name())) + removed.hashes.len() * HASH
            }
            Event::Cleared => 0,
        }
}

/// Maximum bytes of one block of an event.
fn max_bytes_of_block(stored: &Stored) -> usize {
    let keys = stored.extra_keys.iter().flatten().map(max_bytes_of_keys).max();
    let tokens = if stored.tokens.is_empty() { 0 } else { stored.block_size as usize };
    HASH + tokens * max_bytes_of_token(stored) + keys.unwrap_or(0)
}

/// A pair is a list of two tokens.
fn max_bytes_of_token(stored: &Stored) -> usize {
    if stored.bigrams { 1 + 2 * NUMBER } else { NUMBER }
}

fn max_bytes_of_keys(keys: &Option<Vec<ExtraKey>>) -> usize {
    NUMBER + keys.iter().flatten().map(max_bytes_of_key).sum::<usize>()
}

fn max_bytes_of_key(key: &ExtraKey) -> usize {
    match key {
        ExtraKey::Text(text) => NUMBER + text.len(),
        ExtraKey::Bytes(bytes) => NUMBER + bytes.len(),
        ExtraKey::List(keys) => NUMBER + keys.iter().map(max_bytes_of_key).sum::<usize>(),
        ExtraKey::Nil | ExtraKey::Bool(_) | ExtraKey::Signed(_) | ExtraKey::Unsigned(_) | ExtraKey::Float(_) => 9,
    }
}

fn texts_of(stored: &Stored) -> usize {
    let Scope { lora_name, cache_salt, .. } = &stored.scope;
    let texts = [lora_name, cache_salt, &stored.group.kind, &stored.locality, &stored.session_id];
    text(stored.medium.as_ref().map(|medium| medium.name()))
        + texts.map(|own| text(own.as_deref())).iter().sum::<usize>()
}

fn text(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, BlockHash, Digest, Holdings, Medium, wire};

    fn stored(from: u64, blocks: u64, bigrams: bool) -> Event {
        let digest = |hash: u64| {
            let bytes = [[0xff; 24].as_slice(), &hash.to_be_bytes()].concat();
            BlockHash::Digest(Digest::new(&bytes).expect("32 bytes"))
        };
        let key = |at| vec![ExtraKey::Text("k".repeat(at as usize % 7)), ExtraKey::Nil];
        Event::Stored(Stored {
            hashes: (from..from + blocks).map(digest).collect(),
            parent: from.checked_sub(1).map(digest),
            tokens: vec![u32::MAX; 3 * blocks as usize + usize::from(bigrams)],
            bigrams,
            block_size: 3,
            medium: Some(Medium::from("a medium with a long name")),
            extra_keys: Some((0..blocks).map(|at| (at % 2 == 0).then(|| key(at))).collect()),
            scope: Scope::salted("s".repeat(200)),
            session_id: Some("session".repeat(30)),
            ..Stored::default()
        })
    }

    /// Lists within the bounds that give the same holdings, as one list of all events does.
    #[test]
    fn lists_are_within_the_bounds_and_say_the_same() {
        for bigrams in [false, true] {
            let mut events = vec![stored(0, 400, bigrams), stored(400, 1, bigrams), stored(1_000, 90, bigrams)];
            let Event::Stored(last) = events[2].clone() else { unreachable!() };
            let hashes = last.hashes.iter().rev().take(60).copied().collect();
            events.push(Event::Removed(Removed { hashes, medium: last.medium, ..Removed::default() }));
            let (mut whole, mut divided) = (Holdings::default(), Holdings::default());
            events.iter().for_each(|event| whole.apply(event).expect("of one block size"));
            for bounds in [
                Bounds { events: 64, bytes: 8 << 10, hashes: 50 },
                Bounds { events: 2, bytes: 1 << 20, hashes: 7 },
                Bounds { events: 64, bytes: 1, hashes: 50 },
            ] {
                let lists = divide(events.clone(), bounds);
                assert!(lists.len() > 10, "{} lists", lists.len());
                divided.clear();
                for list in lists {
                    assert!(
                        list.len() <= bounds.events && list.iter().all(|event| super::hashes(event) <= bounds.hashes)
                    );
                    let batch = Batch { events: list, rank: Some(u32::MAX), epoch: Some(u64::MAX), time: 1.5 };
                    for format in [wire::Format::Maps, wire::Format::Arrays] {
                        let payload = wire::encode(&batch, format);
                        // One block is never divided.
                        assert!(payload.len() <= bounds.bytes.max(4 << 10), "{} bytes", payload.len());
                    }
                    batch.events.iter().for_each(|event| divided.apply(event).expect("of one block size"));
                }
                assert_eq!((divided.len(), divided.unrooted()), (whole.len(), whole.unrooted()));
                assert!(whole.names().all(|name| divided.tokens_to(name) == whole.tokens_to(name)));
            }
            let wide = Bounds { events: 64, bytes: 1 << 20, hashes: 1 << 10 };
            assert_eq!(divide(events.clone(), wide), [events]);
        }
        assert_eq!(divide(Vec::new(), Bounds { events: 1, bytes: 1, hashes: 1 }), [vec![]]);
    }
}
