//! Publishers and subscribers over TCP, on this machine.

#[path = "over_tcp/faults.rs"]
mod faults;
#[path = "over_tcp/following.rs"]
mod following;
#[path = "over_tcp/source.rs"]
mod source;
#[path = "over_tcp/strangers.rs"]
mod strangers;
