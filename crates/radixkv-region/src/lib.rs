#![doc = include_str!("../README.md")]

mod copy;
mod counts;
mod entry;
mod geometry;
mod header;
mod index;
mod key;
mod layout;
#[cfg(all(target_arch = "x86_64", not(any(radixkv_loom, miri))))]
mod lines;
#[cfg(not(radixkv_loom))]
mod memory;
#[cfg(radixkv_loom)]
#[path = "memory_model.rs"]
mod memory;
mod process;
mod region;
mod slots;
mod state;
mod sync;

pub use counts::{Miss, Stats};
pub use header::OpenError;
pub use key::{Chain, Key, Token};
pub use layout::{Layout, LayoutError};
pub use memory::Memory;
pub use region::{Get, Put, PutError, PutRun, ReadError, Region, Reservation, Reserve, Source};
