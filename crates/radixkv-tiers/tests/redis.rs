//! Tiers in Redis: a real server, and servers of a few lines that do everything wrong.

#[cfg(feature = "redis-cluster")]
#[path = "redis/cluster.rs"]
mod cluster;
mod common;
#[path = "redis/real.rs"]
mod real;
#[path = "redis/server.rs"]
mod server;
#[path = "redis/strange.rs"]
mod strange;
