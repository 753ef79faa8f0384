//! Decodes batches.

use rmp::Marker;

use super::{DecodeError, MAX_HASHES, MAX_PAYLOAD, read::Reader};
use crate::{
    batch::Batch,
    event::{Event, ExtraKey, Group, Medium, Removed, Scope, Stored, Token},
    hash::{BlockHash, Digest},
};

/// A decoded batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The batch.
    pub batch: Batch,
    /// Events that were skipped: their type is unknown, or their group of layers leaves out blocks,
    /// so that it is unknown which tokens each block holds.
    pub skipped_events: u64,
}

/// Decodes a payload, in either encoding of events. Unknown fields are skipped; events of unknown
/// types are skipped and counted.
///
/// The memory is proportional to the payload: about 40 bytes for each byte in the worst case.
///
/// # Errors
///
/// [`DecodeError`], if the bytes are not a batch.
pub fn decode(payload: &[u8]) -> Result<Decoded, DecodeError> {
    if payload.len() > MAX_PAYLOAD {
        return Err(DecodeError::TooLong { bytes: payload.len() });
    }
    let mut reader = Reader::new(payload);
    let mut decoded = Decoded { batch: Batch::default(), skipped_events: 0 };
    if matches!(reader.peek()?, Marker::FixMap(_) | Marker::Map16 | Marker::Map32) {
        batch_of_map(&mut reader, &mut decoded)?;
    } else {
        batch_of_array(&mut reader, &mut decoded)?;
    }
    match reader.rest() {
        0 => Ok(decoded),
        bytes => Err(DecodeError::Trailing { bytes }),
    }
}

fn batch_of_array(reader: &mut Reader<'_>, decoded: &mut Decoded) -> Result<(), DecodeError> {
    let length = reader.array("batch")?;
    if length < 2 {
        return Err(reader.unexpected("batch of two elements"));
    }
    decoded.batch.time = reader.number("time")?;
    events(reader, decoded)?;
    if length > 2 {
        decoded.batch.rank = reader.optional(|reader| reader.u32("rank"))?;
    }
    (3..length).try_for_each(|_| reader.skip())
}

fn batch_of_map(reader: &mut Reader<'_>, decoded: &mut Decoded) -> Result<(), DecodeError> {
    for _ in 0..reader.map("batch")? {
        match reader.text("field")? {
            "ts" => decoded.batch.time = reader.number("time")?,
            "events" => events(reader, decoded)?,
            "data_parallel_rank" | "dp_rank" => {
                decoded.batch.rank = reader.optional(|reader| reader.u32("rank"))?;
            }
            _ => reader.skip()?,
        }
    }
    Ok(())
}

