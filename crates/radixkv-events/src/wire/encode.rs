//! Encodes batches.

use rmp::encode as msgpack;

use super::decode::{REMOVED, STORED};
use crate::{
    batch::Batch,
    event::{Event, ExtraKey, Removed, Stored, Token},
    hash::BlockHash,
};

/// The encoding of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Maps from field names to values. vLLM and SGLang send them since the middle of 2026.
    #[default]
    Maps,
    /// Arrays of values without field names, which they sent before. Arrays have no fields for
    /// salts, sessions and the publisher's epoch.
    Arrays,
}

/// Encodes a batch as a payload.
///
/// # Examples
///
/// ```
/// use radixkv_events::{Batch, Event, wire};
///
/// let batch = Batch { time: 1.5, events: vec![Event::Cleared], ..Batch::default() };
/// for format in [wire::Format::Maps, wire::Format::Arrays] {
///     assert_eq!(wire::decode(&wire::encode(&batch, format))?.batch, batch);
/// }
/// # Ok::<_, wire::DecodeError>(())
/// ```
pub fn encode(batch: &Batch, format: Format) -> Vec<u8> {
    let mut out = Writer(Vec::new());
    out.array(3);
    msgpack::write_f64(&mut out.0, batch.time).expect(NEVER);
    out.array(batch.events.len());
    let mut epoch = batch.epoch;
    for event in &batch.events {
        match format {
            Format::Maps => out.map_of(event, epoch.take()),
            Format::Arrays => out.array_of(event),
        }
    }
    out.optional(batch.rank, Writer::unsigned);
    out.0
}

const NEVER: &str = "a vector takes all bytes";

struct Writer(Vec<u8>);

impl Writer {
    fn map_of(&mut self, event: &Event, epoch: Option<u64>) {
        let (kind, names): (_, Vec<&str>) = match event {
            Event::Stored(stored) => ("BlockStored", always(&STORED, 7).chain(optional_of_stored(stored)).collect()),
            Event::Removed(removed) => {
                ("BlockRemoved", always(&REMOVED, 2).chain(optional_of_removed(removed)).collect())
            }
            Event::Cleared => ("AllBlocksCleared", Vec::new()),
        };
        msgpack::write_map_len(&mut self.0, (1 + names.len() + usize::from(epoch.is_some())) as u32).expect(NEVER);
        self.text("type");
        self.text(kind);
        for name in names {
            self.text(name);
            self.field(event, name);
        }
        if let Some(epoch) = epoch {
            self.text("epoch");
            self.unsigned(epoch);
        }
    }

    fn array_of(&mut self, event: &Event) {
        let (kind, names): (_, &[&str]) = match event {
            Event::Stored(_) => ("BlockStored", &STORED),
            Event::Removed(_) => ("BlockRemoved", &REMOVED),
            Event::Cleared => ("AllBlocksCleared", &[]),
        };
        self.array(1 + names.len());
        self.text(kind);
        names.iter().for_each(|name| self.field(event, name));
    }

    fn field(&mut self, event: &Event, name: &str) {
        match event {
            Event::Stored(stored) => self.field_of_stored(stored, name),
            Event::Removed(removed) => self.field_of_removed(removed, name),
            Event::Cleared => {}
        }
    }

    fn field_of_stored(&mut self, stored: &Stored, name: &str) {
        let Stored { scope, group, .. } = stored;
        match name {
            "block_hashes" => self.list(&stored.hashes, Self::hash),
            "parent_block_hash" => self.optional(stored.parent.as_ref(), Self::hash),
            "token_ids" if stored.bigrams => self.pairs(&stored.tokens),
            "token_ids" => self.list(&stored.tokens, |out, &token| out.unsigned(token)),
            "block_size" => self.unsigned(stored.block_size),
            "lora_id" => self.optional(scope.lora_id, Self::signed),
            "medium" => self.optional(stored.medium.as_ref().map(|medium| medium.name()), Self::text),
            "lora_name" => self.optional(scope.lora_name.as_deref(), Self::text),
            "extra_keys" => self.optional(stored.extra_keys.as_ref(), |out, blocks| {
                out.list(blocks, |out, keys| out.optional(keys.as_ref(), |out, keys| out.list(keys, Self::extra_key)));
            }),
            "group_idx" => self.optional(group.index, Self::unsigned),
            "kv_cache_spec_kind" => self.optional(group.kind.as_deref(), Self::text),
            "kv_cache_spec_sliding_window" => self.optional(group.sliding_window, Self::unsigned),
            "locality" => self.optional(stored.locality.as_deref(), Self::text),
            "cache_salt" => self.optional(scope.cache_salt.as_deref(), Self::text),
            _ => self.optional(stored.session_id.as_deref(), Self::text),
        }
    }

