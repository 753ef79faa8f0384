//! Reads the weights of a Hugging Face directory: `*.safetensors`, in one file or several.
//!
//! Opening reads only the headers; a tensor's bytes are read when the model requests the tensor. A
//! tensor that the model does not request is also an error: then the files are not of a model that
//! this engine computes.

mod header;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::matrix::Matrix;
use crate::model::Weights;

/// The output layer. Tied models use the embedding instead.
const HEAD: &str = "lm_head.weight";

const EMBEDDING: &str = "model.embed_tokens.weight";

/// Weights in files.
#[derive(Debug)]
pub struct Checkpoint {
    tensors: BTreeMap<String, Place>,
    files: Vec<(PathBuf, RefCell<File>)>,
    /// The path for errors about a missing tensor.
    listing: PathBuf,
    /// Tensors that the model has requested.
    asked: RefCell<HashSet<String>>,
}

/// The position of a tensor.
#[derive(Debug, Clone)]
struct Place {
    file: usize,
    entry: header::Entry,
}

/// The index file, which maps tensors to files.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Why weights cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory has neither `model.safetensors` nor its index.
    #[error("{}: no model.safetensors and no model.safetensors.index.json", .path.display())]
    NoFile {
        /// The directory.
        path: PathBuf,
    },
    /// The header, or the index, cannot be parsed.
    #[error("{}: not a safetensors file or index: {reason}", .path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file ends before its last tensor.
    #[error("{}: truncated: {given} bytes of {needed}", .path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The length of the file in bytes.
        given: u64,
        /// The length that the header requires.
        needed: u64,
    },
    /// A tensor that the model needs is missing.
    #[error("{}: no tensor {name}", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The name of the tensor.
        name: String,
    },
    /// A tensor's elements are neither F32 nor F16 nor BF16.
    #[error("{}: tensor {name} has elements of type {dtype}, not F32, F16 or BF16", .path.display())]
    Dtype {
        /// The file.
        path: PathBuf,
        /// The name of the tensor.
        name: String,
        /// Their type.
        dtype: String,
    },
    /// A tensor does not have the shape that the configuration requires.
    #[error("{}: tensor {name} is {given:?}, the configuration asks for {needed:?}", .path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The name of the tensor.
        name: String,
        /// Its shape.
        given: Vec<usize>,
        /// The required shape.
        needed: Vec<usize>,
    },
    /// The model does not use a tensor: the files belong to a model that this engine does not
    /// compute.
    #[error("{}: tensor {name} is no part of the model that config.json describes", .path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// The name of the tensor.
        name: String,
    },
    /// A tied model has an output layer that differs from the embedding, so one of the two is
    /// wrong.
    #[error("{}: tie_word_embeddings is set, and lm_head.weight is not model.embed_tokens.weight", .path.display())]
    Untied {
        /// The file.
        path: PathBuf,
    },
    /// A weight is infinite or not a number.
    #[error("{}: tensor {name} has elements that are not finite", .path.display())]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The name of the tensor.
        name: String,
    },
    /// There is no memory for a tensor.
    #[error("{}: no memory for the {bytes} bytes of tensor {name}", .path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// The name of the tensor.
        name: String,
        /// Its bytes.
        bytes: u64,
    },
}

impl Checkpoint {
    /// Reads the headers of a directory's files: `model.safetensors`, or else the files in
    /// `model.safetensors.index.json`.
    ///
    /// # Errors
    ///
    /// If there is no such file, or if a file is invalid or truncated.
    pub fn open(directory: &Path) -> Result<Self, CheckpointError> {
        let (one, index) = (directory.join("model.safetensors"), directory.join("model.safetensors.index.json"));
        if one.exists() {
            let mut checkpoint = Self::empty(one.clone());
            checkpoint.add(one)?;
            return Ok(checkpoint);
        }
        if !index.exists() {
            return Err(CheckpointError::NoFile { path: directory.to_owned() });
        }
        let map = Index::read(&index)?;
        let mut checkpoint = Self::empty(index);
        for file in map.values().collect::<BTreeSet<_>>() {
            checkpoint.add(directory.join(file))?;
        }
        for (name, file) in &map {
            // The tensor must be in the file that the index names.
            let place = checkpoint.tensors.get(name).map(|place| &checkpoint.files[place.file].0);
            if place.is_none_or(|path| path.file_name().is_none_or(|last| last != file.as_str())) {
                return Err(CheckpointError::Missing { path: directory.join(file), name: name.clone() });
            }
        }
        Ok(checkpoint)
    }

    fn empty(listing: PathBuf) -> Self {
        Self { tensors: BTreeMap::new(), files: Vec::new(), listing, asked: RefCell::default() }
    }

    /// Adds the tensors in the header of a file.
    fn add(&mut self, path: PathBuf) -> Result<(), CheckpointError> {
        let mut file = File::open(&path).map_err(|source| CheckpointError::Read { path: path.clone(), source })?;
        for (name, entry) in header::read(&mut file, &path)? {
            let place = Place { file: self.files.len(), entry };
            if self.tensors.insert(name.clone(), place).is_some() {
                let reason = format!("tensor {name} is in another file too");
                return Err(CheckpointError::Header { path, reason });
            }
        }
        self.files.push((path, RefCell::new(file)));
        Ok(())
    }

