//! The crate against a driver: NVIDIA's if there is a GPU, else the stand-in driver of
//! `kernels/sim`, which runs the kernels on the processor, from their sources or from the PTX that
//! it is given.
//!
//! `RADIXKV_GPU=simulator` takes the stand-in even if there is a GPU. Failures print their seed.
#![allow(unsafe_code)]

#[path = "gpu/attention.rs"]
mod attention;
#[path = "gpu/bed.rs"]
mod bed;
#[path = "gpu/compare.rs"]
mod compare;
#[path = "gpu/context.rs"]
mod context;
#[path = "gpu/copies.rs"]
mod copies;
#[path = "gpu/driver.rs"]
mod driver;
#[path = "gpu/engine.rs"]
mod engine;
#[path = "gpu/engine_captures.rs"]
mod engine_captures;
#[path = "gpu/failures.rs"]
mod failures;
#[path = "gpu/graphs.rs"]
mod graphs;
#[path = "gpu/handles.rs"]
mod handles;
#[path = "gpu/identity.rs"]
mod identity;
#[path = "gpu/images.rs"]
mod images;
#[path = "gpu/latent.rs"]
mod latent;
#[path = "gpu/measure.rs"]
mod measure;
#[path = "gpu/pairs.rs"]
mod pairs;
#[path = "gpu/replay.rs"]
mod replay;
#[path = "gpu/room.rs"]
mod room;
#[path = "gpu/selftest.rs"]
mod selftest;
#[path = "gpu/staged.rs"]
mod staged;
#[path = "gpu/steps.rs"]
mod steps;
#[path = "gpu/swapping.rs"]
mod swapping;
#[path = "gpu/tensors.rs"]
mod tensors;
#[path = "gpu/uses.rs"]
mod uses;
#[path = "gpu/variants.rs"]
mod variants;
#[path = "gpu/wgmma.rs"]
mod wgmma;
