//! A cache's own events, recorded: what followers know is what the cache holds.

#[path = "cache/answers.rs"]
mod answers;
#[path = "cache/losses.rs"]
mod losses;
#[path = "cache/truth.rs"]
mod truth;
#[path = "cache/verbs.rs"]
mod verbs;
