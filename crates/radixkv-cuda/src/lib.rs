//! Keys and values on an NVIDIA GPU: paged attention, block copies, swapping to the host, comparing keys.
//!
//! A [`Device`] is a context, a stream and the kernels of `kernels/`. [`Attention`] is the trait
//! [`attention::Backend`](radixkv_attention::Backend) on it. All of it can be an engine's own: the context and the stream
//! ([`Device::within`]), the pages ([`Kv::from_raw`]), rows ([`View::from_raw`]).
//!
//! Nothing of CUDA is needed to build this, and nothing is called before the driver was found: [`Device::open`] answers
//! [`OpenError::NoDriver`] on a machine without one.
//!
//! # Invariants
//!
//! - **G1** No function of the driver is called before `driver::find` has succeeded.
//! - **G2** Memory is allocated, used and freed in the order of one stream, that of its [`Device`]. Another stream
//!   waits for an event before it uses it, and the memory is not freed before that stream is done.
//! - **G3** The addresses in an argument struct are those of buffers, views and pages of the device it is started on,
//!   long enough for the plan; plans come from `plan` alone, for batches that were checked.
//! - **G4** Memory that is not zeroed is written by a kernel or a copy before a kernel reads it.
//! - **G5** Page-locked memory is touched by the processor only while no transfer that uses it is in flight.

mod abi;
mod attention;
mod buffer;
mod compare;
mod device;
mod driver;
mod error;
mod graph;
mod host;
mod image;
mod kernel;
mod kv;
mod launch;
mod measure;
mod nvrtc;
mod plan;
mod prepared;
mod staged;
mod swap;
mod upload;
mod uses;
mod work;

pub use attention::Attention;
pub use buffer::{Buffer, Element, View, ViewMut};
pub use compare::{Compare, Comparison, Runs};
pub use device::{Device, Properties};
pub use error::{Code, GpuError, OpenError};
pub use graph::Graph;
pub use host::HostPool;
pub use image::Images;
pub use kernel::{Kernel, Variant};
pub use kv::{Kv, Planes};
pub use measure::Mark;
pub use prepared::{Cascade, Prepared};
pub use staged::Staged;
pub use swap::{Swap, Transfer};
