//! Reads and checks the header of a `*.safetensors` file.
//!
//! A file is the length of its header (8 bytes, little-endian), the header (JSON: for each tensor
//! its element type, shape and where its bytes are) and the bytes. These rules are checked: the
//! tensors fill the rest of the file without gaps and overlaps, each tensor has the bytes that its
//! shape requires, and no name appears twice.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::CheckpointError;

/// Maximum length of a header in bytes.
const LONGEST_HEADER: u64 = 100 << 20;

/// A tensor of a file.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// The offset of its first byte in the file.
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A tensor's entry in the header.
#[derive(Deserialize)]
struct Written {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// The tensors in the order of the header, including duplicate names.
struct Header(Vec<(String, Written)>);

/// Reads the tensors of a file.
pub(super) fn read(file: &mut File, path: &Path) -> Result<Vec<(String, Entry)>, CheckpointError> {
    let failed = |source| CheckpointError::Read { path: path.to_owned(), source };
    let given = file.metadata().map_err(failed)?.len();
    let truncated = |needed| CheckpointError::Truncated { path: path.to_owned(), given, needed };
    let no_header = |reason| CheckpointError::Header { path: path.to_owned(), reason };
    if given < 8 {
        return Err(truncated(8));
    }
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(failed)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST_HEADER {
        return Err(no_header(format!("a header of {length} bytes")));
    }
    let begin = 8 + length;
    if given < begin {
        return Err(truncated(begin));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(failed)?;
    let Header(written) = serde_json::from_slice(&header).map_err(|error| no_header(error.to_string()))?;
    let (entries, end) = places(written, begin).map_err(no_header)?;
    match given {
        given if given < end => Err(truncated(end)),
        given if given > end => Err(no_header(format!("{} bytes after the last tensor", given - end))),
        _ => Ok(entries),
    }
}

/// Checks the positions of the tensors. Returns the tensors, and the end offset of the last one.
fn places(mut written: Vec<(String, Written)>, begin: u64) -> Result<(Vec<(String, Entry)>, u64), String> {
    written.sort_by(|a, b| (a.1.data_offsets, &a.0).cmp(&(b.1.data_offsets, &b.0)));
    let mut end = 0;
    let mut entries = Vec::with_capacity(written.len());
    for (name, Written { dtype, shape, data_offsets: (first, last) }) in written {
        if first > last || last > u64::MAX / 2 {
            return Err(format!("tensor {name} lies from {first} to {last}"));
        }
        if first != end {
            let what = if first < end { "overlaps another tensor" } else { "follows a hole" };
            return Err(format!(
                "tensor {name} lies from {first} to {last} and {what}: {end} is where it should begin"
            ));
        }
        if let Some(needed) = needed(&dtype, &shape)? {
            if needed != last - first {
                return Err(format!("tensor {name} has {} bytes, its shape needs {needed}", last - first));
            }
        }
        end = last;
        entries.push((name, Entry { dtype, shape, offset: begin + first, bytes: last - first }));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(format!("tensor {} stands twice", pair[0].0)),
        None => Ok((entries, begin + end)),
    }
}

/// Bytes of a tensor of this type and shape; `None` if the type is unknown here.
fn needed(dtype: &str, shape: &[usize]) -> Result<Option<u64>, String> {
    let element = match dtype {
        "F64" | "I64" | "U64" => 8,
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" | "I16" | "U16" => 2,
        "I8" | "U8" | "BOOL" | "F8_E4M3" | "F8_E5M2" => 1,
        _ => return Ok(None),
    };
    let product = shape.iter().try_fold(element, |bytes: u64, size| bytes.checked_mul(*size as u64));
    product.map(Some).ok_or_else(|| format!("no tensor has the shape {shape:?}"))
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tensors;

        impl<'de> Visitor<'de> for Tensors {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        let tensor = map
                            .next_value()
                            .map_err(|error| serde::de::Error::custom(format_args!("tensor {name}: {error}")))?;
                        tensors.push((name, tensor));
                    }
                }
                Ok(Header(tensors))
            }
        }

        deserializer.deserialize_map(Tensors)
    }
}
