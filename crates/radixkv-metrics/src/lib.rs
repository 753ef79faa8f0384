#![doc = include_str!("../README.md")]

mod collector;
mod endpoint;
mod families;
mod family;
mod format;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
#[cfg(feature = "host")]
mod host;
mod lives;
mod namespaces;
mod text;
mod timer;

pub use collector::CacheCollector;
pub use endpoint::{Endpoint, EndpointError};
pub use format::TextFormat;
#[cfg(feature = "host")]
pub use host::HostCollector;
pub use lives::BlockLives;
pub use namespaces::NamespaceCollector;
pub use prometheus_client;
pub use text::{CONTENT_TYPE, text};
pub use timer::{Timer, Timers};
