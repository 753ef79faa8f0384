//! Weights of a Hugging Face directory: `*.safetensors`, in one file or several.
//!
//! A file is the length of its header (8 bytes, little-endian), the header (JSON: for each tensor its element type,
//! shape and where its bytes are) and the bytes. Opening reads the headers alone; a tensor's bytes are read when the
//! tensor is asked for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::matrix::Matrix;
use crate::model::Weights;

/// Headers longer than this are not headers.
const LONGEST_HEADER: u64 = 100 << 20;

/// Weights in files.
#[derive(Debug)]
pub struct Checkpoint {
    tensors: HashMap<String, Place>,
    files: Vec<(PathBuf, RefCell<File>)>,
    /// The path that errors name for a missing tensor.
    listing: PathBuf,
}

/// Where a tensor is.
#[derive(Debug, Clone)]
struct Place {
    file: usize,
    dtype: String,
    shape: Vec<usize>,
    /// Where its first byte is, from the beginning of the file.
    offset: u64,
    bytes: u64,
}

/// What a header says of a tensor.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// Which file has which tensor.
#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

/// Why weights cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory has no file that ends in `.safetensors`.
    #[error("{}: no .safetensors file", .path.display())]
    NoFile {
        /// Which directory.
        path: PathBuf,
    },
    /// The header, or the index, cannot be parsed.
    #[error("{}: not a safetensors file or index: {reason}", .path.display())]
    Header {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file ends before its last tensor.
    #[error("{}: truncated: {given} bytes of {needed}", .path.display())]
    Truncated {
        /// Which file.
        path: PathBuf,
        /// Its length.
        given: u64,
        /// The length that its header asks for.
        needed: u64,
    },
    /// A tensor that the model needs is not there.
    #[error("{}: no tensor {name}", .path.display())]
    Missing {
        /// Which file.
        path: PathBuf,
        /// Which tensor.
        name: String,
    },
    /// Elements that are neither F32 nor F16 nor BF16.
    #[error("{}: tensor {name} has elements of type {dtype}, not F32, F16 or BF16", .path.display())]
    Dtype {
        /// Which file.
        path: PathBuf,
        /// Which tensor.
        name: String,
        /// Their type.
        dtype: String,
    },
    /// A tensor does not have the shape that the configuration asks for.
    #[error("{}: tensor {name} is {given:?}, the configuration asks for {needed:?}", .path.display())]
    Shape {
        /// Which file.
        path: PathBuf,
        /// Which tensor.
        name: String,
        /// Its shape.
        given: Vec<usize>,
        /// The shape that is needed.
        needed: Vec<usize>,
    },
}

impl Checkpoint {
    /// Reads the headers of a directory's files: those that `model.safetensors.index.json` names, or else
    /// `model.safetensors`, or else every `*.safetensors`.
    ///
    /// # Errors
    ///
    /// If there is no such file, or one of them is not complete.
    pub fn open(directory: &Path) -> Result<Self, CheckpointError> {
        let index = directory.join("model.safetensors.index.json");
        let (listing, names) = if index.exists() {
            let names = indexed(&index)?;
            (index, names)
        } else {
            let names = found(directory)?;
            (directory.join(&names[0]), names)
        };
        let mut checkpoint = Self { tensors: HashMap::new(), files: Vec::new(), listing };
        for name in names {
            checkpoint.add(directory.join(name))?;
        }
        Ok(checkpoint)
    }

    /// Takes in the header of a file.
    fn add(&mut self, path: PathBuf) -> Result<(), CheckpointError> {
        let failed = |source| CheckpointError::Read { path: path.clone(), source };
        let mut file = File::open(&path).map_err(failed)?;
        let given = file.metadata().map_err(failed)?.len();
        let truncated = |needed| CheckpointError::Truncated { path: path.clone(), given, needed };
        let no_header = |reason| CheckpointError::Header { path: path.clone(), reason };
        if given < 8 {
            return Err(truncated(8));
        }
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(failed)?;
        let length = u64::from_le_bytes(length);
        if length > LONGEST_HEADER {
            return Err(no_header(format!("a header of {length} bytes")));
        }
        if given < 8 + length {
            return Err(truncated(8 + length));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(failed)?;
        let mut entries: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&header).map_err(|error| no_header(error.to_string()))?;
        entries.remove("__metadata__");
        let mut end = 8 + length;
        for (name, entry) in entries {
            let entry = Entry::deserialize(entry).map_err(|error| no_header(format!("tensor {name}: {error}")))?;
            let (first, last) = entry.data_offsets;
            if first > last || last > u64::MAX / 2 {
                return Err(no_header(format!("tensor {name} lies from {first} to {last}")));
            }
            end = end.max(8 + length + last);
            let place = Place {
                file: self.files.len(),
                dtype: entry.dtype,
                shape: entry.shape,
                offset: 8 + length + first,
                bytes: last - first,
            };
            self.tensors.insert(name, place);
        }
        if given < end {
            return Err(truncated(end));
        }
        self.files.push((path, RefCell::new(file)));
        Ok(())
    }