    fn path(&self, place: &Place) -> PathBuf {
        self.files[place.file].0.clone()
    }

    /// Reads a tensor of this shape. Returns its element type and its bytes.
    fn bytes(&self, name: &str, shape: &[usize]) -> Result<(&str, Vec<u8>), CheckpointError> {
        self.asked.borrow_mut().insert(name.to_owned());
        let place = self
            .tensors
            .get(name)
            .ok_or_else(|| CheckpointError::Missing { path: self.listing.clone(), name: name.to_owned() })?;
        let (dtype, path) = (place.entry.dtype.as_str(), || self.path(place));
        if !["F32", "F16", "BF16"].contains(&dtype) {
            return Err(CheckpointError::Dtype { path: path(), name: name.to_owned(), dtype: dtype.to_owned() });
        }
        if place.entry.shape != shape {
            let (given, needed) = (place.entry.shape.clone(), shape.to_vec());
            return Err(CheckpointError::Shape { path: path(), name: name.to_owned(), given, needed });
        }
        let len = place.entry.bytes;
        let mut bytes = Vec::new();
        let no_memory = |_| CheckpointError::Memory { path: path(), name: name.to_owned(), bytes: len };
        bytes.try_reserve_exact(len as usize).map_err(no_memory)?;
        bytes.resize(len as usize, 0);
        let mut file = self.files[place.file].1.borrow_mut();
        file.seek(SeekFrom::Start(place.entry.offset))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|source| CheckpointError::Read { path: path(), source })?;
        if !finite(dtype, &bytes) {
            return Err(CheckpointError::NotFinite { path: path(), name: name.to_owned() });
        }
        Ok((dtype, bytes))
    }

    /// Checks that the output layer of a tied model, if it is in the files, is equal to the
    /// embedding.
    fn check_tied(&self) -> Result<(), CheckpointError> {
        let (Some(head), Some(embedding)) = (self.tensors.get(HEAD), self.tensors.get(EMBEDDING)) else {
            return Ok(());
        };
        if self.asked.borrow().contains(HEAD) {
            return Ok(());
        }
        let same = self
            .bytes(HEAD, &embedding.entry.shape)
            .and_then(|head| self.bytes(EMBEDDING, &embedding.entry.shape).map(|embedding| head == embedding));
        match same {
            Ok(true) => Ok(()),
            Ok(false) | Err(CheckpointError::Shape { .. }) => Err(CheckpointError::Untied { path: self.path(head) }),
            Err(error) => Err(error),
        }
    }
}

impl Weights for Checkpoint {
    type Error = CheckpointError;

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, CheckpointError> {
        let (dtype, bytes) = self.bytes(name, &[len])?;
        Ok(wide(dtype, &bytes))
    }

    fn matrix(&self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix, CheckpointError> {
        let (dtype, bytes) = self.bytes(name, &[outputs, inputs])?;
        Ok(match dtype {
            "BF16" => Matrix::from_bf16(inputs, outputs, &halves(&bytes).collect::<Vec<u16>>()),
            dtype => Matrix::from_f32(inputs, outputs, &wide(dtype, &bytes)),
        })
    }

    fn finish(&self) -> Result<(), CheckpointError> {
        self.check_tied()?;
        let asked = self.asked.borrow();
        // Older files contain each layer's wavelengths, which are computed from the configuration.
        let known = |name: &str| asked.contains(name) || name.ends_with(".rotary_emb.inv_freq");
        match self.tensors.iter().find(|(name, _)| !known(name)) {
            Some((name, place)) => Err(CheckpointError::Unread { path: self.path(place), name: name.clone() }),
            None => Ok(()),
        }
    }
}

impl Index {
    /// Reads the map from tensors to files.
    fn read(path: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
        let text = fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })?;
        let broken = |reason| CheckpointError::Header { path: path.to_owned(), reason };
        let map = serde_json::from_slice::<Self>(&text).map_err(|error| broken(error.to_string()))?.weight_map;
        let beside = |name: &String| Path::new(name).file_name().is_some_and(|last| last == name.as_str());
        match map.values().find(|name| !beside(name)) {
            Some(name) => Err(broken(format!("it names {name:?}, which is no file beside it"))),
            None if map.is_empty() => Err(broken("it names no tensor".to_owned())),
            None => Ok(map),
        }
    }
}

fn halves(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
}

/// Whether no element is infinite or not a number.
fn finite(dtype: &str, bytes: &[u8]) -> bool {
    match dtype {
        "F32" => {
            bytes.chunks_exact(4).all(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]) << 1 < 0xff << 24)
        }
        "BF16" => halves(bytes).all(|bits| bits & 0x7f80 != 0x7f80),
        _ => halves(bytes).all(|bits| bits & 0x7c00 != 0x7c00),
    }
}

/// Converts elements of one of the three types to `f32`.
fn wide(dtype: &str, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        "F32" => bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect(),
        "BF16" => halves(bytes).map(|bits| f32::from_bits(u32::from(bits) << 16)).collect(),
        _ => halves(bytes).map(from_f16).collect(),
    }
}

/// Exact, because `f32` can represent every `f16`.
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
