//! Batches as bytes: golden ones, and any others.

#[path = "wire/hostile.rs"]
mod hostile;
#[path = "wire/vectors.rs"]
mod vectors;