fn events(reader: &mut Reader<'_>, decoded: &mut Decoded) -> Result<(), DecodeError> {
    for _ in 0..reader.array("list of events")? {
        let mut fields = Fields::default();
        let kind = match reader.peek()? {
            Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => fields.read_map(reader)?,
            _ => fields.read_array(reader)?,
        };
        decoded.batch.epoch = decoded.batch.epoch.or(fields.epoch);
        match kind {
            Kind::Stored => match fields.stored()? {
                Some(stored) => decoded.batch.events.push(Event::Stored(stored)),
                None => decoded.skipped_events += 1,
            },
            Kind::Removed => decoded.batch.events.push(Event::Removed(fields.removed()?)),
            Kind::Cleared => decoded.batch.events.push(Event::Cleared),
            Kind::Unknown => decoded.skipped_events += 1,
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Kind {
    Stored,
    Removed,
    Cleared,
    Unknown,
}

impl Kind {
    fn new(name: &str) -> Self {
        match name {
            "BlockStored" => Self::Stored,
            "BlockRemoved" => Self::Removed,
            "AllBlocksCleared" => Self::Cleared,
            _ => Self::Unknown,
        }
    }
}

/// The fields of an event of any type, as far as they are present.
#[derive(Default)]
struct Fields {
    hashes: Option<Vec<BlockHash>>,
    parent: Option<BlockHash>,
    tokens: Option<(Vec<Token>, bool)>,
    block_size: Option<u32>,
    medium: Option<Medium>,
    scope: Scope,
    extra_keys: Option<Vec<Option<Vec<ExtraKey>>>>,
    group: Group,
    locality: Option<String>,
    session_id: Option<String>,
    epoch: Option<u64>,
}

impl Fields {
    /// Reads an event with named fields. The type may be any of the fields, so fields before an
    /// unknown type must have the types that they have in known events.
    fn read_map(&mut self, reader: &mut Reader<'_>) -> Result<Kind, DecodeError> {
        let mut kind = None;
        for _ in 0..reader.map("event")? {
            match reader.text("field")? {
                "type" => kind = Some(Kind::new(reader.text("type")?)),
                // Fields after an unknown type can have any meaning.
                _ if matches!(kind, Some(Kind::Unknown)) => reader.skip()?,
                name => self.read_field(name, reader)?,
            }
        }
        kind.ok_or(DecodeError::Missing { field: "type" })
    }

    /// Reads an event whose fields are identified by their positions.
    fn read_array(&mut self, reader: &mut Reader<'_>) -> Result<Kind, DecodeError> {
        let length = reader.array("event")?;
        if length == 0 {
            return Err(DecodeError::Missing { field: "type" });
        }
        let kind = Kind::new(reader.text("type")?);
        let places: &[&str] = match kind {
            Kind::Stored => &STORED,
            Kind::Removed => &REMOVED,
            Kind::Cleared | Kind::Unknown => &[],
        };
        for place in 1..length {
            match places.get(place - 1) {
                Some(name) => self.read_field(name, reader)?,
                None => reader.skip()?,
            }
        }
        Ok(kind)
    }

    fn read_field(&mut self, name: &str, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        match name {
            "block_hashes" => self.hashes = Some(hashes(reader)?),
            "parent_block_hash" => self.parent = reader.optional(hash)?,
            "token_ids" => self.tokens = Some(reader.optional(tokens)?.unwrap_or_default()),
            "block_size" => {
                self.block_size = Some(reader.optional(|reader| reader.u32("block size"))?.unwrap_or_default());
            }
            "medium" => self.medium = text(reader, "medium")?.as_deref().map(Medium::from),
            "lora_id" => self.scope.lora_id = reader.optional(|reader| reader.signed("adapter's number"))?,
            "lora_name" => self.read_lora_name(reader)?,
            "cache_salt" => self.scope.cache_salt = text(reader, "salt")?,
            "extra_keys" => self.extra_keys = reader.optional(extra_keys)?,
            "group_idx" => self.group.index = reader.optional(|reader| reader.u32("group"))?,
            "kv_cache_spec_kind" => self.group.kind = text(reader, "kind of group")?,
            "kv_cache_spec_sliding_window" => {
                self.group.sliding_window = reader.optional(|reader| reader.u32("window"))?;
            }
            "locality" => self.locality = text(reader, "locality")?,
            "session_id" => self.session_id = text(reader, "session")?,
            "epoch" => self.epoch = reader.optional(|reader| reader.unsigned("epoch"))?,
            _ => reader.skip()?,
        }
        Ok(())
    }

    /// Reads the name of an adapter. SGLang's arrays may have a map with a salt in its position.
    fn read_lora_name(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        if !matches!(reader.peek()?, Marker::FixMap(_) | Marker::Map16 | Marker::Map32) {
            self.scope.lora_name = text(reader, "adapter's name")?;
            return Ok(());
        }
        for _ in 0..reader.map("metadata")? {
            match reader.text("field")? {
                "cache_salt" => self.scope.cache_salt = text(reader, "salt")?,
                _ => reader.skip()?,
            }
        }
        Ok(())
    }

    /// Makes the event; `None` if its group of layers leaves out blocks, so that it is unknown
    /// which tokens each block holds.
    fn stored(self) -> Result<Option<Stored>, DecodeError> {
        let hashes = self.hashes.ok_or(DecodeError::Missing { field: "block_hashes" })?;
        let (tokens, bigrams) = self.tokens.ok_or(DecodeError::Missing { field: "token_ids" })?;
        let block_size = self.block_size.ok_or(DecodeError::Missing { field: "block_size" })?;
        let pairs = tokens.len() - usize::from(bigrams && !tokens.is_empty());
        let is_full = block_size > 0 && Some(pairs) == hashes.len().checked_mul(block_size as usize);
        // Without tokens the size is a placeholder: vLLM's offloading connector sends 0.
        if !tokens.is_empty() && !is_full {
            if !self.group.covers_prefixes() {
                return Ok(None);
            }
            return Err(DecodeError::Tokens { tokens: pairs, blocks: hashes.len(), block_size });
        }
        Ok(Some(Stored {
            hashes,
            parent: self.parent,
            tokens,
            bigrams,
            block_size,
            medium: self.medium,
            scope: self.scope,
            extra_keys: self.extra_keys,
            group: self.group,
            locality: self.locality,
            session_id: self.session_id,
        }))
    }

    fn removed(self) -> Result<Removed, DecodeError> {
        let hashes = self.hashes.ok_or(DecodeError::Missing { field: "block_hashes" })?;
        Ok(Removed { hashes, medium: self.medium, group: self.group, locality: self.locality })
    }
}

/// The fields of a stored event written as an array, after its type.
pub(super) const STORED: [&str; 12] = [
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
];

/// The fields of a removed event written as an array, after its type.
pub(super) const REMOVED: [&str; 3] = ["block_hashes", "medium", "group_idx"];

/// Reads a text or nil. An empty text counts as nil.
fn text(reader: &mut Reader<'_>, wanted: &'static str) -> Result<Option<String>, DecodeError> {
    let text = reader.optional(|reader| reader.text(wanted))?;
    Ok(text.filter(|text| !text.is_empty()).map(str::to_owned))
}

fn hashes(reader: &mut Reader<'_>) -> Result<Vec<BlockHash>, DecodeError> {
    let hashes = reader.array("list of hashes")?;
    if hashes > MAX_HASHES {
        return Err(DecodeError::TooManyHashes { hashes });
    }
    (0..hashes).map(|_| hash(reader)).collect()
}

fn hash(reader: &mut Reader<'_>) -> Result<BlockHash, DecodeError> {
    match reader.integer()? {
        Some(false) => reader.unsigned("hash").map(BlockHash::Unsigned),
        Some(true) => reader.signed("hash").map(BlockHash::from_signed),
        None => {
            let refused = reader.unexpected("hash of 32 bytes at most");
            let digest = Digest::new(reader.bytes("hash")?);
            digest.map(BlockHash::Digest).ok_or(refused)
        }
    }
}

/// Reads a list of tokens, or of pairs of neighbouring tokens. Returns the tokens, and whether
/// there were pairs.
fn tokens(reader: &mut Reader<'_>) -> Result<(Vec<Token>, bool), DecodeError> {
    let mut last = None;
    let mut tokens = reader.list("list of tokens", |reader| {
        if reader.integer()?.is_some() {
            return reader.u32("token");
        }
        if reader.array("token, or pair of tokens")? != 2 {
            return Err(reader.unexpected("pair of tokens"));
        }
        let first = reader.u32("token")?;
        last = Some(reader.u32("token")?);
        Ok(first)
    })?;
    tokens.extend(last);
    Ok((tokens, last.is_some()))
}

fn extra_keys(reader: &mut Reader<'_>) -> Result<Vec<Option<Vec<ExtraKey>>>, DecodeError> {
    reader.list("list of extra keys", |reader| {
        reader.optional(|reader| reader.list("list of extra keys", |reader| extra_key(reader, Reader::deepest())))
    })
}

fn extra_key(reader: &mut Reader<'_>, depth: usize) -> Result<ExtraKey, DecodeError> {
    let deeper = depth.checked_sub(1).ok_or(DecodeError::TooDeep { at: reader.at() })?;
    match reader.integer()? {
        Some(false) => return reader.unsigned("extra key").map(ExtraKey::Unsigned),
        Some(true) => return reader.signed("extra key").map(ExtraKey::Signed),
        None => {}
    }
    Ok(match reader.peek()? {
        Marker::Null => {
            reader.nil()?;
            ExtraKey::Nil
        }
        Marker::True | Marker::False => ExtraKey::Bool(reader.bool()?),
        Marker::F32 | Marker::F64 => ExtraKey::Float(reader.number("extra key")?),
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => ExtraKey::Bytes(reader.bytes("extra key")?.to_owned()),
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
            ExtraKey::List(reader.list("extra key", |reader| extra_key(reader, deeper))?)
        }
        _ => ExtraKey::Text(reader.text("extra key")?.to_owned()),
    })
}