    /// Where a tensor is, and its bytes, if it has this shape.
    fn bytes(&self, name: &str, shape: &[usize]) -> Result<(&Place, Vec<u8>), CheckpointError> {
        let Some(place) = self.tensors.get(name) else {
            return Err(CheckpointError::Missing { path: self.listing.clone(), name: name.to_owned() });
        };
        let (path, file) = &self.files[place.file];
        let element = match place.dtype.as_str() {
            "F32" => 4,
            "F16" | "BF16" => 2,
            dtype => {
                let (name, dtype) = (name.to_owned(), dtype.to_owned());
                return Err(CheckpointError::Dtype { path: path.clone(), name, dtype });
            }
        };
        if place.shape != shape {
            let (given, needed) = (place.shape.clone(), shape.to_vec());
            return Err(CheckpointError::Shape { path: path.clone(), name: name.to_owned(), given, needed });
        }
        let needed = element * shape.iter().product::<usize>() as u64;
        if place.bytes != needed {
            let reason = format!("tensor {name} has {} bytes, its shape needs {needed}", place.bytes);
            return Err(CheckpointError::Header { path: path.clone(), reason });
        }
        let mut bytes = vec![0; place.bytes as usize];
        let mut file = file.borrow_mut();
        file.seek(SeekFrom::Start(place.offset))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|source| CheckpointError::Read { path: path.clone(), source })?;
        Ok((place, bytes))
    }
}

impl Weights for Checkpoint {
    type Error = CheckpointError;

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, CheckpointError> {
        let (place, bytes) = self.bytes(name, &[len])?;
        Ok(wide(&place.dtype, &bytes))
    }

    fn matrix(&self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix, CheckpointError> {
        let (place, bytes) = self.bytes(name, &[outputs, inputs])?;
        Ok(match place.dtype.as_str() {
            "BF16" => Matrix::from_bf16(inputs, outputs, &halves(&bytes).collect::<Vec<u16>>()),
            dtype => Matrix::from_f32(inputs, outputs, &wide(dtype, &bytes)),
        })
    }
}

/// The files that an index names, in order.
fn indexed(path: &Path) -> Result<Vec<String>, CheckpointError> {
    let text = fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })?;
    let index: Index = serde_json::from_slice(&text)
        .map_err(|error| CheckpointError::Header { path: path.to_owned(), reason: error.to_string() })?;
    let mut names: Vec<String> = index.weight_map.into_values().collect();
    names.sort_unstable();
    names.dedup();
    if let Some(name) = names.iter().find(|name| Path::new(name).file_name().is_none_or(|last| last != name.as_str())) {
        let reason = format!("it names {name:?}, which is no file beside it");
        return Err(CheckpointError::Header { path: path.to_owned(), reason });
    }
    Ok(names)
}

/// The files of a directory without an index.
fn found(directory: &Path) -> Result<Vec<String>, CheckpointError> {
    let failed = |source| CheckpointError::Read { path: directory.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".safetensors") {
            names.push(name);
        }
    }
    names.sort_unstable();
    if let Some(only) = names.iter().find(|name| *name == "model.safetensors") {
        return Ok(vec![only.clone()]);
    }
    if names.is_empty() {
        return Err(CheckpointError::NoFile { path: directory.to_owned() });
    }
    Ok(names)
}

fn halves(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
}

/// Elements as `f32`, from one of the three element types.
fn wide(dtype: &str, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        "F32" => bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect(),
        "BF16" => halves(bytes).map(|bits| f32::from_bits(u32::from(bits) << 16)).collect(),
        _ => halves(bytes).map(from_f16).collect(),
    }
}

/// Exact: every `f16` is an `f32`.
fn from_f16(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f32.powi(-24),
        0x1f if fraction == 0.0 => f32::INFINITY,
        0x1f => f32::NAN,
        _ => (1_024.0 + fraction) * 2_f32.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}
