#![doc = include_str!("../README.md")]

mod batch;
#[cfg(feature = "cache")]
mod cache;
mod change;
#[cfg(any(feature = "cache", feature = "zmq"))]
mod divide;
#[cfg(feature = "zmq")]
mod endpoint;
mod event;
#[cfg(feature = "zmq")]
mod follow;
mod follower;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
mod hash;
mod holdings;
#[cfg(feature = "zmq")]
mod publish;
mod recorder;
#[cfg(feature = "zmq")]
mod relay;
mod scopes;
pub mod wire;
#[cfg(feature = "index")]
mod workers;

pub use batch::{Batch, Numbered, new_epoch, now};
#[cfg(feature = "cache")]
pub use cache::{CacheRecorder, CacheRecorderBuilder};
pub use change::{Change, ChangeError, Tier};
#[cfg(feature = "zmq")]
pub use endpoint::EndpointError;
pub use event::{BlockId, Event, ExtraKey, Group, Medium, Removed, Scope, Stored, Token};
#[cfg(feature = "zmq")]
pub use follow::{SubscribeError, Subscriber, SubscriberBuilder};
pub use follower::{Counts, FollowError, Follower, Update, Verdict};
pub use hash::{BlockHash, Digest, HashScheme};
pub use holdings::{HoldError, Holdings};
#[cfg(feature = "zmq")]
pub use publish::{LostBatch, PublishError, Publisher, PublisherBuilder, Snapshot};
pub use recorder::{Recorder, RecorderBuilder};
#[cfg(feature = "index")]
pub use workers::Workers;
