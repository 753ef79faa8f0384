//! Nothing: see `tests/s3.rs`.
