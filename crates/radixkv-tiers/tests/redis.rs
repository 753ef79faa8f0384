//! Tiers in Redis: a real server, and servers of a few lines that do everything wrong.

mod common;
#[path = "redis/real.rs"]
mod real;
#[path = "redis/server.rs"]
mod server;
#[path = "redis/strange.rs"]
mod strange;
