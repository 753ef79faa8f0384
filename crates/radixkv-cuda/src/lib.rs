//! Keys and values on an NVIDIA GPU: paged attention, block copies, swapping to the host, comparing
//! tokens.
//!
//! A [`Device`] is a context, a stream and the kernels of `kernels/`. [`Attention`] implements
//! [`Backend`](radixkv_attention::Backend) on it. An engine can use its own context and stream
//! ([`Device::from_raw`]), its own memory of keys and values ([`Kv::from_raw`]), and its own rows
//! ([`View::from_raw`]).
//!
//! The package builds without CUDA, and calls no function of the driver before it has found the
//! driver: without a driver, [`Device::open`] returns [`OpenError::NoDriver`].
//!
//! # Examples
//!
//! ```no_run
//! use radixkv_attention::{Backend, Dtype, Layout, Order};
//! use radixkv_cuda::{Attention, Device};
//!
//! let device = Device::open(0)?;
//! let (dtype, order) = (Dtype::Bf16, Order::Nhd);
//! let layout = Layout { layers: 28, blocks: 4096, block_size: 16, kv_heads: 8, head_dim: 128, value_dim: 128, dtype, order };
//! let kv = Attention::new(&device).allocate(layout)?;
//! println!("{device}: {} GB of keys and values", kv.layout().bytes() >> 30);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # A step
//!
//! [`prepare`](radixkv_attention::Backend::prepare) checks a batch, plans it, and sends tables,
//! slots and work lists to the device in one copy. The operations of all layers then only launch
//! kernels: one or two for each layer, and one to merge if a context was cut into parts. Rows that
//! are not kept are appended to scratch blocks, computed over both block tables, and merged.
//! Cascade reads a shared prefix once for up to 128 query rows; the device's rule requires that
//! sharing saves about 10 us of reading.
//!
//! A captured graph keeps its grids and addresses. So [`Attention::reserve`] makes a decode batch
//! with fixed room, and [`Prepared::update`] replaces its contents by one copy. Items that the new
//! batch does not need are marked, and their thread blocks end immediately; rows without a sequence
//! have no slot and are not written.
//!
//! The memory pool of a context that [`Device::open`] made keeps freed memory, and plans are copied
//! through page-locked chunks that are reused. So preparing allocates nothing while batches repeat.
//!
//! Without a GPU the tests run the same code: `kernels/sim` implements the driver's interface over
//! the kernels' own sources, compiled for the host, and is loaded in place of the driver.
//!
//! # The files
//!
//! Each layer uses those below it.
//!
//! ```text
//! operations   attention  staged       the trait over device memory, and over rows in host memory
//!              reserved                decode batches that are replaced in place
//!              swap  host  pairs       blocks to page-locked memory and back; checks of block pairs
//!              copies                  blocks to other blocks of a storage
//!              compare                 common prefixes of token sequences
//!              graph  measure          captured steps; events, and the speed of the memory
//! a batch      prepared  work          its plan on the device; the arguments of its kernels
//!              capacity                its room for later batches
//!              scoring                 its sinks and slopes, in the units of the kernels
//!              plan/                   which thread block reads which keys for which rows: split sets the length
//!                                      of parts; decode, extend and cascade lay them out. Calls no driver
//! memory       dlpack                  tensors of other frameworks
//!              kv                      keys and values of all layers, allocated or an engine's
//!              upload                  arrays of a plan, in one copy
//!              buffer                  elements on a device, and views of them
//!              uses                    streams that may still use a piece of memory
//! launching    launch  abi             the only place that launches; argument structs, as in `kernels/abi.cuh`
//! a device     device                  context, stream, kernels
//!              staging  page_locked    page-locked memory: for copying plans, and in general
//!              capturing               whether work is being captured, and memory that is dropped meanwhile
//!              loaded                  the kernels, loaded into a context
//!              image  nvrtc            their images: embedded in the crate, or compiled
//!              error  kernel  module   errors; the kernels by name; the files that each is compiled from
//!              driver                  finds the driver before anything calls it; closes gaps of the binding
//! ```
//!
//! # Invariants
//!
//! - **G1** No function of the driver is called before `driver::find` has succeeded.
//! - **G2** Memory is allocated, used and freed in the order of its [`Device`]'s stream. Another
//!   stream waits for an event before it uses the memory, and the memory is not freed before that
//!   stream is done.
//! - **G3** The addresses in an argument struct are those of buffers, views and storages of the
//!   device it is launched on, long enough for the kernel's plan; plans come only from `plan`, for
//!   batches that were checked.
//! - **G4** Memory that is not zeroed is written by a kernel or a copy before a kernel reads it.
//! - **G5** The CPU accesses page-locked memory only while no transfer that uses it is in flight.
//! - **G6** `shape` and `strides` of a DLPack tensor point to as many numbers as it has dimensions,
//!   or `strides` is null.

mod abi;
mod attention;
mod buffer;
mod capacity;
mod capturing;
mod compare;
mod copies;
mod device;
mod dlpack;
mod driver;
mod error;
mod graph;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
mod host;
mod image;
mod kernel;
mod kv;
mod launch;
mod loaded;
mod measure;
mod module;
mod nvrtc;
mod page_locked;
mod pairs;
mod plan;
mod prepared;
mod reserved;
mod scoring;
mod staged;
mod staging;
mod swap;
mod upload;
mod uses;
mod work;

pub use attention::Attention;
pub use buffer::{Buffer, Element, View, ViewMut};
pub use capacity::Capacity;
pub use compare::{Compare, Comparison, TokenSequences};
pub use copies::BlockCopies;
pub use device::{Device, Properties};
pub use dlpack::{DlDataType, DlDevice, DlTensor, TensorField};
pub use error::{Code, GpuError, OpenError};
pub use graph::Graph;
pub use host::HostPool;
pub use image::Images;
pub use kernel::{Kernel, Variant};
pub use kv::{Kv, Planes};
pub use measure::Event;
pub use prepared::{Cascade, Prepared};
pub use staged::Staged;
pub use swap::{Swap, Transfer};

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