    fn field_of_removed(&mut self, removed: &Removed, name: &str) {
        match name {
            "block_hashes" => self.list(&removed.hashes, Self::hash),
            "medium" => self.optional(removed.medium.as_ref().map(|medium| medium.name()), Self::text),
            "group_idx" => self.optional(removed.group.index, Self::unsigned),
            _ => self.optional(removed.locality.as_deref(), Self::text),
        }
    }

    fn array(&mut self, length: usize) {
        let length = u32::try_from(length).expect("fewer than 2^32 elements");
        msgpack::write_array_len(&mut self.0, length).expect(NEVER);
    }

    fn list<T>(&mut self, list: &[T], write: impl Fn(&mut Self, &T)) {
        self.array(list.len());
        list.iter().for_each(|element| write(self, element));
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => msgpack::write_nil(&mut self.0).expect(NEVER),
        }
    }

    fn text(&mut self, text: &str) {
        msgpack::write_str(&mut self.0, text).expect(NEVER);
    }

    fn unsigned(&mut self, number: impl Into<u64>) {
        msgpack::write_uint(&mut self.0, number.into()).expect(NEVER);
    }

    fn signed(&mut self, number: i64) {
        msgpack::write_sint(&mut self.0, number).expect(NEVER);
    }

    fn hash(&mut self, hash: &BlockHash) {
        match hash {
            BlockHash::Unsigned(number) => self.unsigned(*number),
            BlockHash::Signed(number) => self.signed(*number),
            BlockHash::Digest(digest) => msgpack::write_bin(&mut self.0, digest.as_bytes()).expect(NEVER),
        }
    }

    fn pairs(&mut self, tokens: &[Token]) {
        self.array(tokens.len().saturating_sub(1));
        for pair in tokens.windows(2) {
            self.list(pair, |out, &token| out.unsigned(token));
        }
    }

    fn extra_key(&mut self, key: &ExtraKey) {
        match key {
            ExtraKey::Nil => msgpack::write_nil(&mut self.0).expect(NEVER),
            ExtraKey::Bool(value) => msgpack::write_bool(&mut self.0, *value).expect(NEVER),
            ExtraKey::Signed(number) => self.signed(*number),
            ExtraKey::Unsigned(number) => self.unsigned(*number),
            ExtraKey::Float(number) => msgpack::write_f64(&mut self.0, *number).expect(NEVER),
            ExtraKey::Text(text) => self.text(text),
            ExtraKey::Bytes(bytes) => msgpack::write_bin(&mut self.0, bytes).expect(NEVER),
            ExtraKey::List(keys) => self.list(keys, Self::extra_key),
        }
    }
}

/// The first `count` fields of an event type, which a map always has.
fn always(names: &'static [&'static str], count: usize) -> impl Iterator<Item = &'static str> {
    names[..count].iter().copied()
}

/// The fields that a map has only if they are set.
fn optional_of_stored(stored: &Stored) -> impl Iterator<Item = &'static str> {
    let set = [
        ("extra_keys", stored.extra_keys.is_some()),
        ("group_idx", stored.group.index.is_some()),
        ("kv_cache_spec_kind", stored.group.kind.is_some()),
        ("kv_cache_spec_sliding_window", stored.group.sliding_window.is_some()),
        ("locality", stored.locality.is_some()),
        ("cache_salt", stored.scope.cache_salt.is_some()),
        ("session_id", stored.session_id.is_some()),
    ];
    set.into_iter().filter_map(|(name, is_set)| is_set.then_some(name))
}

/// The fields that a map has only if they are set.
fn optional_of_removed(removed: &Removed) -> impl Iterator<Item = &'static str> {
    let set = [("group_idx", removed.group.index.is_some()), ("locality", removed.locality.is_some())];
    set.into_iter().filter_map(|(name, is_set)| is_set.then_some(name))
}
